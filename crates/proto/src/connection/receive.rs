//! Processes an opened packet: validates it as a whole first, then frame by frame.
//!
//! A packet that violates the protocol, or whose messages have no room, changes nothing.

use std::time::Duration;

use drumfire_crypto::token::RESUME_KEY_ID;
use drumfire_crypto::{IssuedToken, Secret};
use drumfire_wire::{ChannelId, Close, Delivery, Fragment, Frame, Message, PacketNumber, Run, Skip, SkipRun};

use super::validate::PacketRoom;
use super::{Connection, Phase, route_fate};
use crate::acks::AckUrgency;
use crate::channel::receive::{Contents, FragmentCheck, ReceivedMessages};
use crate::convert::{saturated, to_usize};
use crate::error::ProtocolError;
use crate::event::{Events, charge};
use crate::identity::ConnectionIdState;
use crate::limits::ACK_DELAY_MAX;
use crate::memory_budget::MemoryBudget;
use crate::meter::ClockSample;
use crate::peer_id::PeerId;
use crate::recorder::FlightEvent;
use crate::stats::{DropReason, Stats, add};
use crate::time::Moment;

/// The result of processing a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received<'a> {
    /// The packet was processed.
    Delivered,
    /// The packet was dropped, and is not acknowledged, so that the peer sends its contents again.
    Dropped(DropReason),
    /// The packet violates the protocol.
    Broken(ProtocolError),
    /// The peer closed the connection.
    Closed(Close<'a>),
}

/// Receives the events of a connection, and the counters to update.
pub(crate) struct Sink<'a> {
    /// The id of the connection.
    pub(crate) peer: PeerId,
    /// The endpoint's event queue.
    pub(crate) events: &'a mut Events,
    /// The endpoint's memory budget.
    pub(crate) budget: &'a mut MemoryBudget,
    /// The endpoint's counters.
    pub(crate) stats: &'a mut Stats,
}

impl Sink<'_> {
    /// Queues an event for messages, or for messages that the peer skipped, and charges it to the connection. Skips are
    /// charged like one empty message, unless they are merged into the previous event.
    fn notify(&mut self, events_bytes: &mut u32, channel: ChannelId, contents: Contents<'_>) {
        let count = contents.count().into();
        let charge_bytes = match contents {
            Contents::Message(payload) => {
                self.events.message(self.peer, channel, payload);
                add(&mut self.stats.messages_delivered, count);
                charge(payload.len())
            }
            Contents::Run(bodies) => {
                self.events.run(self.peer, channel, bodies);
                add(&mut self.stats.messages_delivered, count);
                contents.charge()
            }
            Contents::Skipped(skipped_count) => {
                add(&mut self.stats.messages_skipped, count);
                if !self.events.skipped(self.peer, channel, skipped_count) {
                    return;
                }
                charge(0)
            }
        };
        // No message is long enough for its charge to exceed a `u32`.
        debug_assert!(u32::try_from(charge_bytes).is_ok(), "a message with a charge of {charge_bytes} bytes");
        *events_bytes = events_bytes.saturating_add(saturated(charge_bytes, u32::MAX));
        self.budget.on_queued(charge_bytes);
    }
}

