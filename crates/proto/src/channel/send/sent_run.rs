//! A run of sent messages: consecutive ids of one channel and mode that travel, arrive, and are lost together.

use bytes::{BufMut, Bytes};
use drumfire_wire::{Bodies, ChannelId, Delivery, FrameWriter, Message, MessageId, varint};

use super::chunks::BodyRange;
use super::fragments::FragmentFates;
use super::segment::Segment;
use crate::convert::{saturated, to_u64, to_usize};
use crate::event::charge_all;
use crate::time::Moment;

/// The bits of a fate id that hold the length of a run, which has at most 512 messages.
const COUNT_BITS: u32 = 9;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

const _: () = assert!(
    drumfire_wire::limits::PACKET_RUN_MESSAGES_MAX as u64 == 1 << COUNT_BITS,
    "the length of a run does not fit its bits"
);

/// Messages with consecutive ids, from the first transmission until they are acknowledged. A message that is alone is a
/// run of one.
#[derive(Debug)]
pub(super) struct SentRun {
    // The messages
    /// The ids.
    pub(super) ids: RunIds,
    /// The channel of all messages.
    pub(super) channel: ChannelId,
    /// The payloads, or the Skips that replace them.
    pub(super) content: RunBodies,
    /// The sum of the lengths of the payloads in bytes, also after the payloads were released.
    pub(super) payload_bytes: u32,
    /// The end of the lifetime, which all messages share. `None` without a lifetime.
    pub(super) deadline: Option<Moment>,
    /// The delivery order of the first message. Each further message of an ordered run follows the one before it.
    pub(super) order: Order,
    /// The class of priority, in which lost messages are sent again.
    pub(super) class: u8,

    // Their fate
    /// Whether the messages are in flight.
    pub(super) state: RunState,
    /// The last packet with the messages.
    pub(super) packet: u64,
    /// The fate of the fragments. `None` for a run that is not a fragmented message.
    pub(super) fragments: Option<Box<FragmentFates>>,
    /// The number of copies for redundancy that are still to be sent.
    pub(super) copies_left: u8,
}

/// The ids of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunIds {
    /// The first id.
    pub(super) first: u64,
    /// The number of ids, 1 to 512.
    pub(super) count: u16,
}

/// The payloads of a run, or the Skips that replace them.
#[derive(Debug)]
pub(super) enum RunBodies {
    /// The payload of a single message, shared with the application.
    Message(Bytes),
    /// The bodies of messages that were sent as a run. After a split there may be one.
    Bodies(BodyRange),
    /// The messages were given up. The lengths of their payloads as varints are sent instead, if there are several.
    GivenUp(Box<[u8]>),
    /// The messages have arrived.
    Nothing,
}

/// The delivery order of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The order has no constraint.
    Unordered,
    /// The order needs no constraint, because the channel has one message in flight at a time.
    Sequenced,
    /// The message follows the message with this id, if there is one.
    After(Option<u64>),
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunState {
    /// The run is in a packet whose fate is not known. Parts of a fragmented message may still wait to be sent.
    InFlight,
    /// The run must be sent again. Its first id is in a list of lost runs.
    Lost,
    /// The run was acknowledged. The record is kept until it is the oldest, or until many others have arrived too.
    Acknowledged,
}

/// The longest part of a run that fits a frame, counted message by message.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunFrame {
    /// The number of messages that fit.
    pub(super) count: u16,
    /// The length in bytes of their bodies, or of their lengths in a Skip run.
    pub(super) body_bytes: usize,
    /// The sum of the lengths of their payloads in bytes.
    pub(super) payload_bytes: usize,
    /// The bytes of the packet for the number of messages and the bodies.
    room_bytes: usize,
    /// The number of messages that may be added.
    count_max: u16,
}

/// The limits of a run besides the room in its packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunLimits {
    /// The number of ids that may be assigned.
    pub(super) id_count: u64,
    /// The bytes of payloads and of a length for each that the queue may send in its turn.
    pub(super) turn_bytes: usize,
    /// The peer's credit in bytes.
    pub(super) charge_bytes: usize,
}

impl RunIds {
    /// The id behind the last one.
    pub(super) fn end(self) -> u64 {
        self.first.saturating_add(self.count.into())
    }

    /// Returns the id by which the fate of a packet with the run is reported. The ids survive a split of the run, so
    /// that `loss` needs no other key.
    pub(super) fn fate_id(self) -> MessageId {
        debug_assert!(self.count > 0, "a run without messages is sent");
        // No connection lives long enough to use the ids that do not fit. Fragments, values, and receipts have fate ids in
        // other ranges.
        MessageId(self.first << COUNT_BITS | u64::from(self.count.wrapping_sub(1)) & COUNT_MASK)
    }

    /// Returns the ids that [`Self::fate_id`] was made of.
    pub(super) fn from_fate_id(id: MessageId) -> Self {
        let count = u16::try_from(id.0 & COUNT_MASK).unwrap_or(u16::MAX).saturating_add(1);
        Self { first: id.0 >> COUNT_BITS, count }
    }
}

impl Order {
    /// Returns the order as the wire carries it. All messages below `base` have arrived.
    pub(super) fn delivery(self, id: u64, base: u64) -> Delivery {
        let after = self.after(base);
        let id = MessageId(id);
        match self {
            Self::Unordered => Delivery::ReliableUnordered { id },
            Self::Sequenced => Delivery::ReliableSequenced { id },
            Self::After(_) => Delivery::ReliableOrdered { id, after },
        }
    }

