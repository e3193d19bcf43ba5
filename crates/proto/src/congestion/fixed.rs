//! A controller with a fixed rate that is never exceeded and never lowered.
//!
//! It does not react to loss or delay, and its window is the largest there is: only the pacer limits it.

use std::time::Duration;

use super::pacer::RATE_MIN;
use super::{AckSummary, Controller, LossSummary, WINDOW_MAX_BYTES};

/// The controller of [`Congestion::Fixed`](super::Congestion::Fixed).
#[derive(Debug)]
pub(super) struct FixedRate {
    bytes_per_second: u64,
}

impl FixedRate {
    pub(super) const fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second }
    }
}

impl Controller for FixedRate {
    fn on_acked(&mut self, _: &AckSummary) {}

    fn on_lost(&mut self, _: &LossSummary) {}

    fn window_bytes(&self) -> u64 {
        WINDOW_MAX_BYTES
    }

    fn pacing_rate(&self, _: Duration) -> u64 {
        self.bytes_per_second
    }

    fn on_path_changed(&mut self) {}

    fn assert_invariants(&self) {
        // The configuration refuses rates that the pacer would raise.
        debug_assert!(self.bytes_per_second >= RATE_MIN, "{} bytes per second", self.bytes_per_second);
    }
}
