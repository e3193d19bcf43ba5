//! What an opened packet holds, and whether there is room for it: looked at as a whole before anything is done.
//!
//! It takes nothing in.

use std::mem::discriminant;

use drumfire_wire::{Delivery, Fragment, Frame, FrameError, FrameKinds, Frames, Message, MessageId};

use super::Connection;
use crate::acks::Urgency;
use crate::channel::receive::{Fit, Outline};
use crate::error::ProtocolError;
use crate::event::{Events, charge};
use crate::limits::{UNRELIABLE_MESSAGE_MAX_BYTES, VALUE_MAX_BYTES};

/// Most packets have no more frames: they are read once.
const FEW_FRAMES: usize = 2;

/// What a packet holds, before anything is done with it.
#[derive(Debug, Default)]
pub(super) struct Contents<'a> {
    /// Its frames, where they are few.
    few: [Option<Frame<'a>>; FEW_FRAMES],
    pub(super) frame_count: usize,
    pub(super) kinds: FrameKinds,
    pub(super) urgency: Option<Urgency>,
    pub(super) asks_for_ack_now: bool,
    /// Charges of unreliable messages, which are left out where there is no room.
    pub(super) loose_bytes: usize,
    /// The packet in which the newest of the unreliable messages began that the packet under survey is the first to bring.
    pub(super) newest_loose: Option<u64>,
    /// Charges of values.
    pub(super) value_bytes: usize,
    /// Charges of all that the application may hear of it.
    pub(super) event_bytes: usize,
    /// Values of keys, and those of keys that are not known.
    pub(super) value_count: usize,
    pub(super) new_keys: usize,
    /// Why it cannot be taken.
    pub(super) refused: Option<Fit>,
}

/// Room for what a packet brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// For all of it.
    All,
    /// For all but the unreliable messages.
    Reliable,
    None,
}

