//! The metrics without the feature `metrics`: there are none.

use drumfire_proto::Endpoint;

use crate::observe::stats::WorkerStats;

/// Publishes nothing.
#[derive(Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) const fn new(_worker: Option<u16>) -> Self {
        Self
    }

    pub(crate) const fn publish<P>(&mut self, _: &WorkerStats, _: &Endpoint<P>, _busy_percent: u8) {}

    pub(crate) const fn finish(&mut self, _stats: &WorkerStats) {}
}

pub(super) const fn describe() {}
