//! How a process of a run tells how it is doing: a line of counts at the end of each interval of the host's clock, and a last one.

use std::time::Duration;

use drumfire_benches::{Counts, print_counts};
use drumfire_tools::clock;
use drumfire_tools::host::{ProcessClock, ThreadClock, current_thread_id};

use crate::plan::ns;

/// The key of the last line.
pub(crate) const LAST: &str = "last";

/// The host's clock when a line was made, in nanoseconds.
pub(crate) const AT: &str = "at";

/// CPU time of the process, and how long its threads that work waited for a core, in nanoseconds.
pub(crate) const CPU: &str = "cpu";
pub(crate) const DELAY: &str = "delay";

/// Tells when an interval is over.
#[derive(Debug)]
pub(crate) struct Teller {
    interval_ns: u64,
    next_ns: u64,
    /// The thread that tells, where others do the work.
    telling_thread: Option<u32>,
}

impl Teller {
    pub(crate) fn new(interval: Duration) -> Self {
        let interval_ns = ns(interval).max(1);
        Self {
            interval_ns,
            next_ns: (clock::host_ns() / interval_ns + 1) * interval_ns,
            telling_thread: None,
        }
    }

    /// For a thread that does nothing but tell: that it waits for the core while those that it tells of are busy is no disturbance.
    pub(crate) fn apart(interval: Duration) -> Self {
        Self { telling_thread: current_thread_id(), ..Self::new(interval) }
    }

    /// Says these counts if an interval is over. One that nobody was there for has no line.
    pub(crate) fn look(&mut self, counts: impl FnOnce() -> Counts) -> Result<(), String> {
        let now = clock::host_ns();
        if now < self.next_ns {
            return Ok(());
        }
        self.next_ns = (now / self.interval_ns + 1) * self.interval_ns;
        self.say(counts(), false)
    }

    /// Says these counts as the last ones.
    pub(crate) fn last(&self, counts: Counts) -> Result<(), String> {
        self.say(counts, true)
    }

    fn say(&self, mut counts: Counts, is_last: bool) -> Result<(), String> {
        if let Some(sample) = ProcessClock::sample(std::process::id()) {
            let own = self.telling_thread.and_then(ThreadClock::sample);
            let own_delay = own.and_then(|sample| sample.run_delay_ns).unwrap_or(0);
            let delay = sample.run_delay_ns.unwrap_or(0).saturating_sub(own_delay);
            counts.insert(CPU.to_owned(), sample.run_ns);
            counts.insert(DELAY.to_owned(), delay);
        }
        counts.insert(AT.to_owned(), clock::host_ns());
        if is_last {
            counts.insert(LAST.to_owned(), 1);
        }
        print_counts(&counts).map_err(|error| error.to_string())
    }
}
