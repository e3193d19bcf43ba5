//! Validates an opened packet as a whole, and checks whether there is room for its contents, before anything is
//! changed.
//!
//! This pass changes no state of the connection, so that a refused packet has no effect.

use std::mem::{Discriminant, discriminant};

use drumfire_wire::{
    ChannelId, Delivery, Fragment, Frame, FrameError, FrameKinds, Frames, Message, MessageId, Run, SkipRun,
};

use super::Connection;
use crate::acks::AckUrgency;
use crate::channel::receive::{FragmentCheck, IdRange, MessageShape};
use crate::convert::{saturated, to_usize};
use crate::error::ProtocolError;
use crate::event::{Events, charge, charge_all};
use crate::limits::{UNRELIABLE_MESSAGE_MAX_BYTES, VALUE_MAX_BYTES};

/// Most packets have no more frames than this, and are parsed only once.
const FEW_FRAMES: usize = 2;

/// The contents of a packet before it is applied.
#[derive(Debug, Default)]
pub(super) struct ValidatedPacket<'a> {
    /// The frames, when there are at most `FEW_FRAMES`.
    few: [Option<Frame<'a>>; FEW_FRAMES],
    /// The number of all frames.
    pub(super) frame_count: usize,
    /// The kinds of all frames.
    pub(super) kinds: FrameKinds,

    // The ack
    /// The urgency of the most urgent frame. `None` when no frame is ack-eliciting.
    pub(super) urgency: Option<AckUrgency>,
    /// Whether the peer requests the ack immediately.
    pub(super) requests_ack_now: bool,

    // Memory
    /// Charges of unreliable messages in bytes. These messages are dropped when there is no room.
    pub(super) unreliable_bytes: usize,
    /// The first packet of the newest unreliable message that this packet is the first to bring. `None` when there is
    /// no such message.
    pub(super) newest_unreliable: Option<u64>,
    /// Charges of ReliableLatest values in bytes.
    pub(super) value_bytes: usize,
    /// Charges of all events that the packet may cause, in bytes.
    pub(super) event_bytes: usize,
    /// The number of ReliableLatest values.
    pub(super) value_count: usize,
    /// The number of values among them whose key is not known yet.
    pub(super) new_keys: usize,

    // The verdict
    /// The reason for which the packet cannot be accepted. `None` when all of its frames agree with each other.
    pub(super) refused: Option<FragmentCheck>,
}

/// The part of a packet for which there is room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketRoom {
    /// There is room for all of the packet.
    All,
    /// There is room for everything except the unreliable messages.
    Reliable,
    None,
}

