//! Time as the core knows it: moments of a clock that somebody else reads.
//!
//! Nothing here or anywhere in the crate asks a clock, and a moment has no meaning beside others of the same
//! origin. Arithmetic saturates: no clock, however wrong, makes it panic.

use std::num::NonZeroU64;
use std::time::Duration;

/// A point on a monotonic clock, in nanoseconds after an origin that the caller chooses. All shards of a
/// server must use the same origin, because they check each other's cookies.
///
/// One that may be missing takes no more memory than one that is there: connections keep many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(NonZeroU64);

impl Moment {
    /// The origin.
    pub const ORIGIN: Self = Self(NonZeroU64::MIN);

    /// The last there is.
    pub(crate) const LAST: Self = Self(NonZeroU64::MAX);

    /// The moment this many nanoseconds after the origin; 584 years fit.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Self::ORIGIN.0.saturating_add(nanos))
    }

    /// Nanoseconds after the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.get().saturating_sub(Self::ORIGIN.0.get())
    }

    /// The moment this much later, at most the last there is.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero when it is not after it.
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

/// A length of time in half the memory of a [`Duration`], for what every connection keeps: nanoseconds, up to 584
/// years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Span(u64);

impl Span {
    pub(crate) const fn new(duration: Duration) -> Self {
        let nanos = duration.as_nanos();
        #[expect(clippy::cast_possible_truncation, reason = "checked in the same line")]
        Self(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 })
    }

    pub(crate) const fn to_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// The moment this much after another, at most the last there is.
    #[inline]
    pub(crate) const fn after(self, moment: Moment) -> Moment {
        Moment(moment.0.saturating_add(self.0))
    }
}

/// What the clocks showed when something happened; the first argument of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// For everything that lasts. The core never goes back with it: an earlier moment than before counts as
    /// the one before.
    pub monotonic: Moment,
    /// Time since 1970, for the expiry of tokens and nothing else.
    pub wall: Duration,
}

/// One of `parts` equal parts of a duration; none of it for no parts.
pub(crate) fn part(duration: Duration, parts: u32) -> Duration {
    duration.checked_div(parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_duration_as_far_as_it_reaches() {
        for duration in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(30)] {
            assert_eq!(Span::new(duration).to_duration(), duration);
        }
        assert_eq!(Span::new(Duration::MAX).to_duration(), Duration::from_nanos(u64::MAX));
        assert_eq!(Span::new(Duration::MAX).after(Moment::ORIGIN), Moment::LAST);
    }

    #[test]
    fn moments_saturate_at_both_ends() {
        let last = Moment::from_nanos(u64::MAX);
        assert_eq!(last.after(Duration::from_nanos(1)), last);
        assert_eq!(Moment::ORIGIN.after(Duration::MAX), last);
        assert_eq!(Moment::ORIGIN.since(last), Duration::ZERO);
        assert_eq!(last.since(Moment::ORIGIN), Duration::from_nanos(u64::MAX - 1));
        assert_eq!(Moment::from_nanos(7).as_nanos(), 7);
        assert_eq!(Moment::from_nanos(1_999_999_999).seconds(), 1);
        assert_eq!(size_of::<Option<Moment>>(), 8);
    }
}
