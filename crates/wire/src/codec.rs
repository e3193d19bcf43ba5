//! The cursor that every decoder of this crate reads through, and the errors of encoders and of the decoders of frames.
//!
//! Bytes off the wire never cause an [`EncodeError`].

use core::fmt;

use crate::varint::{self, VarintError};

/// A cursor over borrowed bytes.
///
/// A read that fails leaves the cursor where it was. No read indexes or panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

// Inlined by name, because decoders in other codegen units call these functions once per field.
impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that were not read yet.
    #[inline]
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(array)
    }

    #[inline]
    pub(crate) fn slice(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (slice, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(slice)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, VarintError> {
        let (value, rest) = varint::decode(self.rest)?;
        self.rest = rest;
        Ok(value)
    }

    /// Returns the bytes that were read since `earlier`, which is a copy of this reader from before those reads.
    #[inline]
    pub(crate) fn since(self, earlier: Self) -> &'a [u8] {
        debug_assert!(
            self.rest.len() <= earlier.rest.len(),
            "`earlier` is not an earlier copy of this reader"
        );
        let read_bytes = earlier.rest.len().saturating_sub(self.rest.len());
        earlier.rest.get(..read_bytes).unwrap_or_default()
    }
}

/// The reason why an item was not encoded. The buffer is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodeError {
    /// The buffer has less room than the item needs. Try again with an empty buffer.
    NoRoom {
        /// The encoded length of the whole item in bytes.
        needed_bytes: usize,
    },
    /// An ack frame has no range. It needs at least one.
    NoRanges,
    /// The ranges of an ack frame are not in descending order with at least one missing packet between them.
    RangesOutOfOrder,
    /// A close reason is longer than [`limits::CLOSE_REASON_MAX_BYTES`](crate::limits::CLOSE_REASON_MAX_BYTES).
    ReasonTooLong,
    /// The id of a message's predecessor is not smaller than the message's own id.
    OrderNotBefore,
    /// A fragment is empty, extends past the end of its message, belongs to a message that is too long, or belongs
    /// to a value of a key.
    BadFragment,
    /// A run has no message, more messages than are allowed, ids beyond a `u64`, or a delivery mode that has no runs.
    BadRun,
    /// The Noise message 2 of a Welcome is too short or too long.
    NoiseMessageLength,
}

impl EncodeError {
    /// Returns a stable name for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoRoom { .. } => "no_room",
            Self::NoRanges => "no_ranges",
            Self::RangesOutOfOrder => "ranges_out_of_order",
            Self::ReasonTooLong => "reason_too_long",
            Self::OrderNotBefore => "order_not_before",
            Self::BadFragment => "bad_fragment",
            Self::BadRun => "bad_run",
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
            Self::OrderNotBefore => f.write_str("a message can only follow a message with a smaller id"),
            Self::BadFragment => f.write_str("a fragment must have bytes and lie inside its message"),
            Self::BadRun => f.write_str("a run must have 1 to 512 messages of a mode that has runs"),
            Self::NoiseMessageLength => {
                f.write_str("the Noise message of a Welcome must have 48 to 1191 bytes")
            }
        }
    }
}

impl core::error::Error for EncodeError {}

/// The reason why the bytes of an opened packet are not frames.
///
/// The sender of the packet has the keys, so each of these is a protocol error that closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The packet ends inside a frame.
    Truncated,
    /// A varint is longer than its value needs, or larger than a `u64`.
    BadVarint,
    /// This version does not know the type of the frame.
    UnknownFrame,
    /// The channel is above 65,535.
    BadChannel,
    /// A message omits its id, but no message with an id precedes it in the packet, or the id would exceed a `u64`.
    BadMessageId,
    /// The id of a message's predecessor would be below zero.
    BadOrder,
    /// A fragment is empty, extends past the end of its message, or belongs to a message that is too long.
    BadFragment,
    /// A skipped message is longer than any message can be.
    BadSkip,
    /// An ack has more ranges than are allowed.
    TooManyAckRanges,
    /// A range of an ack extends below packet 0.
    BadAckRange,
    /// The delay of an ack is larger than 16.8 s.
    BadAckDelay,
    /// A close has an unknown code, an application code above `u32`, or too long a reason.
    BadClose,
    /// The packet has more frames than are allowed.
    TooManyFrames,
    /// A run has no message.
    EmptyRun,
    /// The runs of the packet have more messages than are allowed.
    TooManyMessages,
}

impl FrameError {
    /// Returns a stable name for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::BadVarint => "bad_varint",
            Self::UnknownFrame => "unknown_frame",
            Self::BadChannel => "bad_channel",
            Self::BadMessageId => "bad_message_id",
            Self::BadOrder => "bad_order",
            Self::BadFragment => "bad_fragment",
            Self::BadSkip => "bad_skip",
            Self::TooManyAckRanges => "too_many_ack_ranges",
            Self::BadAckRange => "bad_ack_range",
            Self::BadAckDelay => "bad_ack_delay",
            Self::BadClose => "bad_close",
            Self::TooManyFrames => "too_many_frames",
            Self::EmptyRun => "empty_run",
            Self::TooManyMessages => "too_many_messages",
        }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the packet ends inside a frame",
            Self::BadVarint => "a varint has too many bytes",
            Self::UnknownFrame => "the frame type is unknown",
            Self::BadChannel => "the channel is above 65,535",
            Self::BadMessageId => "the message id is missing or too large",
            Self::BadOrder => "the id of the message's predecessor is below zero",
            Self::BadFragment => "the fragment is empty or does not lie inside a message",
            Self::BadSkip => "the skipped message is too long",
            Self::TooManyAckRanges => "the ack has more than 32 ranges",
            Self::BadAckRange => "an ack range reaches below packet 0",
            Self::BadAckDelay => "the ack delay is larger than 16.8 s",
            Self::BadClose => "the close has an unknown code or a field out of bounds",
            Self::TooManyFrames => "the packet has too many frames",
            Self::EmptyRun => "the run has no message",
            Self::TooManyMessages => "the runs of the packet have more than 512 messages",
        })
    }
}

impl core::error::Error for FrameError {}

impl From<VarintError> for FrameError {
    fn from(error: VarintError) -> Self {
        match error {
            VarintError::Truncated => Self::Truncated,
            VarintError::Overlong | VarintError::TooLarge => Self::BadVarint,
        }
    }
}

/// Checks that an item of `needed_bytes` fits into a buffer with `remaining_bytes` of room.
pub(crate) fn check_room(needed_bytes: usize, remaining_bytes: usize) -> Result<(), EncodeError> {
    if needed_bytes <= remaining_bytes { Ok(()) } else { Err(EncodeError::NoRoom { needed_bytes }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_read_does_not_move_the_cursor() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.slice(4), None);
        assert_eq!(reader.array::<4>(), None);
        assert_eq!(reader.rest(), [1, 2, 3]);
        assert_eq!(reader.slice(3), Some(&[1, 2, 3][..]));
        assert_eq!(reader.u8(), None);
        assert_eq!(reader.varint(), Err(VarintError::Truncated));
    }

    #[test]
    fn since_returns_exactly_the_bytes_that_were_read() {
        let mut reader = Reader::new(&[1, 2, 3]);
        let before = reader;
        assert_eq!(reader.since(before), [0u8; 0]);
        reader.u8();
        assert_eq!(reader.array::<1>(), Some(&[2]));
        assert_eq!(reader.since(before), [1, 2]);
    }
}