    /// Returns the message that must be delivered before, as the wire names it.
    pub(super) fn after(self, base: u64) -> Option<MessageId> {
        // The direct predecessor is named whether or not it has arrived. A shorter encoding says that it and all before
        // it have arrived.
        let Self::After(before) = self else { return None };
        before.filter(|before| *before >= base).map(MessageId)
    }
}

impl SentRun {
    /// Whether Skips are sent instead of the messages.
    pub(super) const fn is_given_up(&self) -> bool {
        matches!(self.content, RunBodies::GivenUp(_))
    }

    /// The send memory that the messages take, in bytes.
    pub(super) fn charge(&self) -> usize {
        // Skips stay charged until they are acknowledged, without the payloads.
        let payload_bytes = if self.is_given_up() { 0 } else { to_usize(self.payload_bytes) };
        charge_all(self.ids.count, payload_bytes)
    }
}

impl RunFrame {
    /// Creates an empty part for a frame that has `room_bytes` bytes behind its fixed fields.
    pub(super) const fn new(room_bytes: usize, count_max: u16) -> Self {
        Self { count: 0, body_bytes: 0, payload_bytes: 0, room_bytes, count_max }
    }

    /// Returns a part that was measured before.
    pub(super) const fn of(count: u16, body_bytes: usize, payload_bytes: usize) -> Self {
        Self { count, body_bytes, payload_bytes, room_bytes: body_bytes, count_max: count }
    }

    /// Creates an empty part for the frame of a run that begins like the message `head`, which has no payload.
    pub(super) fn behind<B: BufMut>(writer: &FrameWriter<B>, head: &Message<'_>) -> Option<Self> {
        debug_assert!(head.payload.is_empty(), "the payload is no part of the fixed fields");
        // An empty message has one byte more than these fields, for its length.
        let head_bytes = writer.message_bytes(head).ok()?.checked_sub(1)?;
        let room_bytes = writer.remaining_bytes().saturating_sub(head_bytes);
        Some(Self::new(room_bytes, writer.run_messages_left()))
    }

    /// Adds a message, if it fits.
    pub(super) fn take(&mut self, body_bytes: usize, payload_bytes: usize) -> bool {
        let count = self.count.saturating_add(1);
        let body_bytes = self.body_bytes.saturating_add(body_bytes);
        if !self.has_room(count, body_bytes) {
            return false;
        }
        (self.count, self.body_bytes) = (count, body_bytes);
        self.payload_bytes = self.payload_bytes.saturating_add(payload_bytes);
        true
    }

    /// Adds messages from the front of a segment, as far as the limits allow. The first message has its turn.
    pub(super) fn take_segment(&mut self, segment: &Segment, bodies: &[u8], limits: &RunLimits) {
        let is_within = |count: u16, payload_bytes: usize| {
            charge_all(count, payload_bytes) <= limits.charge_bytes
                && (count == 1 || payload_bytes.saturating_add(count.into()) <= limits.turn_bytes)
        };
        // A packet that has no more runs may still have single messages.
        self.count_max = self.count_max.max(1).min(saturated(limits.id_count, u16::MAX));
        // A segment that fits whole is not read. Otherwise the lengths of its bodies show where it is cut.
        let whole = segment.whole();
        if is_within(whole.count, whole.payload_bytes) && self.has_room(whole.count, whole.body_bytes) {
            (self.count, self.body_bytes, self.payload_bytes) =
                (whole.count, whole.body_bytes, whole.payload_bytes);
            return;
        }
        let mut left = bodies;
        while let Some((payload, rest)) = Bodies::split_first(left)
            && is_within(self.count.saturating_add(1), self.payload_bytes.saturating_add(payload.len()))
            && self.take(left.len().saturating_sub(rest.len()), payload.len())
        {
            left = rest;
        }
    }

    /// Whether `count` messages with bodies of this length fit.
    fn has_room(&self, count: u16, body_bytes: usize) -> bool {
        // A single message has no count.
        let count_bytes = match count {
            1 => 0,
            2..128 => 1,
            _ => 2,
        };
        count <= self.count_max && body_bytes.saturating_add(count_bytes) <= self.room_bytes
    }

    /// Adds messages from the front of these bodies.
    pub(super) fn take_bodies(&mut self, bodies: &[u8]) {
        let mut left = bodies;
        while let Some((payload, rest)) = Bodies::split_first(left)
            && self.take(left.len().saturating_sub(rest.len()), payload.len())
        {
            left = rest;
        }
    }

    /// Adds given-up messages from the front of these lengths.
    pub(super) fn take_lengths(&mut self, lengths: &[u8]) {
        let mut left = lengths;
        while let Ok((length, rest)) = varint::decode(left)
            && self.take(left.len().saturating_sub(rest.len()), usize::try_from(length).unwrap_or(usize::MAX))
        {
            left = rest;
        }
    }
}

/// Returns the lengths of the payloads of these bodies as varints, for a Skip run.
pub(super) fn lengths_of(bodies: &[u8]) -> Box<[u8]> {
    // This allocates, but only for messages whose lifetime ended after they were lost.
    let (mut left, mut lengths) = (bodies, Vec::new());
    while let Some((payload, rest)) = Bodies::split_first(left) {
        let encoded = varint::encode(to_u64(payload.len()), &mut lengths);
        debug_assert!(encoded.is_ok(), "a vector has no room: {encoded:?}");
        left = rest;
    }
    lengths.into()
}
