//! What an opened packet does to its connection: checked as a whole first, then frame by frame.
//!
//! A packet that breaks the protocol, or whose messages have no room, does nothing at all.

use std::time::Duration;

use drumfire_crypto::token::RESUME_KEY_ID;
use drumfire_crypto::{IssuedToken, Secret};
use drumfire_wire::{ChannelId, Close, Delivery, Frame, Frames, Message, MessageId, PacketNumber, Skip};

use super::{Connection, Phase, route_fate};
use crate::acks::Urgency;
use crate::channel::receive::Arrival;
use crate::control::Control;
use crate::error::ProtocolError;
use crate::event::{Events, charge};
use crate::identity::Identity;
use crate::limits::ACK_DELAY_MAX;
use crate::stats::{DropReason, Stats, add};
use crate::time::Moment;

/// What came of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received<'a> {
    /// It was taken in.
    Delivered,
    /// It was not, and was not acknowledged either.
    Dropped(DropReason),
    /// It broke the protocol.
    Broken(ProtocolError),
    /// The peer closed.
    Closed(Close<'a>),
}

/// What a packet holds, before anything is done with it.
#[derive(Debug, Default)]
struct Contents {
    urgency: Option<Urgency>,
    asks_for_ack_now: bool,
    charge_bytes: usize,
    brings_floor: bool,
    /// Values of keys, and those of keys that are not known.
    value_count: usize,
    new_keys: usize,
}

