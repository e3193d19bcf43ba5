//! Conversions between integer types.
//!
//! Counts are 64 bits wide in statistics and in arithmetic with packet numbers, and 32 bits wide where many are stored.
//! The functions here keep the width of a `usize` out of all other modules.

use std::time::Duration;

// A `u32` fits a `usize`, and a `usize` fits a `u64`, so neither conversion below can lose bits.
const _: () =
    assert!(usize::BITS >= u32::BITS && usize::BITS <= u64::BITS, "addresses have an unknown width");

/// Converts an index or a size that is stored in 32 bits.
#[inline]
pub(crate) const fn to_usize(value: u32) -> usize {
    value as usize
}

/// Converts a count or a size of memory.
#[inline]
pub(crate) const fn to_u64(value: usize) -> u64 {
    value as u64
}

/// Converts a number to a smaller type, or returns `most` when the number does not fit. For statistics, and for limits
/// that a larger number exceeds in any case.
#[inline]
pub(crate) fn saturated<T: TryFrom<N>, N>(value: N, most: T) -> T {
    T::try_from(value).unwrap_or(most)
}

/// Returns a duration in nanoseconds, at most 584 years.
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    saturated(duration.as_nanos(), u64::MAX)
}
