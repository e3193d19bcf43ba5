//! Time: moments of a clock that the caller reads.
//!
//! Nothing in the crate reads a clock, and only moments of the same origin can be compared. Arithmetic saturates, so
//! that a wrong clock cannot cause a panic.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::convert::{nanos, saturated};

/// A point on a monotonic clock, in nanoseconds after an origin that the caller chooses. All shards of a server must
/// use the same origin, because they check each other's cookies.
///
/// An `Option` of it takes no more memory, which matters because connections store many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(NonZeroU64);

impl Moment {
    /// The first moment. The caller decides to which time of its clock it corresponds.
    pub const ORIGIN: Self = Self(NonZeroU64::MIN);

    /// The last moment.
    #[cfg(test)]
    pub(crate) const LAST: Self = Self(NonZeroU64::MAX);

    /// Returns the moment `nanos` nanoseconds after the origin. The range is 584 years.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Self::ORIGIN.0.saturating_add(nanos))
    }

    /// Returns the number of nanoseconds after the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.get().saturating_sub(Self::ORIGIN.0.get())
    }

    /// Returns the moment `duration` later, or the last moment on overflow.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Returns the time since `earlier`, or zero if this moment is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// Whole seconds after the origin.
    pub(crate) const fn seconds(self) -> u64 {
        self.as_nanos() / 1_000_000_000
    }
}

impl Default for Moment {
    fn default() -> Self {
        Self::ORIGIN
    }
}

/// A duration in a quarter of the memory of [`Duration`], for every connection: whole microseconds, rounded up, of at
/// most 71 minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Micros(u32);

impl Micros {
    /// The shortest duration that is not zero.
    pub(crate) const SHORTEST: Self = Self(1);

    pub(crate) fn new(duration: Duration) -> Self {
        // A 64-bit division by a constant is a multiplication, while a 128-bit division is a function call.
        Self(saturated(nanos(duration).div_ceil(1_000), u32::MAX))
    }

    pub(crate) fn to_duration(self) -> Duration {
        Duration::from_micros(self.0.into())
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        (self.0 as u64).saturating_mul(1_000)
    }

    pub(crate) const fn abs_diff(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }

    /// Returns the average with a new sample that has a weight of one in `PARTS`.
    pub(crate) fn averaged<const PARTS: u32>(self, sample: Self) -> Self {
        let kept = u64::from(self.0).saturating_mul(u64::from(PARTS.saturating_sub(1)));
        let sum = kept.saturating_add(sample.0.into());
        // No average exceeds the larger of the two values, so it fits.
        Self(saturated(sum.div_ceil(u64::from(PARTS)), u32::MAX))
    }
}

/// A duration in whole milliseconds, rounded up, of at most 49 days: the unit of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Millis(u32);

impl Millis {
    /// Represents a missing duration.
    pub(crate) const NEVER: Self = Self(u32::MAX);

    /// The longest that is not [`Self::NEVER`].
    pub(crate) const LONG: Self = Self(u32::MAX - 1);

    pub(crate) const fn new(duration: Duration) -> Self {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        #[expect(clippy::cast_possible_truncation, reason = "checked in the same line")]
        Self(if millis > u32::MAX as u128 { u32::MAX } else { millis as u32 })
    }

    pub(crate) fn to_duration(self) -> Duration {
        Duration::from_millis(self.0.into())
    }

    /// Returns the moment this much after another, or the last moment on overflow.
    #[inline]
    pub(crate) fn after(self, moment: Moment) -> Moment {
        // The way through a `Duration` costs two divisions by constants.
        Moment(moment.0.saturating_add(u64::from(self.0).saturating_mul(1_000_000)))
    }
}

/// The current time, which is the first argument of most functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// The monotonic clock. The core never goes back: an earlier moment than before counts as the previous one.
    pub monotonic: Moment,
    /// The time since the Unix epoch, used only for the expiry of tokens.
    pub wall: Duration,
}

/// Returns one of `parts` equal parts of a duration, or zero for zero parts.
pub(crate) fn part(duration: Duration, parts: u32) -> Duration {
    duration.checked_div(parts).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lengths of time of all magnitudes, and the ends: none, a nanosecond, the most that fits a moment, the most there is.
    pub(crate) fn any_time() -> impl Strategy<Value = Duration> {
        let nanos = (any::<u64>(), 0_u32..64).prop_map(|(nanos, shift)| nanos >> shift);
        let ends = [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(u64::MAX), Duration::MAX];
        prop_oneof![4 => nanos.prop_map(Duration::from_nanos), 1 => prop::sample::select(ends.to_vec())]
    }

    #[test]
    fn short_durations_are_rounded_up_and_bounded() {
        for (nanos, micros, millis) in [(0, 0, 0), (1, 1, 1), (30_000_000_000, 30_000_000, 30_000)] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(Micros::new(duration).to_duration(), Duration::from_micros(micros));
            assert_eq!(Millis::new(duration).to_duration(), Duration::from_millis(millis));
        }
        let longest = (Micros::new(Duration::MAX).to_duration(), Millis::new(Duration::MAX).to_duration());
        assert_eq!(longest, (Duration::from_micros((1 << 32) - 1), Duration::from_millis((1 << 32) - 1)));
        assert_eq!(Millis::new(Duration::from_millis(5)).after(Moment::LAST), Moment::LAST);
    }

    #[test]
    fn moments_saturate_at_both_limits() {
        let last = Moment::from_nanos(u64::MAX);
        assert_eq!(last.after(Duration::from_nanos(1)), last);
        assert_eq!(Moment::ORIGIN.after(Duration::MAX), last);
        assert_eq!(Moment::ORIGIN.since(last), Duration::ZERO);
        assert_eq!(last.since(Moment::ORIGIN), Duration::from_nanos(u64::MAX - 1));
        assert_eq!(Moment::from_nanos(7).as_nanos(), 7);
        assert_eq!(Moment::from_nanos(1_999_999_999).seconds(), 1);
        assert_eq!(size_of::<Option<Moment>>(), 8);
    }

    proptest! {
        #[test]
        fn the_difference_of_two_moments_is_the_added_time(
            start in any_time(), added in any_time(), shorter in any_time(),
        ) {
            let start = Moment::ORIGIN.after(start);
            let end = start.after(added);
            prop_assert_eq!(end.since(start), added.min(Moment::LAST.since(start)));
            prop_assert!(shorter > added || start.after(shorter) <= end);
            prop_assert_eq!(start.since(end), Duration::ZERO);
            prop_assert_eq!(Moment::from_nanos(end.as_nanos()), end);
            // Compact durations are rounded up, by less than one unit, and bounded.
            let [micros, millis] = [Micros::new(added).to_duration(), Millis::new(added).to_duration()];
            let [micro, milli] = [Duration::from_micros(1), Duration::from_millis(1)];
            prop_assert!(micros == micro * u32::MAX || (added <= micros && micros < added + micro));
            prop_assert!(millis == milli * u32::MAX || (added <= millis && millis < added + milli));
        }
    }
}