impl Connection {
    /// Processes the frames of packet `number`.
    pub(crate) fn on_packet<'a>(
        &mut self,
        now: Moment,
        number: u64,
        frames: &'a [u8],
        sink: &mut Sink<'_>,
    ) -> Received<'a> {
        if let Some(Phase::Closing(closing)) = self.phase.as_deref_mut() {
            closing.received_count = closing.received_count.saturating_add(1);
            closing.is_due |= closing.received_count.is_power_of_two();
            return Received::Delivered;
        }
        // Validate the whole packet. Until the end of this step nothing but the time of its arrival is remembered.
        let is_soon = self.liveness.on_received(now);
        let contents = match self.validate(number, frames) {
            Ok(contents) => contents,
            Err(error) => return Received::Broken(error),
        };
        self.count_frames(contents.frame_count);
        // Handshakes and keep-alives contain no messages. A server has many silent connections, and they stay without
        // the memory of a busy one.
        let is_busy = self.active.is_some() || (is_soon && contents.kinds.has_messages());
        if is_busy && let Some(session) = &mut self.session {
            session.expand();
        }
        // Refuse the packet as a whole if one of its messages cannot be accepted. The peer takes it for lost, and
        // repeats what is reliable. A peer whose fragments keep contradicting each other is faulty.
        match contents.refused {
            None => {}
            Some(FragmentCheck::Disagrees) if self.receiving.count_contradiction() => {
                return Received::Broken(ProtocolError::FragmentMismatch);
            }
            Some(FragmentCheck::Disagrees) => return Received::Dropped(DropReason::FragmentMismatch),
            Some(_) => return Received::Dropped(DropReason::ReceiveMemory),
        }
        let room = self.room_for(number, &contents, sink.events);
        let urgency = contents.urgency.unwrap_or(AckUrgency::None);
        // Without room, only a packet with reliable data is refused. Any other is processed without its messages,
        // because this end waits for the acks and the credit in it.
        if room == PacketRoom::None && urgency == AckUrgency::High {
            return Received::Dropped(DropReason::ReceiveMemory);
        }
        // From here on the packet is acknowledged, and applied.
        let round_trip = self.loss.round_trip().measured().unwrap_or(ACK_DELAY_MAX);
        self.acks.on_packet(now, number, urgency, round_trip);
        if is_busy {
            let active = self.activate();
            active.meter.on_received(number, frames.len());
            if let Some(recorder) = &mut active.recorder {
                let payload_bytes = saturated(frames.len(), u16::MAX);
                recorder.push(now, FlightEvent::Received { number, payload_bytes, frames: contents.kinds });
            }
        }
        let is_bare_ping = !is_busy && contents.kinds.is_bare_ping();
        if !is_bare_ping {
            self.liveness.on_grown();
        }
        // An idle connection sends nothing that an ack could be added to, so the ack is sent immediately.
        if contents.requests_ack_now || is_bare_ping {
            self.acks.on_request(now);
        }
        let had_memory = self.loss.has_memory();
        let received = self.apply(now, number, contents.frames(frames), room == PacketRoom::All, sink);
        // More credit needs more memory. A worker that is short of it leaves its peers what they have.
        if let Some(active) = &mut self.active
            && !sink.budget.is_half_full()
        {
            let received = self.receiving.credit.received_bytes();
            active.credit.on_received(now, received, round_trip, self.bounds.credit_max_bytes);
        }
        self.extend_credit();
        // A packet that arrives shows that an outage may be over. The probe timer has backed off, so it would keep this end
        // silent for seconds.
        if self.loss.silenced_probe_at().is_some_and(|at| now.since(at) >= self.loss.probe_timeout()) {
            self.probe_early(now);
        }
        // After a handshake or a ping no packet is in flight. The memory of `loss` is released now rather than after the
        // idle time, because many connections may be in this state at the same time.
        if had_memory && !is_busy && !self.loss.has_packets() {
            self.shrink_loss();
        }
        received
    }

    /// Applies the frames of a packet that was validated.
    fn apply<'a>(
        &mut self,
        now: Moment,
        number: u64,
        frames: impl Iterator<Item = Frame<'a>>,
        has_room: bool,
        sink: &mut Sink<'_>,
    ) -> Received<'a> {
        // An ack and the timestamp behind it measure the peer's clock together.
        let mut sample = None;
        for frame in frames {
            match frame {
                // Credit was not validated before. A peer that exceeds it is closed, so a part of its packet may be
                // applied.
                Frame::Message(message) => {
                    if !self.on_message(now, number, &message, has_room, sink) {
                        return Received::Broken(ProtocolError::CreditExceeded);
                    }
                }
                Frame::Fragment(fragment) => {
                    if !self.on_fragment(&fragment, has_room, sink) {
                        return Received::Broken(ProtocolError::CreditExceeded);
                    }
                }
                Frame::Ack(ack) => match self.on_ack(now, &ack, sink.stats) {
                    Ok(sent_at) => sample = sent_at.map(|sent_at| (sent_at, ack.delay.to_duration())),
                    Err(error) => return Received::Broken(error),
                },
                Frame::Run(run) => {
                    if !self.on_run(number, &run, has_room, sink) {
                        return Received::Broken(ProtocolError::CreditExceeded);
                    }
                }
                Frame::Skip(Skip { channel, id, after, bytes }) => {
                    let received = ReceivedMessages { id, after, channel, contents: Contents::Skipped(1) };
                    if !self.accept(&received, to_usize(bytes), sink) {
                        return Received::Broken(ProtocolError::CreditExceeded);
                    }
                }
                Frame::SkipRun(SkipRun { channel, id, after, lengths }) => {
                    let received =
                        ReceivedMessages { id, after, channel, contents: Contents::Skipped(lengths.count) };
                    let messages = lengths.iter().map(|bytes| (to_usize(bytes), &[][..]));
                    let total = lengths.iter().map(to_usize).fold(0, usize::saturating_add);
                    if !self.accept_run(&received, total, true, messages, sink) {
                        return Received::Broken(ProtocolError::CreditExceeded);
                    }
                }
                Frame::Credit(total_bytes) => self.sending.on_credit(total_bytes),
                Frame::Timestamp(peer_micros) => {
                    if let Some((sent_at, ack_delay)) = sample {
                        let times = ClockSample { sent_at, ack_delay, peer_micros, now };
                        self.activate().meter.on_clock_sample(&times);
                    }
                }
                Frame::Close(close) => return Received::Closed(close),
                Frame::PathChallenge(data) => self.path.answer = Some(data),
                Frame::PathResponse(data) => {
                    // The host of the previous address decides whether the estimates still hold.
                    let from = self.path.route.peer.ip();
                    // Without room for the event, the response is ignored, and the challenge is repeated. A peer that keeps moving
                    // then adds no events while the application takes none.
                    if sink.events.has_room(charge(0)) && self.path.on_response(data) {
                        add(&mut sink.stats.path_migrations, 1);
                        sink.events.path_changed(sink.peer, self.path.route.canonical());
                        self.on_moved(now, from);
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

    /// Processes a message. Returns false when the peer had no credit for it.
    fn on_message(
        &mut self,
        now: Moment,
        number: u64,
        message: &Message<'_>,
        has_room: bool,
        sink: &mut Sink<'_>,
    ) -> bool {
        let &Message { channel, delivery, payload } = message;
        let (id, after) = match delivery {
            // An unreliable message without room is dropped, as a router would drop it.
            Delivery::Unreliable | Delivery::UnreliableSequenced => {
                if !has_room {
                    add(&mut sink.stats.unreliable_overflows, 1);
                } else if delivery == Delivery::Unreliable {
                    self.deliver(channel, Contents::Message(payload), sink);
                } else {
                    self.deliver_sequenced(number, channel, Contents::Message(payload), sink);
                }
                return true;
            }
            Delivery::ReliableLatest { key, version } => {
                if self.receiving.accept_value(now, channel, key, version) {
                    self.deliver(channel, Contents::Message(payload), sink);
                }
                return true;
            }
            Delivery::ReliableUnordered { id } | Delivery::ReliableSequenced { id } => (id, None),
            Delivery::ReliableOrdered { id, after } => (id, after),
        };
        let contents = Contents::Message(payload);
        self.accept(&ReceivedMessages { id, after, channel, contents }, payload.len(), sink)
    }

    /// Processes a run of messages. Returns false when the peer had no credit for one of them.
    fn on_run(&mut self, number: u64, run: &Run<'_>, has_room: bool, sink: &mut Sink<'_>) -> bool {
        let &Run { channel, delivery, bodies, .. } = run;
        let contents = Contents::Run(bodies);
        let (id, after, is_chain) = match delivery {
            Delivery::ReliableOrdered { id, after } => (id, after, true),
            Delivery::ReliableUnordered { id } | Delivery::ReliableSequenced { id } => (id, None, false),
            Delivery::Unreliable | Delivery::UnreliableSequenced | Delivery::ReliableLatest { .. } => {
                if !has_room {
                    add(&mut sink.stats.unreliable_overflows, bodies.count.into());
                } else if delivery == Delivery::UnreliableSequenced {
                    self.deliver_sequenced(number, channel, contents, sink);
                } else {
                    self.deliver(channel, contents, sink);
                }
                return true;
            }
        };
        let received = ReceivedMessages { id, after, channel, contents };
        let mut payloads = bodies.payloads();
        let messages = std::iter::from_fn(|| {
            let rest = payloads.rest();
            payloads.next().map(|payload| (payload.len(), rest))
        });
        self.accept_run(&received, to_usize(bodies.payload_bytes), is_chain, messages, sink)
    }

    /// Processes a fragment. Returns false when the peer had no credit for the message.
    #[cold]
    fn on_fragment(&mut self, fragment: &Fragment<'_>, has_room: bool, sink: &mut Sink<'_>) -> bool {
        let Message { channel, delivery, .. } = fragment.message;
        let (id, after) = match delivery {
            Delivery::ReliableUnordered { id } | Delivery::ReliableSequenced { id } => (id, None),
            Delivery::ReliableOrdered { id, after } => (id, after),
            Delivery::Unreliable | Delivery::UnreliableSequenced | Delivery::ReliableLatest { .. } => {
                // The validation saw each message as it was before the packet. One packet may complete a message and
                // start it again, so the room is checked again here.
                let fits = has_room
                    && self.receiving.accepts_unreliable_fragment(fragment)
                    && self.has_memory(self.receiving.unreliable_charge(fragment));
                if !fits {
                    add(&mut sink.stats.unreliable_overflows, 1);
                } else if let Some(whole) = self.receiving.accept_unreliable_fragment(fragment) {
                    if delivery == Delivery::Unreliable {
                        self.deliver(channel, Contents::Message(&whole), sink);
                    } else {
                        self.deliver_sequenced(fragment.number, channel, Contents::Message(&whole), sink);
                    }
                }
                return true;
            }
        };
        let events_bytes = &mut self.events_bytes;
        self.receiving.accept_fragment(id, after, fragment, |channel, contents| {
            sink.notify(events_bytes, channel, contents);
        })
    }

    /// Charges, in bytes, of messages that wait in the endpoint's event queue.
    pub(crate) fn events_bytes(&self) -> usize {
        to_usize(self.events_bytes)
    }

    /// Releases the charge of an event that the application has taken.
    pub(crate) fn on_event_taken(&mut self, charge_bytes: usize) {
        debug_assert!(
            charge_bytes <= self.events_bytes(),
            "{charge_bytes} bytes of events were taken, of {} that wait",
            self.events_bytes
        );
        self.events_bytes = self.events_bytes.saturating_sub(saturated(charge_bytes, u32::MAX));
        // The peer may send as much again.
        self.extend_credit();
    }

    /// Extends the peer's credit when the difference is worth a frame.
    fn extend_credit(&mut self) {
        // Closing resets the receive queue, so a Credit from then on would be below one that was sent before.
        if self.is_closing() {
            return;
        }
        let held = self.receiving.held_bytes().saturating_add(self.events_bytes());
        let window = self.active.as_ref().map_or(self.bounds.credit_bytes, |active| active.credit.bytes());
        if let Some(total_bytes) = self.receiving.credit.extend(window, held) {
            self.control.push_credit(total_bytes);
        }
    }

    /// Processes an ack. Returns when the packet was sent whose round trip the ack measures, if it measures one.
    fn on_ack(
        &mut self,
        now: Moment,
        ack: &drumfire_wire::Ack<'_>,
        stats: &mut Stats,
    ) -> Result<Option<Moment>, ProtocolError> {
        debug_assert!(self.session.is_some(), "an ack was opened without keys");
        // Acks of numbers from `next_unused` on name packets that were never sent.
        let next_unused = self.session.as_ref().map_or(0, crate::session::PacketProtection::next_unused);
        // Without waiting data the window was not the limit, so it must not grow (RFC 9002 section 7.8). The ack itself makes
        // data sendable, which did not wait for the window: a lost message, and the next one of a sequence.
        let is_app_limited = !self.has_data();
        let (sending, control) = (&mut self.sending, &mut self.control);
        let outcome = self
            .loss
            .on_ack(now, ack, next_unused, |fate, id, packet| route_fate(sending, control, fate, id, packet))
            .map_err(ProtocolError::Ack)?;
        add(&mut stats.packets_lost, outcome.lost.count);
        let event = FlightEvent::Acked {
            largest: ack.ranges.largest().0,
            count: saturated(outcome.acknowledged_count, u16::MAX),
            round_trip_us: outcome.round_trip.map_or(0, |trip| saturated(trip.as_micros(), u32::MAX)),
        };
        self.record(now, event);
        self.on_acked(now, &outcome, is_app_limited);
        // The window has room again. An ack of packets under the present keys also confirms that the peer has them.
        if outcome.acknowledged_count > 0 {
            self.is_ack_requested = false;
            if let (Some(session), Some(largest)) = (&mut self.session, self.loss.largest_acked()) {
                session.on_acked(now, largest.0, || self.loss.settling_time());
            }
        }
        if let Some(PacketNumber(number)) = outcome.knows_up_to {
            self.acks.forget_up_to(number);
        }
        Ok(outcome.newest_sent_at.filter(|_| outcome.round_trip.is_some()))
    }

    /// Processes a frame about connection ids or resume tokens.
    fn on_identity(&mut self, now: Moment, frame: &Frame<'_>) -> Result<(), ProtocolError> {
        self.has_id_changes = true;
        // Without the Welcome there are no keys, and no packet is opened.
        debug_assert!(
            !self.liveness.is_client() || self.identity.known().is_some(),
            "a client has opened a packet, and knows no id of the server"
        );
        match (&mut self.identity, frame) {
            // A spare id that arrives after a later one was used is retired immediately. The number of such
            // retirements is limited, because the server controls it.
            (ConnectionIdState::Client(ids), Frame::NewConnectionId(new)) => {
                let Some(known) = &mut ids.known else { return Err(ProtocolError::WrongSide) };
                match known.add(*new)? {
                    Some(sequence) if !self.control.push_retired(sequence) => {
                        Err(ProtocolError::ConnectionIds)
                    }
                    _ => Ok(()),
                }
            }
            (ConnectionIdState::Client(ids), Frame::ResumeToken(token)) => {
                let Some(known) = &mut ids.known else { return Err(ProtocolError::WrongSide) };
                let lifetime = Duration::from_secs(token.lifetime_seconds.into());
                let (sealed, psk) = (*token.sealed, Secret::new(*token.psk));
                // The newer token lives longer, so it replaces the older one.
                known.resume =
                    Some((IssuedToken { key_id: RESUME_KEY_ID, sealed, psk }, now.after(lifetime)));
                Ok(())
            }
            (ConnectionIdState::Server(issued), Frame::RetireConnectionId(sequence)) => {
                issued.retire(*sequence)?;
                self.control.withdraw_id(*sequence);
                Ok(())
            }
            _ => Err(ProtocolError::WrongSide),
        }
    }

    /// Queues the event of messages that need no order.
    fn deliver(&mut self, channel: ChannelId, contents: Contents<'_>, sink: &mut Sink<'_>) {
        sink.notify(&mut self.events_bytes, channel, contents);
    }

    /// Queues the event of sequenced messages of packet `number`, or drops them if a newer one was delivered.
    fn deliver_sequenced(
        &mut self,
        number: u64,
        channel: ChannelId,
        contents: Contents<'_>,
        sink: &mut Sink<'_>,
    ) {
        let largest = self.newest_received();
        if self.receiving.accept_sequenced(channel, number, largest) {
            self.deliver(channel, contents, sink);
        } else {
            add(&mut sink.stats.sequenced_late, contents.count().into());
        }
    }

    /// Processes a reliable message of `payload_bytes`, or its skip. Returns false when the peer had no credit for
    /// it.
    fn accept(&mut self, received: &ReceivedMessages<'_>, payload_bytes: usize, sink: &mut Sink<'_>) -> bool {
        let events_bytes = &mut self.events_bytes;
        let is_first = self.receiving.accept(received, |channel, contents| {
            sink.notify(events_bytes, channel, contents);
        });
        // Credit is spent once per message, when it first arrives. The sender spends it when it first sends the
        // message.
        !is_first || self.receiving.credit.take(charge(payload_bytes))
    }

    /// Processes a run of reliable messages, or its skip, as [`ReceiveQueue::accept_run`](crate::channel::receive::ReceiveQueue::accept_run) says.
    fn accept_run<'a>(
        &mut self,
        run: &ReceivedMessages<'a>,
        payload_bytes: usize,
        is_chain: bool,
        messages: impl Iterator<Item = (usize, &'a [u8])>,
        sink: &mut Sink<'_>,
    ) -> bool {
        let events_bytes = &mut self.events_bytes;
        self.receiving.accept_run(run, payload_bytes, is_chain, messages, |channel, contents| {
            sink.notify(events_bytes, channel, contents);
        })
    }
}
