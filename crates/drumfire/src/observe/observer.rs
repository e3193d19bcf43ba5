//! The metrics and log events of a worker, published once per second, and immediately after a panic.
//!
//! Recorders and subscribers are foreign code. After one of them panicked, a worker calls neither of them again, and continues.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use drumfire_proto::{Endpoint, Moment, Placement};

use super::metrics::Metrics;
use super::stats::WorkerStats;
use super::trace::Trace;
use crate::message::event::Event;

/// The shortest time between two publications of the counters.
const INTERVAL: Duration = Duration::from_secs(1);

/// The metrics and the log of one worker.
#[derive(Debug)]
pub(crate) struct Observer {
    metrics: Metrics,
    trace: Trace,
    /// The time of the last publication. `None` before the first one.
    published_at: Option<Moment>,
    /// The number of panics and restarts at the last publication.
    published_faults: u64,
    /// Whether there was a pass since the last publication.
    is_behind: bool,
    /// Whether a recorder or a subscriber panicked.
    is_broken: bool,
}

impl Observer {
    /// Returns the observer of a worker of a server, or of a client for `None`.
    pub(crate) fn new(worker: Option<u16>) -> Self {
        Self {
            metrics: Metrics::new(worker),
            trace: Trace::new(worker),
            published_at: None,
            published_faults: 0,
            is_behind: false,
            is_broken: false,
        }
    }

    /// Logs an event before the application receives it.
    pub(crate) fn on_connection_event(&mut self, now: Moment, event: &Event) {
        self.guarded(|observer| observer.trace.on_connection_event(now, event));
    }

    /// Warns that the application has not polled since the worker started.
    pub(crate) fn warn_never_polled(&mut self) {
        self.guarded(|observer| observer.trace.warn_never_polled());
    }

    /// Registers a pass. Returns whether its counters have to be published. `faults` is the number of panics and restarts.
    pub(crate) fn is_due(&mut self, now: Moment, faults: u64) -> bool {
        // Without both features, there is nothing to publish to.
        if !cfg!(any(feature = "metrics", feature = "tracing")) || self.is_broken {
            return false;
        }
        let is_recent = self.published_at.is_some_and(|at| now.since(at) < INTERVAL);
        self.is_behind = is_recent && faults == self.published_faults;
        !self.is_behind
    }

    /// Publishes the counters, and the share of the last second that the worker spent in passes with work.
    pub(crate) fn publish<P: Placement>(
        &mut self,
        now: Moment,
        stats: &WorkerStats,
        endpoint: &Endpoint<P>,
        busy_percent: u8,
    ) {
        (self.published_at, self.published_faults) = (Some(now), stats.panics.saturating_add(stats.restarts));
        self.guarded(|observer| {
            observer.trace.counters(now, stats);
            observer.metrics.publish(stats, endpoint, busy_percent);
        });
    }

    /// Publishes the last counters when the worker ends.
    pub(crate) fn finish(&mut self, stats: &WorkerStats) {
        self.is_behind = false;
        self.guarded(|observer| {
            observer.trace.finish(stats);
            observer.metrics.finish(stats);
        });
    }

    /// Returns the time at which the unpublished passes are due. `None` if everything is published. An idle worker has no other
    /// reason to wake.
    pub(crate) fn due_at(&self) -> Option<Moment> {
        self.published_at.filter(|_| self.is_behind && !self.is_broken).map(|at| at.after(INTERVAL))
    }

    fn guarded(&mut self, act: impl FnOnce(&mut Self)) {
        if !self.is_broken {
            // The closure may leave broken state behind, but nothing uses it after a panic.
            self.is_broken = catch_unwind(AssertUnwindSafe(|| act(self))).is_err();
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::*;
    use drumfire_proto::{ClientConfig, Config, Secret};

    fn at(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn counts_are_due_a_second_after_the_last_publication() {
        let endpoint =
            Endpoint::client(Config::default(), ClientConfig::default(), Secret::new([7; 32])).unwrap();
        let (mut observer, mut stats) = (Observer::new(None), WorkerStats::default());
        assert_eq!(observer.due_at(), None);
        assert!(observer.is_due(at(0), 0));
        observer.publish(at(0), &stats, &endpoint, 0);
        assert_eq!(observer.due_at(), None, "all counts are published");
        assert!(!observer.is_due(at(300), 0) && !observer.is_due(at(999), 0));
        assert_eq!(observer.due_at(), Some(at(1_000)));
        assert!(observer.is_due(at(1_000), 0));
        observer.publish(at(1_000), &stats, &endpoint, 0);
        assert_eq!(observer.due_at(), None);
        assert!(!observer.is_due(at(1_500), 0));
        observer.is_broken = true;
        assert_eq!(observer.due_at(), None, "the worker does not wake for counts that it cannot publish");
        observer.is_broken = false;
        stats.panics = 1;
        assert!(observer.is_due(at(1_001), 1), "a panic is published immediately");
        observer.publish(at(1_001), &stats, &endpoint, 0);
        assert!(!observer.is_due(at(1_002), 1));
    }
}
