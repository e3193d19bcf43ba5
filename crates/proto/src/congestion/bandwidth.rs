//! The bandwidth estimate: the highest rate that the path delivered over about ten round trips (after BBR's delivery
//! rate samples, draft-ietf-ccwg-bbr).
//!
//! A sample is the bytes acknowledged in one round trip, divided by its duration. Unlike BBR this keeps no state per
//! packet, so there is one sample per round trip and not one per ack. A round trip in which the application had no
//! more data shows a lower bound of what the path carries. It can raise the estimate, but never lowers it.

use std::time::Duration;

use crate::convert::nanos;
use crate::time::Moment;

use super::{AckSummary, NANOS_PER_SECOND, scale};

/// The estimate covers the last 5 to 10 round trips.
const ROUNDS: u8 = 5;

/// The shortest sample. Acks arrive in bursts, so a shorter round trip is measured for longer.
const SAMPLE_MIN: Duration = Duration::from_millis(10);

/// The bandwidth estimate of one path.
#[derive(Debug, Default)]
pub(super) struct Bandwidth {
    // The estimate
    /// The highest sample of the previous [`ROUNDS`] round trips, in bytes per second, or 0 before them.
    previous: u64,
    /// The highest sample since, in bytes per second, or 0 before the first one.
    current: u64,
    /// The number of samples in `current` that were not app-limited, at most [`ROUNDS`].
    round_count: u8,

    // The sample
    /// Whether an ack of the sample was app-limited.
    is_app_limited: bool,
    /// The time at which the sample began, or `None` before the first ack.
    from: Option<Moment>,
    /// The number of bytes acknowledged since then.
    bytes: u64,
}

impl Bandwidth {
    /// The estimate in bytes per second; 0 before the first sample.
    pub(super) const fn bytes_per_second(&self) -> u64 {
        if self.previous > self.current { self.previous } else { self.current }
    }

    pub(super) fn on_acked(&mut self, ack: &AckSummary) {
        // The bytes of the first ack were sent before anything was measured, so they only start the clock.
        let Some(from) = self.from else {
            self.from = Some(ack.now);
            return;
        };
        self.bytes = self.bytes.saturating_add(ack.bytes);
        self.is_app_limited |= ack.is_app_limited;
        // The sample ends with the ack of a packet that was sent during it: a round trip later. Until then the acks may
        // belong to a burst, which arrives faster than the path delivers.
        let length = ack.now.since(from);
        if ack.sent_at < from || length < SAMPLE_MIN {
            return;
        }
        let sample = scale(self.bytes, NANOS_PER_SECOND, nanos(length));
        // Only full round trips age the estimate. An idle application would otherwise let it expire.
        if !self.is_app_limited {
            self.round_count = self.round_count.saturating_add(1);
            if self.round_count > ROUNDS {
                self.previous = self.current;
                self.current = 0;
                self.round_count = 1;
            }
        }
        // An app-limited sample below the estimate changes nothing.
        self.current = self.current.max(sample);
        self.from = Some(ack.now);
        self.bytes = 0;
        self.is_app_limited = false;
    }

    /// Asserts what must hold between two updates.
    pub(super) fn assert_invariants(&self) {
        debug_assert!(self.round_count <= ROUNDS, "an estimate covers {} round trips", self.round_count);
        debug_assert!(
            self.from.is_some() || (self.bytes == 0 && self.current == 0),
            "bytes were counted before the first sample began"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    /// Acknowledges `bytes` every 10 ms at a round trip of 50 ms.
    fn ack(bandwidth: &mut Bandwidth, range: std::ops::Range<u64>, bytes: u64, is_app_limited: bool) {
        for at in range.step_by(10) {
            let trip = Duration::from_millis(50);
            let (now, sent_at) = (ms(at + 50), ms(at));
            let ack = AckSummary {
                now,
                bytes,
                sent_at,
                round_trip: trip,
                smoothed: trip,
                is_app_limited,
                is_count_limited: false,
            };
            bandwidth.on_acked(&ack);
        }
    }

    #[test]
    fn the_estimate_is_acknowledged_bytes_per_time() {
        let mut bandwidth = Bandwidth::default();
        assert_eq!(bandwidth.bytes_per_second(), 0);
        ack(&mut bandwidth, 0..200, 12_000, false);
        assert_eq!(bandwidth.bytes_per_second(), 1_200_000);
    }

    #[test]
    fn the_estimate_falls_only_when_the_path_delivers_less() {
        let mut bandwidth = Bandwidth::default();
        ack(&mut bandwidth, 0..1_000, 12_000, false);
        ack(&mut bandwidth, 1_000..9_000, 1_000, true);
        assert_eq!(bandwidth.bytes_per_second(), 1_200_000);
        ack(&mut bandwidth, 9_000..9_100, 24_000, true);
        assert!(bandwidth.bytes_per_second() > 1_200_000);
        ack(&mut bandwidth, 9_100..10_000, 6_000, false);
        assert_eq!(bandwidth.bytes_per_second(), 600_000);
    }
}
