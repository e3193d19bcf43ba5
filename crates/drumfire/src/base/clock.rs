//! The only module that reads the clocks of the system.

use std::time::{Duration, Instant, SystemTime};

use drumfire_proto::{Moment, Now};

/// One reading of the clocks. A worker takes one per pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The time for the wait strategy.
    pub(crate) instant: Instant,
    /// The times for the protocol.
    pub(crate) now: Now,
}

/// The clocks of a worker.
pub(crate) trait Clock: Send {
    /// Reads the monotonic clock and the wall clock.
    fn read(&mut self) -> Reading;

    /// Returns the CPU time that this thread has used, or `None` if the platform does not count it.
    fn thread_cpu_time(&mut self) -> Option<Duration>;
}

/// The clocks of the system. Copies share one origin, because all workers of a server need the same monotonic time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Starts the monotonic time at zero.
    pub(crate) fn start() -> Self {
        Self { origin: instant() }
    }
}

impl Clock for SystemClock {
    fn read(&mut self) -> Reading {
        let instant = instant();
        let since = instant.saturating_duration_since(self.origin);
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Reading { instant, now: Now { monotonic: Moment::from_nanos(nanos), wall: wall() } }
    }

    fn thread_cpu_time(&mut self) -> Option<Duration> {
        drumfire_socket::thread_cpu_time()
    }
}

/// Returns the time since 1970, or zero for a clock that shows an earlier time.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub(crate) fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the monotonic clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