impl Connection {
    /// Takes in the frames of packet `number`.
    pub(crate) fn on_packet<'a>(
        &mut self,
        now: Moment,
        number: u64,
        frames: &'a [u8],
        events: &mut Events,
        stats: &mut Stats,
    ) -> Received<'a> {
        if let Phase::Closing(closing) = &mut self.phase {
            closing.heard_count = closing.heard_count.saturating_add(1);
            closing.is_due |= closing.heard_count.is_power_of_two();
            return Received::Delivered;
        }
        let is_busy = self.liveness.on_received(now);
        if is_busy && let Some(session) = &mut self.session {
            session.expand();
        }
        let contents = match self.survey(frames) {
            Ok(contents) => contents,
            Err(error) => return Received::Broken(error),
        };
        let has_room = self.admits(number, &contents, events);
        let urgency = contents.urgency.unwrap_or(Urgency::None);
        if !has_room && urgency == Urgency::High {
            return Received::Dropped(DropReason::ReceiveMemory);
        }
        let round_trip = self.loss.round_trip().measured().unwrap_or(ACK_DELAY_MAX);
        self.acks.on_packet(now, number, urgency, round_trip);
        if contents.asks_for_ack_now {
            self.acks.on_request(now);
        }
        for frame in Frames::new(frames).flatten() {
            match frame {
                Frame::Message(message) => self.on_message(number, &message, has_room, events, stats),
                Frame::Ack(ack) => {
                    if let Err(error) = self.on_ack(now, &ack, stats) {
                        return Received::Broken(error);
                    }
                }
                Frame::Skip(Skip { channel, id, after }) => {
                    self.accept(&Arrival { id, after, channel, payload: None }, events, stats);
                }
                Frame::Close(close) => return Received::Closed(close),
                Frame::PathChallenge(data) => self.path.answer = Some(data),
                Frame::PathResponse(data) => {
                    if self.path.on_response(data) {
                        add(&mut stats.paths_moved, 1);
                        self.on_moved(now);
                    }
                }
                Frame::NewConnectionId(_) | Frame::RetireConnectionId(_) | Frame::ResumeToken(_) => {
                    if let Err(error) = self.on_identity(now, &frame) {
                        return Received::Broken(error);
                    }
                }
                Frame::Ping | Frame::AckRequest | Frame::Padding { .. } => {}
            }
        }
        Received::Delivered
    }

    fn on_message(
        &mut self,
        number: u64,
        message: &Message<'_>,
        has_room: bool,
        events: &mut Events,
        stats: &mut Stats,
    ) {
        let &Message { channel, delivery, payload } = message;
        let (id, after) = match delivery {
            Delivery::Unreliable if has_room => return self.deliver(channel, payload, events, stats),
            Delivery::UnreliableSequenced if has_room => {
                return self.deliver_sequenced(number, message, events, stats);
            }
            Delivery::Unreliable | Delivery::UnreliableSequenced => {
                return add(&mut stats.unreliable_overflows, 1);
            }
            Delivery::ReliableLatest { key, version } => {
                if self.receiving.take_value(channel, key, version) {
                    self.deliver(channel, payload, events, stats);
                }
                return;
            }
            Delivery::ReliableUnordered { id } | Delivery::ReliableSequenced { id } => (id, None),
            Delivery::ReliableOrdered { id, after } => (id, after),
        };
        self.accept(&Arrival { id, after, channel, payload: Some(payload) }, events, stats);
    }

    /// Looks at all frames and changes nothing.
    fn survey(&self, frames: &[u8]) -> Result<Contents, ProtocolError> {
        let mut contents = Contents::default();
        let mut raise = |to: Urgency| contents.urgency = contents.urgency.max(Some(to));
        let (mut charge_bytes, mut brings_floor, mut asks_for_ack_now) = (0_usize, false, false);
        let (mut value_count, mut new_keys) = (0_usize, 0_usize);
        for frame in Frames::new(frames) {
            match frame.map_err(ProtocolError::Frame)? {
                Frame::Message(message) => {
                    charge_bytes = charge_bytes.saturating_add(charge(message.payload.len()));
                    if let Delivery::ReliableLatest { key, .. } = message.delivery {
                        raise(Urgency::High);
                        let is_new = !self.receiving.is_known_key(message.channel, key);
                        value_count = value_count.saturating_add(1);
                        new_keys = new_keys.saturating_add(usize::from(is_new));
                    } else if let Some(id) = message.id() {
                        raise(Urgency::High);
                        brings_floor |= self.check_id(id)?;
                    } else {
                        raise(Urgency::Low);
                    }
                }
                Frame::Skip(skip) => {
                    charge_bytes = charge_bytes.saturating_add(charge(0));
                    raise(Urgency::High);
                    brings_floor |= self.check_id(skip.id)?;
                }
                Frame::Ping
                | Frame::NewConnectionId(_)
                | Frame::RetireConnectionId(_)
                | Frame::ResumeToken(_) => raise(Urgency::Low),
                Frame::AckRequest => {
                    raise(Urgency::Low);
                    asks_for_ack_now = true;
                }
                Frame::Ack(_)
                | Frame::Close(_)
                | Frame::Padding { .. }
                | Frame::PathChallenge(_)
                | Frame::PathResponse(_) => {}
            }
        }
        contents.charge_bytes = charge_bytes;
        contents.brings_floor = brings_floor;
        (contents.value_count, contents.new_keys) = (value_count, new_keys);
        contents.asks_for_ack_now = asks_for_ack_now;
        Ok(contents)
    }

    /// Whether this is the id that everything kept waits for.
    fn check_id(&self, id: MessageId) -> Result<bool, ProtocolError> {
        if self.receiving.is_in_reach(id) {
            Ok(id == self.receiving.floor())
        } else {
            Err(ProtocolError::MessageTooFarAhead)
        }
    }

    /// Whether the messages of packet `number` can be taken in. Where memory is short keys are forgotten first: the newest
    /// value may then come again, but what waits for memory that keys have would wait for ever.
    fn admits(&mut self, number: u64, contents: &Contents, events: &Events) -> bool {
        let largest = self.newest_received();
        let (mut fits, mut new_keys) = (self.has_room(contents, events), contents.new_keys);
        if !fits && self.receiving.forget_keys(largest) {
            (fits, new_keys) = (self.has_room(contents, events), contents.value_count);
        }
        fits && self.receiving.admits_values(new_keys, number, largest)
    }

    /// Whether the packet's messages fit. One that brings what everything kept waits for may go over the limit
    /// by itself: without it nothing could ever be set free.
    fn has_room(&self, contents: &Contents, events: &Events) -> bool {
        if contents.charge_bytes == 0 {
            return true;
        }
        let used = self.events_bytes.saturating_add(self.receiving.used_bytes());
        let added = if contents.brings_floor { 0 } else { contents.charge_bytes };
        let fits = used.saturating_add(added) <= self.bounds.receive_memory_bytes;
        fits && events.has_room(contents.charge_bytes.saturating_add(self.receiving.kept_bytes()))
    }

    fn on_ack(
        &mut self,
        now: Moment,
        ack: &drumfire_wire::Ack<'_>,
        stats: &mut Stats,
    ) -> Result<(), ProtocolError> {
        let unused = self.session.as_ref().map_or(0, crate::session::Session::unused);
        let (sending, control) = (&mut self.sending, &mut self.control);
        let lost_before = self.loss.lost_count();
        let news = self
            .loss
            .on_ack(now, ack, unused, |fate, id, packet| route_fate(sending, control, fate, id, packet))
            .map_err(ProtocolError::Ack)?;
        add(&mut stats.packets_lost, self.loss.lost_count().saturating_sub(lost_before));
        if news.acknowledged_count > 0 {
            self.is_ack_asked = false;
            if let (Some(session), Some(largest)) = (&mut self.session, self.loss.largest_acked()) {
                session.on_acked(now, largest.0, || self.loss.settling_time());
            }
        }
        if let Some(PacketNumber(number)) = news.knows_up_to {
            self.acks.forget_up_to(number);
        }
        Ok(())
    }

    /// Takes in what the peer says of ids and tokens.
    fn on_identity(&mut self, now: Moment, frame: &Frame<'_>) -> Result<(), ProtocolError> {
        self.has_id_news = true;
        match (&mut self.identity, frame) {
            (Some(Identity::Client(known)), Frame::NewConnectionId(new)) => {
                if let Some(sequence) = known.add(*new)? {
                    self.control.push(Control::RetireConnectionId(sequence));
                }
                Ok(())
            }
            (Some(Identity::Client(known)), Frame::ResumeToken(token)) => {
                let life = Duration::from_secs(token.life_seconds.into());
                let (sealed, psk) = (*token.sealed, Secret::new(*token.psk));
                known.resume = Some((IssuedToken { key_id: RESUME_KEY_ID, sealed, psk }, now.after(life)));
                Ok(())
            }
            (Some(Identity::Server(given)), Frame::RetireConnectionId(sequence)) => given.retire(*sequence),
            _ => Err(ProtocolError::WrongSide),
        }
    }

    fn deliver(&mut self, channel: ChannelId, payload: &[u8], events: &mut Events, stats: &mut Stats) {
        events.message(self.peer, channel, payload);
        self.events_bytes = self.events_bytes.saturating_add(charge(payload.len()));
        add(&mut stats.messages_delivered, 1);
    }

    fn deliver_sequenced(
        &mut self,
        number: u64,
        message: &Message<'_>,
        events: &mut Events,
        stats: &mut Stats,
    ) {
        let largest = self.newest_received();
        if self.receiving.take_sequenced(message.channel, number, largest) {
            self.deliver(message.channel, message.payload, events, stats);
        } else {
            add(&mut stats.sequenced_late, 1);
        }
    }

    fn accept(&mut self, arrival: &Arrival<'_>, events: &mut Events, stats: &mut Stats) {
        let (peer, events_bytes) = (self.peer, &mut self.events_bytes);
        self.receiving.accept(arrival, |channel, payload| match payload {
            Some(payload) => {
                events.message(peer, channel, payload);
                *events_bytes = events_bytes.saturating_add(charge(payload.len()));
                add(&mut stats.messages_delivered, 1);
            }
            None => {
                events.skipped(peer, channel);
                add(&mut stats.messages_skipped, 1);
            }
        });
    }
}
