//! The limit on the bytes in flight that follows the path, in addition to the congestion window.
//!
//! Without losses and queues, a congestion window does not show the capacity of a path. In a LAN it may allow far more than
//! the path holds, and a receiver that stalls for a moment would lose all that exceeds its socket buffer. The limit is
//! twice what the path delivers in a round trip and a short stall. It begins with what the default buffer of a socket
//! holds, which is enough for slow paths. A fast path raises it within a few round trips.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::convert::{nanos, saturated};
use crate::time::Moment;

use super::{NANOS_PER_SECOND, scale};

/// A stall of a receiver, or a queue at the bottleneck, during which the sender continues.
const STALL: Duration = Duration::from_millis(25);

/// A loss of at least one part in this many of the limit is an overflow. A link that loses single packets at random loses
/// less in one step.
const OVERFLOW_PARTS: u64 = 16;

/// The number of round trips for which the limit does not grow again after growth caused an overflow. The bandwidth estimate
/// then consists of samples from after the loss.
const PAUSE_ROUND_TRIPS: u32 = 10;

/// The limit of one path.
#[derive(Debug)]
pub(super) struct FlightLimit {
    /// The present limit.
    bytes: u32,
    /// The limit of a path of which nothing is known, which is also the smallest.
    min_bytes: u32,
    /// The largest limit.
    max_bytes: u32,
    /// The time at which the limit last grew, or the end of the pause after an overflow.
    changed_at: Moment,
    /// Whether the limit grew at that time.
    has_grown: bool,
}

impl FlightLimit {
    /// Creates the limit of a path of which nothing is known. `bytes` is its range.
    pub(super) const fn new(bytes: &RangeInclusive<u32>) -> Self {
        let (min_bytes, max_bytes) = (*bytes.start(), *bytes.end());
        Self { bytes: min_bytes, min_bytes, max_bytes, changed_at: Moment::ORIGIN, has_grown: false }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.into()
    }

    /// Adjusts the limit to the estimated rate of the path.
    pub(super) fn on_acked(&mut self, now: Moment, bytes_per_second: u64, smoothed: Duration) {
        if now < self.changed_at {
            return;
        }
        let period = nanos(smoothed.saturating_add(STALL)).saturating_mul(2);
        let bytes = saturated(scale(bytes_per_second, period, NANOS_PER_SECOND), u32::MAX);
        let bytes = bytes.clamp(self.min_bytes, self.max_bytes);
        if bytes <= self.bytes {
            self.bytes = bytes;
        } else if now.since(self.changed_at) >= smoothed {
            // A peer that acknowledges packets it did not receive is detected within a few hundred packets. Until then it must
            // not get far more than an honest peer.
            self.bytes = bytes.min(self.bytes.saturating_mul(2));
            (self.changed_at, self.has_grown) = (now, true);
        }
    }

    /// Halves the limit if this loss is an overflow, and it grew at most a round trip before.
    pub(super) fn on_lost(&mut self, now: Moment, lost_bytes: u64, smoothed: Duration) {
        let is_overflow = lost_bytes >= self.bytes() / OVERFLOW_PARTS;
        let has_just_grown = self.has_grown && now.since(self.changed_at) <= smoothed;
        if is_overflow && has_just_grown && self.bytes > self.min_bytes {
            self.bytes = (self.bytes / 2).max(self.min_bytes);
            let paused_until = now.after(smoothed.saturating_mul(PAUSE_ROUND_TRIPS));
            (self.changed_at, self.has_grown) = (paused_until, false);
        }
    }

    /// Starts over on another path.
    pub(super) const fn reset(&mut self) {
        *self = Self::new(&(self.min_bytes..=self.max_bytes));
    }

    /// Asserts what must hold between two updates.
    pub(super) fn assert_invariants(&self) {
        let limits = self.min_bytes..=self.max_bytes;
        debug_assert!(limits.contains(&self.bytes), "{} bytes may be in flight, of {limits:?}", self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(50);

    fn at(milliseconds: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_millis(milliseconds))
    }

    /// Reports this rate once per round trip, eight times from `from` on. The limit then follows it.
    fn acknowledge_from(limit: &mut FlightLimit, from: u64, bytes_per_second: u64) {
        for trip in 0..8 {
            limit.on_acked(at(from + 50 * trip), bytes_per_second, TRIP);
        }
    }

    #[test]
    fn the_limit_is_twice_the_delivery_of_a_round_trip_and_stall() {
        let mut limit = FlightLimit::new(&(131_072..=4_194_304));
        let rates = [(125_000, 131_072), (12_500_000, 1_875_000), (125_000_000, 4_194_304)];
        for (step, (rate, bytes)) in (1..).zip(rates) {
            acknowledge_from(&mut limit, step * 1_000, rate);
            assert_eq!(limit.bytes(), bytes, "{rate} B/s");
            limit.assert_invariants();
        }
        // It also follows a path that became slower.
        limit.on_acked(at(5_000), 1_250_000, TRIP);
        assert_eq!(limit.bytes(), 187_500);
        limit.reset();
        assert_eq!(limit.bytes(), 131_072);
    }

    #[test]
    fn the_limit_doubles_once_per_round_trip_at_most() {
        let mut limit = FlightLimit::new(&(131_072..=4_194_304));
        for (now, bytes) in [(1_000, 262_144), (1_049, 262_144), (1_050, 524_288), (1_051, 524_288)] {
            limit.on_acked(at(now), 125_000_000, TRIP);
            assert_eq!(limit.bytes(), bytes, "at {now} ms");
        }
    }

    #[test]
    fn an_overflow_after_growth_halves_and_freezes_the_limit() {
        let mut limit = FlightLimit::new(&(131_072..=4_194_304));
        acknowledge_from(&mut limit, 1_000, 6_000_000);
        limit.on_acked(at(2_000), 12_500_000, TRIP);
        assert_eq!(limit.bytes(), 1_800_000);
        limit.on_lost(at(2_050), 112_499, TRIP);
        assert_eq!(limit.bytes(), 1_800_000, "single packets are lost on any radio link");
        limit.on_lost(at(2_050), 112_500, TRIP);
        assert_eq!(limit.bytes(), 900_000);
        // One overflow counts once, however long it lasts.
        limit.on_lost(at(2_051), 112_500, TRIP);
        limit.on_acked(at(2_599), 12_500_000, TRIP);
        assert_eq!(limit.bytes(), 900_000);
        // The end of the pause is no growth.
        limit.on_lost(at(2_600), 1_000_000, TRIP);
        assert_eq!(limit.bytes(), 900_000);
        limit.on_acked(at(2_600), 12_500_000, TRIP);
        assert_eq!(limit.bytes(), 1_800_000);
        // Later losses are the matter of the congestion controller.
        limit.on_lost(at(2_651), 1_000_000, TRIP);
        assert_eq!(limit.bytes(), 1_800_000);
    }
}
