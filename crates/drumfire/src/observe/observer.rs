//! The metrics and log events of a worker, published once per pass.
//!
//! Recorders and subscribers are foreign code. A worker does not call one again that panicked, and goes on without it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use drumfire_proto::{Endpoint, Moment, PeerId, Placement};

use super::metrics::Metrics;
use super::stats::WorkerStats;
use super::trace::{Happening, Trace};

/// The state of a worker that is published in addition to its counters.
#[derive(Debug)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "only metrics read the state"))]
pub(crate) struct Shown<'a, P> {
    pub(crate) endpoint: &'a Endpoint<P>,
    /// The share of the last second that the worker spent in passes with work.
    pub(crate) busy_percent: u8,
}

/// The metrics and the log of one worker.
#[derive(Debug)]
pub(crate) struct Observer {
    metrics: Metrics,
    trace: Trace,
    /// A recorder or a subscriber panicked.
    is_broken: bool,
}

impl Observer {
    /// Returns the observer of a worker of a server, or of a client for `None`.
    pub(crate) fn new(worker: Option<u16>) -> Self {
        Self { metrics: Metrics::new(worker), trace: Trace::new(worker), is_broken: false }
    }

    /// Logs an event before the application receives it.
    pub(crate) fn happened(&mut self, now: Moment, peer: PeerId, what: &Happening) {
        self.guarded(|observer| observer.trace.happened(now, peer, what));
    }

    /// Logs that the application has not polled since the worker started.
    pub(crate) fn never_polled(&mut self) {
        self.guarded(|observer| observer.trace.never_polled());
    }

    /// Publishes the counters after a pass.
    pub(crate) fn pass<P: Placement>(&mut self, now: Moment, stats: &WorkerStats, shown: &Shown<'_, P>) {
        self.guarded(|observer| {
            observer.trace.pass(now, stats);
            observer.metrics.publish(now, stats, shown);
        });
    }

    /// Publishes the last counters when the worker ends.
    pub(crate) fn finish(&mut self, stats: &WorkerStats) {
        self.guarded(|observer| {
            observer.trace.finish(stats);
            observer.metrics.finish(stats);
        });
    }

    /// Returns the time until the next pass that has to publish metrics, even without traffic.
    pub(crate) fn due_in(&self, now: Moment) -> Option<Duration> {
        self.metrics.due_in(now).filter(|_| !self.is_broken)
    }

    fn guarded(&mut self, act: impl FnOnce(&mut Self)) {
        if !self.is_broken {
            // The closure may leave broken state behind, but nothing uses it after a panic.
            self.is_broken = catch_unwind(AssertUnwindSafe(|| act(self))).is_err();
        }
    }
}
