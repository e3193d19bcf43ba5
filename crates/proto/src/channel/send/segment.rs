//! Messages that wait to be sent: one with its own payload, or a segment of several whose bodies are encoded already.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_wire::{ChannelId, Delivery, Message, MessageId};

use super::charge;
use super::chunks::{BodyChunks, BodyRange};
use super::sent_run::RunFrame;
use crate::channel::Mode;
use crate::channel::block::MessageBlock;
use crate::channel::receipt::ReceiptId;
use crate::convert::{saturated, to_usize};
use crate::event::charge_all;
use crate::limits::{MESSAGE_MAX_BYTES, REDUNDANT_MAX_BYTES};
use crate::time::Moment;

/// The length in bytes of the shortest payload that is never part of a segment. Few such messages fit a packet, and their
/// payloads are better shared with the application than copied.
const SINGLE_MIN_BYTES: usize = 512;

/// The time within which the messages of a segment are queued. A segment is as old as its first message, so the times in
/// statistics are exact to this duration.
const SEGMENT_SPAN_MAX: Duration = Duration::from_millis(10);

/// The maximum number of bytes that count against a queue in one step: the longest message that is sent whole.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it is less than a datagram, and a constant cannot be converted otherwise"
)]
const TURN_MAX_BYTES: u32 = MESSAGE_MAX_BYTES as u32;

/// A message with its own payload that is added to a queue or removed from it.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    /// The channel.
    pub(super) channel: ChannelId,
    /// The delivery mode.
    pub(super) mode: Mode,
    /// The content.
    pub(super) payload: Bytes,
    /// The time at which the application sent the message.
    pub(super) queued_at: Moment,
    /// The properties that most messages do not have.
    pub(super) extras: ExtraFields,
}

/// An entry of a queue: a message with its own payload, or a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueEntry<'a> {
    pub(super) channel: ChannelId,
    pub(super) mode: Mode,
    pub(super) content: &'a QueuedBodies,
    /// The time at which the first message was queued.
    pub(super) queued_at: Moment,
    /// The properties of the single message, or the lifetime that all messages of a segment share.
    pub(super) extras: &'a ExtraFields,
}

/// A message with its own payload in its queue, with the fields of [`QueuedMessage`].
#[derive(Debug, Clone, Copy)]
pub(super) struct SingleEntry<'a> {
    pub(super) channel: ChannelId,
    pub(super) mode: Mode,
    pub(super) payload: &'a Bytes,
    pub(super) queued_at: Moment,
    pub(super) extras: &'a ExtraFields,
}

/// A message or a whole segment that is added to a queue or removed from it.
#[derive(Debug)]
pub(super) struct QueuedEntry {
    pub(super) channel: ChannelId,
    pub(super) mode: Mode,
    pub(super) content: QueuedBodies,
    pub(super) queued_at: Moment,
    pub(super) extras: ExtraFields,
}

/// The messages of one entry of a queue.
#[derive(Debug)]
pub(super) enum QueuedBodies {
    /// A message with its own payload.
    Single(Bytes),
    /// Several messages, or the rest of them.
    Segment(Segment),
}

/// Messages of one channel and one mode that were queued one after the other, and that expire together.
#[derive(Debug)]
pub(super) struct Segment {
    /// The encoded bodies.
    pub(super) bodies: BodyRange,
    /// The sum of the lengths of the payloads in bytes.
    pub(super) payload_bytes: u32,
    /// The number of messages, at least one.
    pub(super) count: u16,
    /// The length of the first payload in bytes.
    pub(super) first_bytes: u16,
    /// All messages have receipts. Otherwise no message has one.
    pub(super) has_receipts: bool,
    /// A message is too long to be repeated for redundancy.
    pub(super) has_long: bool,
}

/// Properties that most messages do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExtraFields {
    /// The time at which the message is given up. `None` for a message without a lifetime.
    pub(super) deadline: Option<Moment>,
    /// The receipt that reports the fate of the message. `None` without one, and after its outcome was reported.
    pub(super) receipt: Option<ReceiptId>,
    /// The key of a ReliableLatest value, and 0 in other modes.
    pub(super) key: u64,
    /// The version of a ReliableLatest value. `None` for a value that was not sent before, and in other modes.
    pub(super) version: Option<u64>,
    /// The progress of a fragmented message. `None` for a message that is not, or not yet, fragmented.
    pub(super) progress: Option<Progress>,
}

