//! Why the bytes of an opened packet are not frames.
//!
//! Deliberately few: the peer that sent them holds the keys, so each one ends the connection as a protocol
//! error, and the name is for the log.

use core::fmt;

use crate::varint::VarintError;

/// The packet breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The packet ends inside a frame.
    Truncated,
    /// A varint has too many bytes.
    BadVarint,
    /// The frame's type is not one of this version.
    UnknownFrame,
    /// The channel is above 65,535.
    BadChannel,
    /// A message's id leans on one that is not there, or is beyond the end of u64.
    BadMessageId,
    /// A message comes after one whose id would be below zero.
    BadOrder,
    /// A fragment has no bytes, does not lie inside its message, or is of a message that has none or is too long.
    BadFragment,
    /// A skipped message is longer than any may be.
    BadSkip,
    /// An ack has more ranges than are allowed.
    TooManyAckRanges,
    /// A range of an ack reaches below packet 0.
    BadAckRange,
    /// An ack's delay is beyond all timeouts.
    BadAckDelay,
    /// A close has an unknown code, an application code above u32, or too long a reason.
    BadClose,
    /// The packet has more frames than are allowed.
    TooManyFrames,
}

impl FrameError {
    /// A stable name for counters and logs.
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
            Self::BadMessageId => "the message id cannot be known or is too large",
            Self::BadOrder => "the message comes after an id below zero",
            Self::BadFragment => "the fragment does not fit into a message",
            Self::BadSkip => "the skipped message is too long",
            Self::TooManyAckRanges => "the ack has more than 32 ranges",
            Self::BadAckRange => "an ack range reaches below packet 0",
            Self::BadAckDelay => "the ack delay is beyond all timeouts",
            Self::BadClose => "the close has an unknown code or a field out of bounds",
            Self::TooManyFrames => "the packet has too many frames",
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
