//! The round trip estimate: smoothed value and variation (after RFC 9002 section 5).
//!
//! This module turns samples into timeouts. The caller decides which packets give a sample.

use std::time::Duration;

use crate::convert::nanos;
use crate::limits::{ACK_GAP_INTERVAL, GRANULARITY, ROUND_TRIP_INITIAL};
use crate::time::{Micros, part};

/// The round trip estimate of one path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrip {
    /// Zero before the first sample.
    latest: Micros,
    smoothed: Micros,
    variation: Micros,
}

impl Default for RoundTrip {
    fn default() -> Self {
        Self {
            latest: Micros::default(),
            smoothed: Micros::new(ROUND_TRIP_INITIAL),
            variation: Micros::new(part(ROUND_TRIP_INITIAL, 2)),
        }
    }
}

impl RoundTrip {
    /// Updates the estimate from a sample and the delay that the peer reported. Unlike in RFC 9002 section 5.3, the
    /// delay has no upper limit: acks are delayed on purpose, for longer than many round trips. A peer that lies only
    /// causes early retransmissions of its own packets.
    pub(crate) fn on_sample(&mut self, sample: Duration, ack_delay: Duration) {
        let is_first = !self.has_sample();
        self.latest = Micros::new(sample).max(Micros::SHORTEST);
        let adjusted = Micros::new(sample.saturating_sub(ack_delay));
        if is_first {
            self.smoothed = adjusted;
            self.variation = Micros::default().averaged::<2>(adjusted);
            return;
        }
        let deviation = self.smoothed.abs_diff(adjusted);
        self.variation = self.variation.averaged::<4>(deviation);
        self.smoothed = self.smoothed.averaged::<8>(adjusted);
    }

    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed.to_duration()
    }

    /// The mean deviation of the round trip.
    pub(crate) fn variation(&self) -> Duration {
        self.variation.to_duration()
    }

    /// The smoothed round trip, or `None` before the first sample.
    pub(crate) fn measured(&self) -> Option<Duration> {
        self.has_sample().then_some(self.smoothed())
    }

    fn has_sample(&self) -> bool {
        self.latest != Micros::default()
    }

    /// The age at which a packet below the largest acknowledged one is lost: 9/8 of the round trip (RFC 9002 section
    /// 6.1.2). The time for which the peer may delay the ack of a reordered packet is added.
    pub(crate) fn loss_delay(&self) -> Duration {
        let longer = self.smoothed.max(self.latest).to_duration();
        longer.saturating_add(part(longer, 8)).saturating_add(ACK_GAP_INTERVAL).max(GRANULARITY)
    }

    /// The time to wait for an ack before a probe, when the peer may delay its ack by `ack_delay` (RFC 9002 section
    /// 6.2.1).
    pub(crate) fn probe_timeout(&self, ack_delay: Duration) -> Duration {
        Duration::from_nanos(self.probe_timeout_nanos(nanos(ack_delay)))
    }

    /// [`Self::probe_timeout`] in nanoseconds. Every packet moves a timer by it, and a `Duration` costs divisions.
    #[inline]
    pub(crate) fn probe_timeout_nanos(&self, ack_delay: u64) -> u64 {
        let margin = self.variation.as_nanos().saturating_mul(4).max(nanos(GRANULARITY));
        self.smoothed_nanos().saturating_add(margin).saturating_add(ack_delay)
    }

    #[inline]
    pub(crate) const fn smoothed_nanos(&self) -> u64 {
        self.smoothed.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::tests::any_time;
    use proptest::prelude::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_first_sample_replaces_the_guess() {
        let mut trip = RoundTrip::default();
        assert_eq!((trip.smoothed(), trip.measured()), (ROUND_TRIP_INITIAL, None));
        assert_eq!(trip.probe_timeout(ms(25)), ms(325));
        trip.on_sample(ms(50), ms(10));
        assert_eq!(trip.smoothed(), ms(40));
        assert_eq!(trip.probe_timeout(ms(25)), ms(40 + 80 + 25));
    }

    #[test]
    fn the_ack_delay_lowers_the_average_but_not_the_loss_delay() {
        let mut trip = RoundTrip::default();
        trip.on_sample(ms(48), ms(8));
        trip.on_sample(ms(80), ms(40));
        assert_eq!((trip.smoothed(), trip.loss_delay()), (ms(40), ms(95)));
        trip.on_sample(ms(16), ms(40));
        assert_eq!(trip.smoothed(), ms(35));
    }

    #[test]
    fn a_round_trip_of_zero_is_measured() {
        let mut trip = RoundTrip::default();
        trip.on_sample(Duration::ZERO, Duration::ZERO);
        assert_eq!(trip.measured(), Some(Duration::ZERO));
        assert_eq!(size_of::<RoundTrip>(), 12, "every connection has one");
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut trip = RoundTrip::default();
        for sample in [Duration::ZERO, Duration::MAX, Duration::from_nanos(1), Duration::MAX] {
            trip.on_sample(sample, Duration::MAX);
            assert!(trip.loss_delay() >= GRANULARITY && trip.probe_timeout(Duration::MAX) >= GRANULARITY);
        }
    }

    proptest! {
        #[test]
        fn the_estimate_lies_within_its_samples_and_bounds_timeouts(
            samples in prop::collection::vec((any_time(), any_time()), 1..40), wait in any_time(),
        ) {
            let mut trip = RoundTrip::default();
            let (mut least, mut most) = (Duration::MAX, Duration::ZERO);
            for (sample, delay) in samples {
                trip.on_sample(sample, delay);
                let adjusted = Micros::new(sample.saturating_sub(delay)).to_duration();
                (least, most) = (least.min(adjusted), most.max(adjusted));
                prop_assert!((least..=most).contains(&trip.smoothed()), "{trip:?}");
                prop_assert!(trip.variation() <= most, "{trip:?}");
                prop_assert_eq!(trip.measured(), Some(trip.smoothed()));
                prop_assert!(trip.loss_delay() >= trip.smoothed().max(GRANULARITY), "{trip:?}");
                let probe = trip.probe_timeout(wait);
                let least = trip.smoothed().saturating_add(wait).max(GRANULARITY);
                prop_assert!(probe >= least.min(Duration::from_nanos(u64::MAX)), "{trip:?}");
            }
        }
    }
}
