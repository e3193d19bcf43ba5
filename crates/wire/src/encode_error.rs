//! Why something could not be encoded: the caller's side of this crate's errors.
//!
//! Deliberately not about bytes off the wire; those fail with the error of what was being decoded.

use core::fmt;

/// Nothing was written, for this reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodeError {
    /// The buffer has less room than this many bytes. Try again with an empty one.
    NoRoom {
        /// Bytes the whole item takes.
        needed_bytes: usize,
    },
    /// An ack frame needs at least one range.
    NoRanges,
    /// Ack ranges must come newest first, with at least one missing packet between them.
    RangesOutOfOrder,
    /// A close reason is longer than [`limits::CLOSE_REASON_MAX_BYTES`](crate::limits::CLOSE_REASON_MAX_BYTES).
    ReasonTooLong,
    /// A message can only come after one with a smaller id.
    OrderNotBefore,
    /// A fragment must have bytes and lie inside its message, which is not a value's and not too long.
    BadFragment,
    /// A Noise message 2 is outside what a Welcome can carry.
    NoiseMessageLength,
}

impl EncodeError {
    /// A stable name for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoRoom { .. } => "no_room",
            Self::NoRanges => "no_ranges",
            Self::RangesOutOfOrder => "ranges_out_of_order",
            Self::ReasonTooLong => "reason_too_long",
            Self::OrderNotBefore => "order_not_before",
            Self::BadFragment => "bad_fragment",
            Self::NoiseMessageLength => "noise_message_length",
        }
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom { needed_bytes } => write!(f, "the buffer has no room for {needed_bytes} bytes"),
            Self::NoRanges => f.write_str("an ack needs at least one range"),
            Self::RangesOutOfOrder => f.write_str("ack ranges must descend, with a gap between them"),
            Self::ReasonTooLong => f.write_str("the close reason is longer than 128 bytes"),
            Self::OrderNotBefore => f.write_str("a message can only come after one with a smaller id"),
            Self::BadFragment => f.write_str("a fragment has bytes and lies inside its message"),
            Self::NoiseMessageLength => f.write_str("a Welcome carries a Noise message of 48 to 1191 bytes"),
        }
    }
}

impl core::error::Error for EncodeError {}

/// Whether `needed_bytes` fit where `remaining_bytes` are left.
pub(crate) fn check_room(needed_bytes: usize, remaining_bytes: usize) -> Result<(), EncodeError> {
    if needed_bytes <= remaining_bytes { Ok(()) } else { Err(EncodeError::NoRoom { needed_bytes }) }
}
