//! Key epochs: when the keys of a connection change (RFC 9001 section 6, and PROTOCOL 12, "Key updates").
//!
//! This module holds no keys. An epoch ends when its key has sealed enough packets or is old. The next one may begin
//! some time after the peer has shown that it has the keys of this one.

use std::time::Duration;

use crate::limits::KEY_PACKETS_UNCONFIRMED;
use crate::time::{Millis, Moment};

/// The limits of an epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EpochLimits {
    pub(crate) packets: u64,
    pub(crate) interval: Duration,
}

/// The current epoch of one connection. Times are stored relative to its start, which takes less memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyEpoch {
    /// The first packet number that may be sealed in this epoch.
    base: u64,
    started_at: Moment,
    /// The time at which this end may begin the next epoch, which is never before the peer has acknowledged a packet of
    /// this one (RFC 9001 section 6.5).
    next_allowed: Millis,
    /// The time at which the keys of the previous epoch are forgotten.
    forget: Millis,
}

impl KeyEpoch {
    /// Creates the first epoch.
    pub(crate) const fn new(now: Moment) -> Self {
        Self { base: 0, started_at: now, next_allowed: Millis::NEVER, forget: Millis::NEVER }
    }

    /// Whether this end should begin the next epoch before it seals packet `next`.
    pub(crate) fn is_over(&self, now: Moment, next: u64, limits: &EpochLimits) -> bool {
        self.at(self.next_allowed).is_some_and(|at| at <= now)
            && (next.saturating_sub(self.base) >= limits.packets
                || now.since(self.started_at) >= limits.interval)
    }

    /// Converts a time after the start of the epoch to a moment.
    fn at(&self, after: Millis) -> Option<Moment> {
        (after != Millis::NEVER).then(|| after.after(self.started_at))
    }

    /// Returns the time after the start of the epoch at which `delay` has passed.
    fn after(&self, now: Moment, delay: Duration) -> Millis {
        Millis::new(now.after(delay).since(self.started_at)).min(Millis::LONG)
    }

    /// Whether the key has sealed too many packets without an ack to seal packet `next`.
    pub(crate) const fn is_exhausted(&self, next: u64) -> bool {
        next.saturating_sub(self.base) >= KEY_PACKETS_UNCONFIRMED
    }

    /// Whether nothing was sealed in this epoch. `next` is the next number. The peer then cannot know that its last
    /// key change arrived.
    pub(crate) const fn is_unused(&self, next: u64) -> bool {
        next <= self.base
    }

    /// Begins a new epoch with packet `next`.
    pub(crate) const fn begin_next(&mut self, now: Moment, next: u64) {
        *self = Self { base: next, ..Self::new(now) };
    }

    /// Registers that the peer acknowledged packet `largest`. `delay` is three probe timeouts, here and below.
    #[inline]
    pub(crate) fn on_acked(&mut self, now: Moment, largest: u64, delay: impl FnOnce() -> Duration) {
        if self.next_allowed == Millis::NEVER && largest >= self.base {
            self.next_allowed = self.after(now, delay());
        }
    }

    /// Registers that a packet of this epoch was opened while the keys of the previous one are kept.
    pub(crate) fn on_packet_opened(&mut self, now: Moment, delay: Duration) {
        if self.forget == Millis::NEVER {
            self.forget = self.after(now, delay);
        }
    }

    /// Returns the time at which the keys of the previous epoch must be forgotten.
    pub(crate) fn forget_at(&self) -> Option<Moment> {
        self.at(self.forget)
    }

    /// Registers that the previous keys were forgotten.
    pub(crate) const fn on_forgotten(&mut self) {
        self.forget = Millis::NEVER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EpochLimits = EpochLimits { packets: 100, interval: Duration::from_secs(60) };
    const DELAY: Duration = Duration::from_millis(300);

    fn ms(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn an_epoch_ends_exactly_at_its_packet_or_age_limit() {
        let mut epoch = KeyEpoch::new(ms(0));
        epoch.on_acked(ms(10), 0, || DELAY);
        for (at, next, is_over) in [
            (400, 99, false),
            (309, 100, false),
            (310, 100, true),
            (59_999, 99, false),
            (60_000, 0, true),
            (60_000, 101, true),
        ] {
            assert_eq!(epoch.is_over(ms(at), next, &LIMITS), is_over, "{at} ms, packet {next}");
        }
    }

    #[test]
    fn without_an_ack_of_the_epoch_the_next_does_not_begin() {
        let mut epoch = KeyEpoch::new(ms(0));
        epoch.begin_next(ms(1_000), 500);
        epoch.on_acked(ms(1_100), 499, || DELAY);
        assert!(!epoch.is_over(ms(100_000), 10_000, &LIMITS), "that was of the epoch before");
        epoch.on_acked(ms(1_200), 500, || DELAY);
        epoch.on_acked(ms(99_900), 501, || DELAY);
        assert!(epoch.is_over(ms(100_000), 10_000, &LIMITS), "the first ack counts");
    }

    #[test]
    fn an_ack_after_months_still_counts() {
        let mut epoch = KeyEpoch::new(ms(0));
        let day = 24 * 60 * 60 * 1_000;
        epoch.on_acked(ms(100 * day), 0, || DELAY);
        assert!(!epoch.is_over(ms(day), 100, &LIMITS) && epoch.is_over(ms(101 * day), 100, &LIMITS));
        assert_eq!(size_of::<KeyEpoch>(), 24, "every connection has one");
    }

    #[test]
    fn an_unconfirmed_key_seals_up_to_its_limit() {
        let mut epoch = KeyEpoch::new(ms(0));
        epoch.begin_next(ms(0), 7);
        for (next, is_exhausted) in [(-1_i64, false), (0, true), (1, true)] {
            let next = (7 + KEY_PACKETS_UNCONFIRMED).saturating_add_signed(next);
            assert_eq!(epoch.is_exhausted(next), is_exhausted, "{next}");
        }
        assert!(epoch.is_unused(7) && !epoch.is_unused(8));
    }

    #[test]
    fn old_keys_are_dropped_some_time_after_the_first_new_packet() {
        let mut epoch = KeyEpoch::new(ms(0));
        assert_eq!(epoch.forget_at(), None);
        epoch.on_packet_opened(ms(50), DELAY);
        epoch.on_packet_opened(ms(60), DELAY);
        assert_eq!(epoch.forget_at(), Some(ms(350)));
        epoch.on_forgotten();
        assert_eq!(epoch.forget_at(), None);
    }
}
