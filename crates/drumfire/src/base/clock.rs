//! The only module that reads the clocks of the system.

use std::time::{Duration, Instant, SystemTime};

use drumfire_proto::{Moment, Now};

/// The clocks of a worker, which reads them once per pass.
pub(crate) trait Clock: Send {
    /// Reads the monotonic clock and the wall clock.
    fn read(&mut self) -> Now;

    /// Reads the monotonic clock alone.
    fn monotonic(&mut self) -> Moment {
        self.read().monotonic
    }

    /// Returns the CPU time that this thread has used, or `None` if the platform does not count it.
    fn thread_cpu_time(&mut self) -> Option<Duration>;
}

/// The clocks of the system. Copies share one origin, because all workers of a server need the same monotonic time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock {
    origin_nanos: u64,
    /// The time at which the wall clock was last read, and the reading.
    wall_read: (Moment, Duration),
}

/// The interval at which the wall clock is read, which saves half of the cost of a reading. Tokens expire at most this much later.
const WALL_INTERVAL: Duration = Duration::from_millis(50);

impl SystemClock {
    /// Starts the monotonic time at zero.
    pub(crate) fn start() -> Self {
        Self { origin_nanos: monotonic_nanos(), wall_read: (Moment::ORIGIN, wall()) }
    }
}

impl Clock for SystemClock {
    fn read(&mut self) -> Now {
        let monotonic = self.monotonic();
        if monotonic.since(self.wall_read.0) >= WALL_INTERVAL {
            self.wall_read = (monotonic, wall());
        }
        Now { monotonic, wall: self.wall_read.1 }
    }

    fn monotonic(&mut self) -> Moment {
        Moment::from_nanos(monotonic_nanos().saturating_sub(self.origin_nanos))
    }

    fn thread_cpu_time(&mut self) -> Option<Duration> {
        drumfire_socket::thread_cpu_time()
    }
}

fn monotonic_nanos() -> u64 {
    let time = drumfire_socket::monotonic_time();
    // The sum is exact for 584 years.
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
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