/// The progress of a fragmented message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// The message id, or the fragment number of an unreliable message.
    pub(super) number: u64,
    /// The number of bytes that were written into packets. The next fragment begins behind them.
    pub(super) sent_bytes: u32,
    /// The id by which the fate of an unreliable message is reported. `None` for a message without a receipt.
    pub(super) receipt: Option<MessageId>,
}

impl ExtraFields {
    pub(super) const NONE: Self =
        Self { deadline: None, receipt: None, key: 0, version: None, progress: None };

    /// Whether the lifetime has ended.
    pub(super) fn is_expired(&self, now: Moment) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl QueuedBodies {
    /// The size of the next part to be sent, at most. `extras` are those of the message.
    #[inline]
    pub(super) fn next_bytes(&self, extras: &ExtraFields) -> u32 {
        match self {
            Self::Segment(segment) => turn_bytes(1, segment.first_bytes.into()),
            Self::Single(payload) => {
                // A turn costs what one packet carries, so a long message does not save up credit for all of its bytes.
                let sent = extras.progress.map_or(0, |progress| progress.sent_bytes);
                let left = saturated::<u32, _>(payload.len(), u32::MAX).saturating_sub(sent);
                turn_bytes(1, left).min(TURN_MAX_BYTES)
            }
        }
    }
}

impl Segment {
    /// Creates a segment of the messages with these payloads, whose bodies were added together.
    pub(super) fn new(bodies: BodyRange, payloads: [&[u8]; 2], has_receipts: bool) -> Self {
        // The sums are kept here, so that a whole segment fits a packet, expires, or is charged without a look at its bodies.
        let payload_bytes = payloads.into_iter().map(<[u8]>::len).sum::<usize>();
        let [first, _] = payloads;
        Self {
            bodies,
            payload_bytes: saturated(payload_bytes, u32::MAX),
            count: 2,
            first_bytes: saturated(first.len(), u16::MAX),
            has_receipts,
            has_long: payloads.into_iter().any(is_long),
        }
    }

    /// Creates a segment of these messages of a block. `None` if there are none.
    pub(super) fn of_block(block: &Arc<MessageBlock>, range: &Range<usize>) -> Option<Self> {
        // An empty segment would have its turn forever. The sums of the block cover several messages, so that no message is
        // visited.
        let count = u16::try_from(range.len()).ok().filter(|count| *count > 0)?;
        Some(Self {
            bodies: BodyRange::of_block(block, range),
            payload_bytes: saturated(block.payload_bytes(range), u32::MAX),
            count,
            first_bytes: saturated(block.payload(range.start).len(), u16::MAX),
            has_receipts: false,
            has_long: block.longest_bytes() > REDUNDANT_MAX_BYTES,
        })
    }

    /// Counts a message whose body was added at the end.
    pub(super) fn on_extended(&mut self, payload: &[u8]) {
        self.payload_bytes = self.payload_bytes.saturating_add(saturated(payload.len(), u32::MAX));
        self.count = self.count.saturating_add(1);
        self.has_long |= is_long(payload);
    }

    /// All messages, as a part of the segment.
    pub(super) const fn whole(&self) -> RunFrame {
        RunFrame::of(self.count, to_usize(self.bodies.bytes()), to_usize(self.payload_bytes))
    }

    /// The first message, as a part of the segment.
    pub(super) fn first(&self) -> RunFrame {
        let payload_bytes = usize::from(self.first_bytes);
        RunFrame::of(1, drumfire_wire::Bodies::encoded_bytes(payload_bytes), payload_bytes)
    }

