//! Blocks: messages that are encoded once and sent to many peers.
//!
//! A body has no id, so it is the same for every receiver. The connections share a block until none of them needs it.

use std::ops::Range;

use drumfire_wire::{Bodies, ChannelId};

use super::message::{Message, SendOptions};
use crate::convert::saturated;
use crate::limits::MESSAGE_MAX_BYTES;

/// Messages of one channel with the same options, encoded as the bodies of a run (PROTOCOL 8.8, "Run").
/// [`Endpoint::send_block`](crate::Endpoint::send_block) sends them.
///
/// ```
/// use drumfire_proto::MessageBlock;
///
/// let mut block = MessageBlock::new();
/// assert!(block.push(b"one") && block.push(b""));
/// assert_eq!((block.len(), block.payload(0), block.payload(1)), (2, &b"one"[..], &b""[..]));
/// ```
#[derive(Debug, Clone, Default)]
pub struct MessageBlock {
    bodies: Vec<u8>,
    /// The end of each body in `bodies`.
    ends: Vec<u16>,
    /// The length of the longest payload in bytes.
    longest_bytes: usize,
}

/// The channel and the options of all messages of a [`MessageBlock`], as a [`Message`] has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockOptions {
    /// The channel that carries the messages.
    pub channel: ChannelId,
    /// The delivery mode, priority, and lifetime of the messages.
    pub options: SendOptions,
}

impl MessageBlock {
    /// The maximum number of messages of a block.
    pub const MESSAGES_MAX: usize = 256;

    /// The maximum number of bytes of the encoded messages of a block.
    pub const BODIES_MAX_BYTES: usize = 16 * 1_024;

    /// The maximum memory that a block takes, in bytes.
    pub const MEMORY_MAX_BYTES: usize =
        size_of::<Self>() + Self::BODIES_MAX_BYTES + size_of::<u16>() * Self::MESSAGES_MAX;

    /// Creates an empty block, which allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { bodies: Vec::new(), ends: Vec::new(), longest_bytes: 0 }
    }

    /// Returns whether a message may be in a block: it fits into one packet, and its mode has runs.
    #[must_use]
    pub const fn can_hold(message: &Message) -> bool {
        message.options.mode.has_runs() && message.payload.len() <= MESSAGE_MAX_BYTES
    }

    /// Adds a message. Returns false if the block is full, and does not add the message then.
    pub fn push(&mut self, payload: &[u8]) -> bool {
        // A block is bounded in both ways: receivers keep it until they have acknowledged its last message.
        let (used_bytes, body_bytes) = (self.bodies.len(), Bodies::encoded_bytes(payload.len()));
        let end = used_bytes.saturating_add(body_bytes);
        if self.ends.len() == Self::MESSAGES_MAX || end > Self::BODIES_MAX_BYTES {
            return false;
        }
        if self.bodies.capacity() < end {
            // The capacity doubles, but only up to the limit, so that no block takes more memory than it may.
            let capacity = end.max(used_bytes.saturating_mul(2)).min(Self::BODIES_MAX_BYTES);
            self.bodies.reserve_exact(capacity.saturating_sub(used_bytes));
        }
        Bodies::put(payload, &mut self.bodies);
        self.ends.push(saturated(end, u16::MAX));
        self.longest_bytes = self.longest_bytes.max(payload.len());
        true
    }

    /// Returns the number of messages.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no messages.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the payload of the message with this index. Empty if there is no such message.
    #[must_use]
    pub fn payload(&self, index: usize) -> &[u8] {
        let bodies = self.bodies.get(self.start_of(index)..).unwrap_or_default();
        Bodies::split_first(bodies).map(|(payload, _)| payload).unwrap_or_default()
    }

    /// Returns all encoded messages.
    pub(crate) fn bodies(&self) -> &[u8] {
        &self.bodies
    }

    /// The length of the longest payload in bytes.
    pub(crate) const fn longest_bytes(&self) -> usize {
        self.longest_bytes
    }

    /// The offset of the body with this index, or the end of the last one if there is no such body.
    pub(crate) fn start_of(&self, index: usize) -> usize {
        // A body begins where the one before it ends.
        index
            .checked_sub(1)
            .map_or(0, |before| self.ends.get(before).map_or(self.bodies.len(), |end| (*end).into()))
    }

    /// Returns the sum of the lengths of these payloads in bytes.
    pub(crate) fn payload_bytes(&self, range: &Range<usize>) -> usize {
        let bytes = self.start_of(range.end).saturating_sub(self.start_of(range.start));
        // Each body has a length field. The field of a short payload has one byte, so blocks of short messages, which are most,
        // need no look at their bodies.
        let two_byte_fields =
            if Bodies::encoded_bytes(self.longest_bytes) > self.longest_bytes.saturating_add(1) {
                range
                    .clone()
                    .filter(|index| {
                        let payload_bytes = self.payload(*index).len();
                        Bodies::encoded_bytes(payload_bytes) > payload_bytes.saturating_add(1)
                    })
                    .count()
            } else {
                0
            };
        bytes.saturating_sub(range.len()).saturating_sub(two_byte_fields)
    }

    /// Removes all messages, and keeps the memory for others.
    pub fn clear(&mut self) {
        self.bodies.clear();
        self.ends.clear();
        self.longest_bytes = 0;
    }

    /// Returns the memory that the block takes, in bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        let ends_bytes = self.ends.capacity().saturating_mul(size_of::<u16>());
        size_of::<Self>().saturating_add(self.bodies.capacity()).saturating_add(ends_bytes)
    }
}

