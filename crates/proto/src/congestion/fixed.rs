//! A rate that somebody knows: sent at, never exceeded, never lowered.
//!
//! It does not react to loss or delay, and has no window but the largest there is: the pacer is what limits.

use std::time::Duration;

use super::{Acked, Controller, Lost, WINDOW_MAX_BYTES};

/// The controller of [`Congestion::Fixed`](super::Congestion::Fixed).
#[derive(Debug)]
pub(super) struct Fixed {
    bytes_per_second: u64,
}

impl Fixed {
    pub(super) const fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second }
    }
}

impl Controller for Fixed {
    fn on_acked(&mut self, _: &Acked) {}

    fn on_lost(&mut self, _: &Lost) {}

    fn window_bytes(&self) -> u64 {
        WINDOW_MAX_BYTES
    }

    fn pacing_rate(&self, _: Duration) -> u64 {
        self.bytes_per_second
    }

    fn on_path_changed(&mut self) {}
}