impl<'a> ValidatedPacket<'a> {
    /// Iterates over the frames of `payload`, which were validated.
    pub(super) fn frames(&self, payload: &'a [u8]) -> impl Iterator<Item = Frame<'a>> {
        let are_few = self.frame_count <= FEW_FRAMES;
        let (few, payload) = if are_few { (&self.few[..], &[][..]) } else { (&[][..], payload) };
        let (mut few, mut others) = (few.iter(), Frames::new(payload));
        std::iter::from_fn(move || {
            few.next().copied().unwrap_or_else(|| {
                let frame = others.next()?;
                debug_assert!(frame.is_ok(), "a frame was valid once, and now is not: {frame:?}");
                frame.ok()
            })
        })
    }
}

impl Connection {
    /// Validates all frames of packet `number` without applying them.
    pub(super) fn validate<'a>(
        &mut self,
        number: u64,
        frames: &'a [u8],
    ) -> Result<ValidatedPacket<'a>, ProtocolError> {
        let contents = self.validate_frames(number, frames);
        self.receiving.end_validation();
        contents
    }

    /// Validates as [`Self::validate`] does, except that the totals of the packet's fragments are left behind.
    fn validate_frames<'a>(
        &mut self,
        number: u64,
        frames: &'a [u8],
    ) -> Result<ValidatedPacket<'a>, ProtocolError> {
        let mut contents = ValidatedPacket::default();
        for frame in Frames::new(frames) {
            let frame = frame.map_err(ProtocolError::Frame)?;
            if let Some(place) = contents.few.get_mut(contents.frame_count) {
                *place = Some(frame);
            }
            contents.frame_count = contents.frame_count.saturating_add(1);
            // The work for one ack is bounded. Several acks in one packet would multiply it.
            if matches!(frame, Frame::Ack(_)) && contents.kinds.has(FrameKinds::ACK) {
                return Err(ProtocolError::SecondAck);
            }
            contents.kinds = contents.kinds.with(frame.kind());
            // Frames that must arrive are ack-eliciting. An ack of acks alone would never end (RFC 9000 section 13.2.1).
            let urgency = match frame {
                Frame::Message(message) => self.validate_message(number, &message, &mut contents)?,
                Frame::Fragment(fragment) => self.validate_fragment(number, &fragment, &mut contents)?,
                Frame::Skip(skip) => {
                    contents.event_bytes = contents.event_bytes.saturating_add(charge(0));
                    self.check_id(skip.id)?;
                    let shape = MessageShape { channel: skip.channel, mode: None, total_bytes: skip.bytes };
                    self.compare_with_fragments(skip.id, &shape, &mut contents);
                    AckUrgency::High
                }
                Frame::Run(run) => self.validate_run(number, &run, &mut contents)?,
                Frame::SkipRun(skip) => self.validate_skip_run(&skip, &mut contents)?,
                Frame::Ping
                | Frame::Credit(_)
                | Frame::NewConnectionId(_)
                | Frame::RetireConnectionId(_)
                | Frame::ResumeToken(_) => AckUrgency::Low,
                Frame::AckRequest => {
                    contents.requests_ack_now = true;
                    AckUrgency::Low
                }
                Frame::Ack(_)
                | Frame::Close(_)
                | Frame::Timestamp(_)
                | Frame::Padding { .. }
                | Frame::PathChallenge(_)
                | Frame::PathResponse(_) => continue,
            };
            contents.urgency = contents.urgency.max(Some(urgency));
        }
        Ok(contents)
    }

    fn validate_message(
        &self,
        number: u64,
        message: &Message<'_>,
        contents: &mut ValidatedPacket<'_>,
    ) -> Result<AckUrgency, ProtocolError> {
        let bytes = charge(message.payload.len());
        contents.event_bytes = contents.event_bytes.saturating_add(bytes);
        // A value has no id and no credit. Its memory is bounded by the number of keys, and checked in `room`.
        if let Delivery::ReliableLatest { key, .. } = message.delivery {
            if message.payload.len() > VALUE_MAX_BYTES {
                return Err(ProtocolError::MessageTooLong);
            }
            let is_new = !self.receiving.is_known_key(message.channel, key);
            contents.value_bytes = contents.value_bytes.saturating_add(bytes);
            contents.value_count = contents.value_count.saturating_add(1);
            contents.new_keys = contents.new_keys.saturating_add(usize::from(is_new));
            return Ok(AckUrgency::High);
        }
        let Some(id) = message.id() else {
            contents.unreliable_bytes = contents.unreliable_bytes.saturating_add(bytes);
            contents.newest_unreliable = Some(number);
            return Ok(AckUrgency::Late);
        };
        self.check_id(id)?;
        if message.payload.len() > self.bounds.message_max_bytes {
            return Err(ProtocolError::MessageTooLong);
        }
        let mode = Some(discriminant(&message.delivery));
        // No fragment states a total length equal to the fallback, so such a message matches no fragments.
        let total_bytes = saturated(message.payload.len(), u32::MAX);
        self.compare_with_fragments(
            id,
            &MessageShape { channel: message.channel, mode, total_bytes },
            contents,
        );
        Ok(AckUrgency::High)
    }

    /// Validates a run in one step: its last id is the farthest, and its longest payload is known.
    fn validate_run(
        &self,
        number: u64,
        run: &Run<'_>,
        contents: &mut ValidatedPacket<'_>,
    ) -> Result<AckUrgency, ProtocolError> {
        let Run { channel, delivery, bodies, longest_bytes } = *run;
        let bytes = charge_all(bodies.count, to_usize(bodies.payload_bytes));
        contents.event_bytes = contents.event_bytes.saturating_add(bytes);
        let Some((id, last_id)) = delivery.id().zip(run.last_id()) else {
            contents.unreliable_bytes = contents.unreliable_bytes.saturating_add(bytes);
            contents.newest_unreliable = Some(number);
            return Ok(AckUrgency::Late);
        };
        self.check_id(last_id)?;
        if to_usize(longest_bytes) > self.bounds.message_max_bytes {
            return Err(ProtocolError::MessageTooLong);
        }
        let lengths = bodies.payloads().map(|payload| saturated(payload.len(), u32::MAX));
        self.compare_all_with_fragments(
            id,
            bodies.count,
            channel,
            Some(discriminant(&delivery)),
            lengths,
            contents,
        );
        Ok(AckUrgency::High)
    }

    fn validate_skip_run(
        &self,
        skip: &SkipRun<'_>,
        contents: &mut ValidatedPacket<'_>,
    ) -> Result<AckUrgency, ProtocolError> {
        let SkipRun { channel, id, lengths, .. } = *skip;
        // A Skip run that was received in part may give one event for each of its messages.
        contents.event_bytes = contents.event_bytes.saturating_add(charge_all(lengths.count, 0));
        self.check_id(MessageId(IdRange::new(id.0, lengths.count).last))?;
        self.compare_all_with_fragments(id, lengths.count, channel, None, lengths.iter(), contents);
        Ok(AckUrgency::High)
    }

    /// [`Self::compare_with_fragments`] for each of `count` messages from `id` on. `lengths` are those of their payloads.
    fn compare_all_with_fragments(
        &self,
        id: MessageId,
        count: u16,
        channel: ChannelId,
        mode: Option<Discriminant<Delivery>>,
        lengths: impl Iterator<Item = u32>,
        contents: &mut ValidatedPacket<'_>,
    ) {
        let ids = IdRange::new(id.0, count);
        if self.receiving.has_fragments_of(ids) {
            for (id, total_bytes) in (ids.first..=ids.last).zip(lengths) {
                self.compare_with_fragments(
                    MessageId(id),
                    &MessageShape { channel, mode, total_bytes },
                    contents,
                );
            }
        }
    }

    /// Compares a message that arrives whole, or its Skip, with the fragments of it that arrived before.
    fn compare_with_fragments(
        &self,
        id: MessageId,
        shape: &MessageShape,
        contents: &mut ValidatedPacket<'_>,
    ) {
        if !self.receiving.agrees_with_fragments(id, shape) {
            contents.refused = Some(FragmentCheck::Disagrees);
        }
    }

    #[cold]
    fn validate_fragment(
        &mut self,
        number: u64,
        fragment: &Fragment<'_>,
        contents: &mut ValidatedPacket<'_>,
    ) -> Result<AckUrgency, ProtocolError> {
        let total = to_usize(fragment.total_bytes);
        // The declared length is judged with the first fragment, before memory is reserved for it.
        let Some(id) = fragment.message.id() else {
            if total > UNRELIABLE_MESSAGE_MAX_BYTES {
                return Err(ProtocolError::MessageTooLong);
            }
            if fragment.number > number {
                return Err(ProtocolError::Frame(FrameError::BadFragment));
            }
            if let Some(bytes) = self.receiving.validate_unreliable_fragment(fragment) {
                contents.unreliable_bytes = contents.unreliable_bytes.saturating_add(bytes);
                if bytes > 0 {
                    contents.newest_unreliable = contents.newest_unreliable.max(Some(fragment.number));
                }
                contents.event_bytes = contents.event_bytes.saturating_add(charge(total));
            }
            return Ok(AckUrgency::Late);
        };
        self.check_id(id)?;
        if total > self.bounds.message_max_bytes {
            return Err(ProtocolError::MessageTooLong);
        }
        match self.receiving.validate_fragment(id, fragment) {
            FragmentCheck::Fits => {}
            FragmentCheck::Completes(bytes) => {
                contents.event_bytes = contents.event_bytes.saturating_add(bytes);
            }
            FragmentCheck::TooMany => return Err(ProtocolError::TooManyFragmented),
            refused => contents.refused = Some(refused),
        }
        Ok(AckUrgency::High)
    }

    /// Returns an error when the message is too far ahead of the oldest missing one to be tracked.
    fn check_id(&self, id: MessageId) -> Result<(), ProtocolError> {
        if self.receiving.is_in_window(id) { Ok(()) } else { Err(ProtocolError::MessageTooFarAhead) }
    }

    /// Returns how much of packet `number` can be accepted. When memory for values is short, incomplete unreliable
    /// messages are dropped first, and then known keys. A dropped key can deliver an older value a second time.
    /// Without dropping keys, the values that wait for their memory would wait forever.
    pub(super) fn room_for(
        &mut self,
        number: u64,
        contents: &ValidatedPacket<'_>,
        events: &Events,
    ) -> PacketRoom {
        // One packet may release every message that waits for an earlier one, so there must be room for all their
        // events.
        if !events.has_room(contents.event_bytes.saturating_add(self.receiving.held_message_bytes())) {
            return PacketRoom::None;
        }
        let values_and_unreliable = contents.value_bytes.saturating_add(contents.unreliable_bytes);
        let mut new_keys = contents.new_keys;
        let largest = self.newest_received();
        if contents.value_count > 0 {
            if !self.has_memory(contents.value_bytes) {
                self.receiving.forget_unreliable();
            }
            if !self.has_memory(contents.value_bytes) && self.receiving.forget_keys(largest) {
                new_keys = contents.value_count;
            }
            let fits = self.has_memory(contents.value_bytes)
                && self.receiving.admits_values(new_keys, number, largest);
            if !fits {
                return PacketRoom::None;
            }
        }
        // An unreliable message whose missing fragments were lost never completes. It is dropped for newer ones,
        // which it would otherwise block forever.
        let newest = contents.newest_unreliable.unwrap_or(0);
        while !self.has_memory(values_and_unreliable) && self.receiving.forget_oldest_unreliable(newest) {}
        if self.has_memory(values_and_unreliable) { PacketRoom::All } else { PacketRoom::Reliable }
    }

    /// Whether memory is left for this charge in addition to all credit that the peer holds.
    pub(super) fn has_memory(&self, charge_bytes: usize) -> bool {
        if charge_bytes == 0 {
            return true;
        }
        // Credit is a promise: reliable messages must find room. All else has what is left.
        let held = self.events_bytes().saturating_add(self.receiving.used_bytes());
        let promised = held.saturating_add(self.receiving.credit.left_bytes());
        // An empty queue accepts any single packet. Otherwise a packet larger than the limit could never be
        // delivered.
        held == 0 || promised.saturating_add(charge_bytes) <= self.bounds.receive_memory_bytes
    }
}
