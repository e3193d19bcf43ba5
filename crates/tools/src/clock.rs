//! The tools' clock: the one place in this crate that reads the time.
//!
//! Everything else takes a reading as an argument.

use std::time::{Duration, Instant};

/// Monotonic time, for intervals within this process.
#[expect(clippy::disallowed_methods, reason = "this is the place that owns the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// The host's monotonic clock in nanoseconds: the same for all processes of one host, and never 0.
pub fn host_ns() -> u64 {
    let time = drumfire_socket::monotonic_time();
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into()).max(1)
}

/// Returns a condition that holds for this time from now on.
pub fn within(time: Duration) -> impl Fn() -> bool {
    let start = now();
    move || now().saturating_duration_since(start) < time
}

/// Sleeps between two checks of a condition with a deadline, on a thread that handles no datagrams.
#[expect(
    clippy::disallowed_methods,
    reason = "control threads wait in steps; this is the one place that sleeps"
)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