impl From<&Message> for BlockOptions {
    fn from(message: &Message) -> Self {
        Self { channel: message.channel, options: message.options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Mode;

    #[test]
    fn a_full_block_returns_the_payloads_it_rejects() {
        for (payload_bytes, fitting) in [(0, 256), (62, 256), (63, 256), (64, 252), (127, 128), (1_000, 16)] {
            let (mut block, mut pushed) = (MessageBlock::new(), Vec::new());
            for number in 0..=u16::MAX {
                let payload = number.to_be_bytes().repeat(payload_bytes / 2 + 1)[..payload_bytes].to_vec();
                if !block.push(&payload) {
                    break;
                }
                pushed.push(payload);
                assert!(block.memory_bytes() <= MessageBlock::MEMORY_MAX_BYTES);
            }
            assert_eq!((block.len(), pushed.len()), (fitting, fitting), "{payload_bytes}");
            assert!((0..fitting).all(|index| block.payload(index) == pushed[index]));
            assert_eq!(block.payload_bytes(&(1..fitting)), (fitting - 1) * payload_bytes);
            let before = block.memory_bytes();
            block.clear();
            assert!(block.is_empty() && block.push(b"again"));
            assert_eq!((block.payload(0), block.memory_bytes()), (&b"again"[..], before));
        }
    }

    #[test]
    fn there_is_no_payload_beyond_the_last_one() {
        let mut block = MessageBlock::new();
        assert_eq!(block.payload(0), b"");
        assert!(block.push(b"one") && block.push(b"two"));
        let payloads = [0, 1, 2, 3, 1_000, usize::MAX].map(|index| block.payload(index));
        assert_eq!(payloads, [&b"one"[..], b"two", b"", b"", b"", b""]);
    }

    #[test]
    fn blocks_reject_long_messages_and_modes_without_runs() {
        let can_hold = |mode, bytes| {
            MessageBlock::can_hold(&Message::new(ChannelId(0), vec![0; bytes], SendOptions::new(mode)))
        };
        for (mode, has_runs) in [
            (Mode::Unreliable, true),
            (Mode::UnreliableSequenced, true),
            (Mode::ReliableUnordered, true),
            (Mode::ReliableOrdered, true),
            (Mode::ReliableSequenced, false),
            (Mode::ReliableLatest, false),
        ] {
            assert_eq!(can_hold(mode, MESSAGE_MAX_BYTES), has_runs, "{mode:?}");
            assert!(!can_hold(mode, MESSAGE_MAX_BYTES + 1), "{mode:?}");
        }
    }
}
