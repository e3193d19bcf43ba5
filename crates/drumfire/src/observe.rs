//! What a worker shows of itself while it works: metrics and log lines, with one call per pass.
//!
//! Recorders and subscribers are code of others. One that panics is not called again by this worker, and costs nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use drumfire_proto::{Endpoint, Moment, Placement};

use crate::metrics::Metrics;
use crate::peer::PeerId;
use crate::stats::WorkerStats;
use crate::trace::{Happening, Trace};

/// What a worker shows beside what it counts.
#[derive(Debug)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "nobody looks"))]
pub(crate) struct Shown<'a, P> {
    pub(crate) endpoint: &'a Endpoint<P>,
    /// The share of the last second that it spent in passes which did something.
    pub(crate) busy_percent: u8,
}

/// One worker's metrics and log.
#[derive(Debug)]
pub(crate) struct Observer {
    metrics: Metrics,
    trace: Trace,
    /// A recorder or a subscriber panicked.
    is_broken: bool,
}

impl Observer {
    /// Of a server's worker by its number, or of a client.
    pub(crate) fn new(worker: Option<u16>) -> Self {
        Self { metrics: Metrics::new(worker), trace: Trace::new(worker), is_broken: false }
    }

    /// What the application is about to hear.
    pub(crate) fn happened(&mut self, now: Moment, peer: PeerId, what: &Happening) {
        self.guarded(|observer| observer.trace.happened(now, peer, what));
    }

    /// The application has not polled since the worker began.
    pub(crate) fn never_polled(&mut self) {
        self.guarded(|observer| observer.trace.never_polled());
    }

    /// A pass is over.
    pub(crate) fn pass<P: Placement>(&mut self, now: Moment, stats: &WorkerStats, shown: &Shown<'_, P>) {
        self.guarded(|observer| {
            observer.trace.pass(now, stats);
            observer.metrics.publish(now, stats, shown);
        });
    }

    /// The worker ends.
    pub(crate) fn finish(&mut self, stats: &WorkerStats) {
        self.guarded(|observer| {
            observer.trace.finish(stats);
            observer.metrics.finish(stats);
        });
    }

    /// When a pass should follow though nothing happens.
    pub(crate) fn due_in(&self, now: Moment) -> Option<Duration> {
        self.metrics.due_in(now).filter(|_| !self.is_broken)
    }

    fn guarded(&mut self, act: impl FnOnce(&mut Self)) {
        if !self.is_broken {
            // What is behind the guard is not used again after a panic.
            self.is_broken = catch_unwind(AssertUnwindSafe(|| act(self))).is_err();
        }
    }
}
