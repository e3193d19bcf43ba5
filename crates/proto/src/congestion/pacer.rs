//! The pacer: a leaky bucket that spreads the window over the round trip (RFC 9002 section 7.7).
//!
//! A burst may be sent immediately, which covers all that a game sends in one frame. After that, the rate applies.
//! The pacer never requests a wake-up sooner than a millisecond from now, so it allows small bursts instead of single
//! packets. It does not know how many bytes are in flight.

use crate::convert::nanos;
use crate::limits::GRANULARITY;
use crate::time::Moment;

/// The burst that may be sent after a pause: more than a game sends in one frame.
const BURST_BYTES: u64 = 12_000;

/// On a fast path the burst is what the rate allows in this many wake-ups, so that the timer is not the limit.
const BURST_GRANULES: u64 = 2;

/// The lowest pacing rate in bytes per second, whatever the round trip.
pub(super) const RATE_MIN: u64 = 1_200;

const NANOBYTES: u64 = 1_000_000_000;

/// A leaky bucket: sent bytes raise its level, and the level falls at the pacing rate.
#[derive(Debug)]
pub(super) struct Pacer {
    /// The pacing rate, at least [`RATE_MIN`].
    bytes_per_second: u64,
    /// The level in billionths of a byte. A rate of one byte per second drains one of them per nanosecond, so nothing is
    /// rounded.
    level: u64,
    /// The time at which `level` was last updated.
    updated_at: Moment,
}

impl Pacer {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(RATE_MIN), level: 0, updated_at: Moment::ORIGIN }
    }

    /// Changes the rate from now on.
    pub(super) fn set_rate(&mut self, now: Moment, bytes_per_second: u64) {
        // Until now, the bucket drained at the old rate.
        self.drain(now);
        self.bytes_per_second = bytes_per_second.max(RATE_MIN);
    }

    pub(super) fn on_sent(&mut self, now: Moment, bytes: u64) {
        self.drain(now);
        self.level = self.level.saturating_add(bytes.saturating_mul(NANOBYTES));
    }

    /// Whether a packet may be sent now, after `bytes` more bytes. The last packet of a burst may exceed the burst.
    pub(super) fn may_send_after(&self, now: Moment, bytes: u64) -> bool {
        self.level_at(now).saturating_add(bytes.saturating_mul(NANOBYTES)) < self.burst()
    }

    /// Returns the time at which the next packet may be sent, or `None` when one may be sent now.
    pub(super) fn next_at(&self, now: Moment) -> Option<Moment> {
        self.assert_invariants();
        let excess = self.level_at(now).checked_sub(self.burst())?;
        // One nanosecond more, because the level must fall below the burst.
        let wait = excess.checked_div(self.bytes_per_second).unwrap_or(u64::MAX).saturating_add(1);
        // Timers are no finer than the granularity. Several packets per wake-up make up for the longer wait.
        Some(Moment::from_nanos(now.as_nanos().saturating_add(wait.max(nanos(GRANULARITY)))))
    }

    /// Asserts what must hold between two updates.
    pub(super) fn assert_invariants(&self) {
        debug_assert!(self.bytes_per_second >= RATE_MIN, "a pacer without a rate never sends again");
    }

    fn drain(&mut self, now: Moment) {
        self.level = self.level_at(now);
        self.updated_at = self.updated_at.max(now);
    }

    fn level_at(&self, now: Moment) -> u64 {
        // A `Duration` would cost divisions, and every packet asks.
        let elapsed = now.as_nanos().saturating_sub(self.updated_at.as_nanos());
        self.level.saturating_sub(self.drained_in(elapsed))
    }

    fn burst(&self) -> u64 {
        let wake_ups = nanos(GRANULARITY).saturating_mul(BURST_GRANULES);
        BURST_BYTES.saturating_mul(NANOBYTES).max(self.drained_in(wake_ups))
    }

    const fn drained_in(&self, nanos: u64) -> u64 {
        self.bytes_per_second.saturating_mul(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(microseconds: u64) -> Moment {
        Moment::from_nanos(microseconds * 1_000)
    }

    /// Returns the bytes sent until `until` by a sender that wakes up as asked and always has packets of this size.
    fn send(pacer: &mut Pacer, from: Moment, until: Moment, packet: u64) -> u64 {
        let (mut now, mut sent) = (from, 0);
        while now < until {
            while pacer.may_send_after(now, 0) {
                pacer.on_sent(now, packet);
                sent += packet;
            }
            let next = pacer.next_at(now).unwrap();
            assert!(next >= now.after(GRANULARITY), "no finer than a millisecond");
            now = next;
        }
        sent
    }

    #[test]
    fn a_burst_goes_immediately_and_the_rest_at_the_rate() {
        let mut pacer = Pacer::new(1_000_000);
        assert_eq!(send(&mut pacer, micros(7), micros(8), 1_200), BURST_BYTES);
        let sent = send(&mut pacer, micros(8), micros(1_000_007), 1_200);
        assert!((999_000..=1_001_200).contains(&sent), "{sent}");
        assert!(!pacer.may_send_after(micros(1_000_007), 0));
        assert_eq!(pacer.next_at(micros(2_000_007)), None, "a full bucket");
    }

    #[test]
    fn every_rate_is_reached_with_every_size_of_packet() {
        for rate in [1_200, 12_345, 1_250_000, 125_000_000, 1_250_000_000] {
            for packet in [60, 200, 1_200] {
                let mut pacer = Pacer::new(rate);
                let spare = pacer.burst() / NANOBYTES + rate / 500 + 1_200;
                let sent = send(&mut pacer, micros(5_000_000), micros(6_000_000), packet);
                assert!((rate - rate / 1_000..=rate + spare).contains(&sent), "{rate} {packet} {sent}");
            }
        }
    }

    #[test]
    fn a_new_rate_applies_from_its_change() {
        let mut pacer = Pacer::new(1_000_000);
        pacer.on_sent(micros(0), BURST_BYTES + 10_000);
        assert_eq!(pacer.next_at(micros(0)), Some(Moment::from_nanos(10_000_001)));
        pacer.set_rate(micros(5_000), 5_000_000);
        assert_eq!(pacer.next_at(micros(5_000)), Some(Moment::from_nanos(6_000_001)));
    }

    #[test]
    fn extreme_rates_neither_panic_nor_block_forever() {
        let mut pacer = Pacer::new(0);
        assert_eq!(pacer.bytes_per_second, RATE_MIN);
        pacer.on_sent(Moment::LAST, u64::MAX);
        assert_eq!(pacer.next_at(Moment::LAST), Some(Moment::LAST));
        pacer.set_rate(Moment::ORIGIN, u64::MAX);
        assert!(!pacer.may_send_after(Moment::ORIGIN, 0), "a clock that goes back gives nothing");
        let mut pacer = Pacer::new(u64::MAX);
        pacer.on_sent(micros(1), 1_000_000_000);
        assert!(pacer.may_send_after(micros(2), 0));
    }
}