impl<'a> Contents<'a> {
    /// The frames of `payload`, which were found to be good.
    pub(super) fn frames(&self, payload: &'a [u8]) -> impl Iterator<Item = Frame<'a>> {
        let are_few = self.frame_count <= FEW_FRAMES;
        let (few, payload) = if are_few { (&self.few[..], &[][..]) } else { (&[][..], payload) };
        let (mut few, mut others) = (few.iter(), Frames::new(payload));
        std::iter::from_fn(move || few.next().copied().unwrap_or_else(|| others.next()?.ok()))
    }
}

impl Connection {
    /// Looks at all frames of packet `number` and takes nothing in.
    pub(super) fn survey<'a>(
        &mut self,
        number: u64,
        frames: &'a [u8],
    ) -> Result<Contents<'a>, ProtocolError> {
        let contents = self.survey_frames(number, frames);
        self.receiving.end_survey();
        contents
    }

    fn survey_frames<'a>(&mut self, number: u64, frames: &'a [u8]) -> Result<Contents<'a>, ProtocolError> {
        let mut contents = Contents::default();
        for frame in Frames::new(frames) {
            let frame = frame.map_err(ProtocolError::Frame)?;
            if let Some(place) = contents.few.get_mut(contents.frame_count) {
                *place = Some(frame);
            }
            contents.frame_count = contents.frame_count.saturating_add(1);
            // The work that an ack asks for is bounded; several in one packet would multiply it.
            if matches!(frame, Frame::Ack(_)) && contents.kinds.has(FrameKinds::ACK) {
                return Err(ProtocolError::SecondAck);
            }
            contents.kinds = contents.kinds.with(frame.kind());
            let urgency = match frame {
                Frame::Message(message) => self.survey_message(number, &message, &mut contents)?,
                Frame::Fragment(fragment) => self.survey_fragment(number, &fragment, &mut contents)?,
                Frame::Skip(skip) => {
                    contents.event_bytes = contents.event_bytes.saturating_add(charge(0));
                    self.check_id(skip.id)?;
                    let outline = Outline { channel: skip.channel, mode: None, total_bytes: skip.bytes };
                    self.survey_whole(skip.id, &outline, &mut contents);
                    Urgency::High
                }
                Frame::Ping
                | Frame::Credit(_)
                | Frame::NewConnectionId(_)
                | Frame::RetireConnectionId(_)
                | Frame::ResumeToken(_) => Urgency::Low,
                Frame::AckRequest => {
                    contents.asks_for_ack_now = true;
                    Urgency::Low
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

    fn survey_message(
        &self,
        number: u64,
        message: &Message<'_>,
        contents: &mut Contents<'_>,
    ) -> Result<Urgency, ProtocolError> {
        let bytes = charge(message.payload.len());
        contents.event_bytes = contents.event_bytes.saturating_add(bytes);
        if let Delivery::ReliableLatest { key, .. } = message.delivery {
            if message.payload.len() > VALUE_MAX_BYTES {
                return Err(ProtocolError::MessageTooLong);
            }
            let is_new = !self.receiving.is_known_key(message.channel, key);
            contents.value_bytes = contents.value_bytes.saturating_add(bytes);
            contents.value_count = contents.value_count.saturating_add(1);
            contents.new_keys = contents.new_keys.saturating_add(usize::from(is_new));
            return Ok(Urgency::High);
        }
        let Some(id) = message.id() else {
            contents.loose_bytes = contents.loose_bytes.saturating_add(bytes);
            contents.newest_loose = Some(number);
            return Ok(Urgency::Late);
        };
        self.check_id(id)?;
        if message.payload.len() > self.bounds.message_max_bytes {
            return Err(ProtocolError::MessageTooLong);
        }
        let mode = Some(discriminant(&message.delivery));
        // A fragment never says that its message is as long as the fallback, so such a message agrees with no pieces.
        let total_bytes = u32::try_from(message.payload.len()).unwrap_or(u32::MAX);
        self.survey_whole(id, &Outline { channel: message.channel, mode, total_bytes }, contents);
        Ok(Urgency::High)
    }

    /// Checks a message that comes whole, or its Skip, against the pieces of it that came before.
    fn survey_whole(&self, id: MessageId, outline: &Outline, contents: &mut Contents<'_>) {
        if !self.receiving.agrees_with_pieces(id, outline) {
            contents.refused = Some(Fit::Disagrees);
        }
    }

    #[cold]
    fn survey_fragment(
        &mut self,
        number: u64,
        fragment: &Fragment<'_>,
        contents: &mut Contents<'_>,
    ) -> Result<Urgency, ProtocolError> {
        let total = usize::try_from(fragment.total_bytes).unwrap_or(usize::MAX);
        let Some(id) = fragment.piece.id() else {
            if total > UNRELIABLE_MESSAGE_MAX_BYTES {
                return Err(ProtocolError::MessageTooLong);
            }
            if fragment.number > number {
                return Err(ProtocolError::Frame(FrameError::BadFragment));
            }
            if let Some(bytes) = self.receiving.survey_loose_piece(fragment) {
                contents.loose_bytes = contents.loose_bytes.saturating_add(bytes);
                if bytes > 0 {
                    contents.newest_loose = contents.newest_loose.max(Some(fragment.number));
                }
                contents.event_bytes = contents.event_bytes.saturating_add(charge(total));
            }
            return Ok(Urgency::Late);
        };
        self.check_id(id)?;
        if total > self.bounds.message_max_bytes {
            return Err(ProtocolError::MessageTooLong);
        }
        match self.receiving.survey_piece(id, fragment) {
            Fit::Fits => {}
            Fit::Completes(bytes) => contents.event_bytes = contents.event_bytes.saturating_add(bytes),
            Fit::TooMany => return Err(ProtocolError::TooManyInPieces),
            refused => contents.refused = Some(refused),
        }
        Ok(Urgency::High)
    }

    fn check_id(&self, id: MessageId) -> Result<(), ProtocolError> {
        if self.receiving.is_in_reach(id) { Ok(()) } else { Err(ProtocolError::MessageTooFarAhead) }
    }

    /// How much of packet `number` can be taken in. Where memory is short for values, pieces that need not come are forgotten, and
    /// then keys: the newest value may come again by that, but what waits for memory that they have would wait for ever.
    pub(super) fn room(&mut self, number: u64, contents: &Contents<'_>, events: &Events) -> Room {
        if !events.has_room(contents.event_bytes.saturating_add(self.receiving.kept_bytes())) {
            return Room::None;
        }
        let values_and_loose = contents.value_bytes.saturating_add(contents.loose_bytes);
        let mut new_keys = contents.new_keys;
        let largest = self.newest_received();
        if contents.value_count > 0 {
            if !self.has_memory(contents.value_bytes) {
                self.receiving.forget_loose();
            }
            if !self.has_memory(contents.value_bytes) && self.receiving.forget_keys(largest) {
                new_keys = contents.value_count;
            }
            let fits = self.has_memory(contents.value_bytes)
                && self.receiving.admits_values(new_keys, number, largest);
            if !fits {
                return Room::None;
            }
        }
        // A message whose missing pieces were lost never becomes whole. It gives way to newer ones, or it would keep them out for good.
        let newest = contents.newest_loose.unwrap_or(0);
        while !self.has_memory(values_and_loose) && self.receiving.forget_oldest_loose(newest) {}
        if self.has_memory(values_and_loose) { Room::All } else { Room::Reliable }
    }

    /// Whether there is memory for this beside all that the peer has credit for.
    pub(super) fn has_memory(&self, charge_bytes: usize) -> bool {
        if charge_bytes == 0 {
            return true;
        }
        let held = self.events_bytes().saturating_add(self.receiving.used_bytes());
        let promised = held.saturating_add(self.receiving.credit.left_bytes());
        // What one packet brings is never too much for a memory with nothing in it: else it could never come.
        held == 0 || promised.saturating_add(charge_bytes) <= self.bounds.receive_memory_bytes
    }
}