    /// Splits the first messages off, which are not all. Returns their bodies.
    pub(super) fn split_first(&mut self, part: &RunFrame, chunks: &mut BodyChunks) -> BodyRange {
        debug_assert!(part.count < self.count, "{part:?} is not a part of {self:?}");
        // Nothing is copied: both parts refer to the same memory. The length of the next message decides when the queue has
        // its turn again, so it is read here, while the bodies are in the cache.
        let first = chunks.split_first(&mut self.bodies, part.body_bytes);
        self.count = self.count.saturating_sub(part.count);
        self.payload_bytes = self.payload_bytes.saturating_sub(saturated(part.payload_bytes, u32::MAX));
        let next = drumfire_wire::Bodies::split_first(chunks.bodies(&self.bodies));
        debug_assert!(next.is_some(), "{self:?} has no message");
        self.first_bytes = saturated(next.map_or(0, |(payload, _)| payload.len()), u16::MAX);
        first
    }
}

impl From<QueuedMessage> for QueuedEntry {
    fn from(message: QueuedMessage) -> Self {
        let QueuedMessage { channel, mode, payload, queued_at, extras } = message;
        Self { channel, mode, content: QueuedBodies::Single(payload), queued_at, extras }
    }
}

/// Returns the bytes that messages count in the turn of their queue: their payloads, and a byte for the length of each. A
/// queue of empty messages would otherwise keep its turn until all of them are sent.
#[inline]
pub(super) fn turn_bytes(count: u16, payload_bytes: u32) -> u32 {
    payload_bytes.saturating_add(count.into())
}

/// Whether a message is too long to be repeated for redundancy.
const fn is_long(payload: &[u8]) -> bool {
    payload.len() > REDUNDANT_MAX_BYTES
}

impl QueuedMessage {
    /// Whether the message can follow others in a segment.
    #[inline]
    pub(super) fn can_be_in_segment(&self) -> bool {
        self.mode.has_runs() && self.payload.len() < SINGLE_MIN_BYTES
    }

    /// Whether the message can be in a segment with those of `last`, which the queue ends with. `has_copies` means that
    /// short messages are repeated, and long ones are not.
    pub(super) fn can_join(&self, last: QueueEntry<'_>, has_copies: bool) -> bool {
        let (has_room, has_receipts, has_long) = match last.content {
            QueuedBodies::Single(payload) => {
                // The fragments of a message that has begun are written from its payload.
                let has_room = payload.len() < SINGLE_MIN_BYTES && last.extras.progress.is_none();
                (has_room, last.extras.receipt.is_some(), is_long(payload))
            }
            QueuedBodies::Segment(segment) => {
                (segment.count < u16::MAX, segment.has_receipts, segment.has_long)
            }
        };
        has_room
            && self.mode == last.mode
            // Messages of other modes take their ids from the same sequence, and a run has consecutive ids. A message that has
            // a longer lifetime must not be skipped with the others.
            && self.extras.deadline == last.extras.deadline
            && self.extras.receipt.is_some() == has_receipts
            && self.queued_at.since(last.queued_at) < SEGMENT_SPAN_MAX
            && (!has_copies || is_long(&self.payload) == has_long)
    }
}

/// Returns an unreliable mode as the wire carries it.
pub(super) const fn unreliable_delivery(mode: Mode) -> Delivery {
    if matches!(mode, Mode::UnreliableSequenced) {
        Delivery::UnreliableSequenced
    } else {
        Delivery::Unreliable
    }
}

impl<'a> QueueEntry<'a> {
    /// The message, if it has its own payload.
    #[inline]
    pub(super) const fn single(self) -> Option<SingleEntry<'a>> {
        let Self { channel, mode, content, queued_at, extras } = self;
        let QueuedBodies::Single(payload) = content else { return None };
        Some(SingleEntry { channel, mode, payload, queued_at, extras })
    }

    /// The send memory that the message or messages take, in bytes.
    pub(super) fn charge(self) -> usize {
        match self.content {
            QueuedBodies::Segment(segment) => charge_all(segment.count, to_usize(segment.payload_bytes)),
            QueuedBodies::Single(payload) => charge(payload.len()),
        }
    }

    /// The size of the next part to be sent, at most.
    #[inline]
    pub(super) fn next_bytes(self) -> u32 {
        self.content.next_bytes(self.extras)
    }
}

impl QueuedEntry {
    /// Returns the message, if it has its own payload.
    #[inline]
    pub(super) fn into_message(self) -> Option<QueuedMessage> {
        let Self { channel, mode, content, queued_at, extras } = self;
        let QueuedBodies::Single(payload) = content else { return None };
        Some(QueuedMessage { channel, mode, payload, queued_at, extras })
    }
}

impl<'a> SingleEntry<'a> {
    /// The length of the whole payload in bytes.
    pub(super) fn total_bytes(&self) -> u32 {
        // The endpoint refuses messages of more than 16 MiB before they are queued.
        debug_assert!(u32::try_from(self.payload.len()).is_ok(), "{} bytes are queued", self.payload.len());
        saturated(self.payload.len(), u32::MAX)
    }

    /// Returns an unreliable message as it would be sent whole.
    pub(super) fn unreliable_message(self) -> Message<'a> {
        Message { channel: self.channel, delivery: unreliable_delivery(self.mode), payload: self.payload }
    }
}
