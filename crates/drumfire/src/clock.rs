//! The one place that reads the clocks.

use std::time::{Duration, Instant, SystemTime};

use drumfire_proto::{Moment, Now};

use crate::worker::{Clock, Reading};

/// The system's clocks, counted from one origin. Copies share it, as all workers of a server must.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Counts from now on.
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

/// Time since 1970. A clock before that is as good as none.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub(crate) fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the monotonic clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
