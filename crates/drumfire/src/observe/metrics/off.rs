//! The metrics without the feature `metrics`: there are none.

use std::time::Duration;

use drumfire_proto::Moment;

use crate::observe::observer::Shown;
use crate::observe::stats::WorkerStats;

/// Publishes nothing.
#[derive(Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) const fn new(_worker: Option<u16>) -> Self {
        Self
    }

    pub(crate) const fn publish<P>(&mut self, _now: Moment, _stats: &WorkerStats, _shown: &Shown<'_, P>) {}

    pub(crate) const fn finish(&mut self, _stats: &WorkerStats) {}

    pub(crate) const fn due_in(&self, _now: Moment) -> Option<Duration> {
        None
    }
}

pub(super) const fn describe() {}
