//! Draws the packets of one hostile client: frames, their fields, their order, and their packing.

use std::time::Duration;

use drumfire_wire::limits::{ACK_RANGES_SENT, MESSAGE_LIMIT_BYTES, PACKET_RUN_MESSAGES_MAX};
use drumfire_wire::{AckRange, ChannelId, Delivery, FrameWriter, MessageId, SharedParameters, Skip};

use crate::connection::OpenedPacket;
use crate::frame::{DrawnFrame, range};
use crate::random::Random;
use crate::state::{FRAGMENTED_MAX, Fragmented, SendState};
use crate::swarm::{
    AckChoice, AfterChoice, ChannelChoice, FrameTemplate, IdChoice, Kind, LengthChoice, Mode, Swarm,
    TotalChoice, UNRELIABLE_MAX_BYTES,
};

/// Failed attempts in a row to make a frame, after which a packet is complete.
const TRIES_MAX: u32 = 8;

/// The maximum length in bytes of the fields of a message frame.
const MESSAGE_FIELDS_BYTES: usize = 40;

/// The maximum length in bytes of the length field of a body.
const BODY_LENGTH_BYTES: usize = 2;

/// The maximum length in bytes of a length field in a Skip run.
const SKIPPED_LENGTH_BYTES: usize = 4;

/// Draws packets by the choices of a [`Swarm`], for one connection.
#[derive(Debug)]
pub struct Sender {
    swarm: Swarm,
    random: Random,
    state: SendState,
    /// The current template, and the number of frames that still follow it.
    template: usize,
    left: u64,
    /// Frames made so far.
    made: u64,
    /// The frames that were drawn last, each with the credit that it spent.
    last: Vec<(DrawnFrame, u64)>,
}

impl Sender {
    /// Returns a sender at the first packet of its connection. `peer` are the limits that the other end stated in the handshake.
    #[must_use]
    pub fn new(swarm: &Swarm, random: Random, peer: SharedParameters) -> Self {
        let state = SendState::new(peer, swarm.holds_back_first);
        Self { swarm: swarm.clone(), random, state, template: 0, left: 0, made: 0, last: Vec::new() }
    }

    /// Returns whether the keys change after the packet that was drawn last.
    pub fn changes_keys(&mut self) -> bool {
        self.random.below(10_000) < self.swarm.key_changes
    }

    /// Reads a packet of the server.
    pub fn on_packet(&mut self, packet: &OpenedPacket) {
        self.state.on_packet(packet);
    }

    /// Returns the data of a path challenge that was not answered yet.
    pub(crate) fn take_challenge(&mut self) -> Option<u64> {
        self.state.challenges.pop()
    }

    /// Returns the credit of an end that accepts every message: the initial credit, and a packet more for each that arrived.
    pub(crate) fn credit_for_received(&self) -> u64 {
        let received = self.state.received.back().map_or(0, |newest| newest + 1);
        u64::from(self.state.peer.credit_bytes) + received * 1_200
    }

    /// Records that the server dropped the packet that was drawn last.
    pub fn on_refused(&mut self) {
        self.state.on_refused(&self.last);
    }

    /// Returns the largest number of ids between the lowest missing one and the newest.
    #[must_use]
    pub const fn ids_ahead(&self) -> u64 {
        self.state.ids_ahead
    }

    /// Returns the frames that were drawn last.
    pub fn drawn(&self) -> impl Iterator<Item = &DrawnFrame> {
        self.last.iter().map(|(frame, _)| frame)
    }

    /// Draws the frames of packet `number`, at most `room` bytes, and returns their bytes.
    pub fn draw(&mut self, number: u64, room: usize) -> Vec<u8> {
        let mut memory = vec![0; room];
        let mut writer = FrameWriter::new(&mut memory[..]);
        self.last.clear();
        let mut tries = 0;
        if self.random.happens(self.swarm.acks_percent)
            && let Some(ack) = self.ack(AckChoice::All)
        {
            self.put(&mut writer, ack);
        }
        while self.last.len() < self.swarm.frames_max && tries < TRIES_MAX {
            if self.left == 0 {
                self.next_template();
            }
            self.left = self.left.saturating_sub(1);
            let template = self.swarm.templates[self.template];
            let drawn = self.frame(template, number, writer.remaining_bytes());
            if !drawn.is_some_and(|frame| self.put(&mut writer, frame)) {
                tries += 1;
                self.left = 0;
            }
        }
        let written = writer.written_bytes();
        memory.truncate(written.max(4));
        if self.random.below(10_000) < self.swarm.corrupted {
            let at = self.random.index(memory.len());
            memory[at] = memory[at].wrapping_add(self.random.pick(&[1, 0x80, 0xff]));
        }
        memory
    }

    /// Writes a frame. Returns whether there was room.
    fn put(&mut self, writer: &mut FrameWriter<&mut [u8]>, frame: DrawnFrame) -> bool {
        if frame.write(writer).is_err() {
            return false;
        }
        let charge = self.state.on_drawn(&frame);
        self.state.ids_ahead = self.state.ids_ahead.max(self.state.next - self.state.floor());
        self.made += 1;
        self.last.push((frame, charge));
        true
    }

    fn has_ack(&self) -> bool {
        self.drawn().any(|frame| matches!(frame, DrawnFrame::Ack { .. }))
    }

    fn next_template(&mut self) {
        let count = self.swarm.templates.len();
        self.template =
            if self.swarm.takes_turns { (self.template + 1) % count } else { self.random.index(count) };
        let run = self.swarm.templates[self.template].run;
        self.left = if run > 2 { 1 + self.random.below(run) } else { run };
    }

    /// Draws a frame that follows the template. Returns `None` if the rules do not allow such a frame now.
    fn frame(&mut self, template: FrameTemplate, number: u64, room: usize) -> Option<DrawnFrame> {
        let breaks_rules = self.random.below(10_000) < self.swarm.violations;
        Some(match template.kind {
            Kind::Message => return self.message(template, room, breaks_rules),
            Kind::Fragment => return self.fragment(template, number, room, breaks_rules),
            Kind::Skip => return self.skip(template, breaks_rules),
            Kind::Run => return self.run(template, room, breaks_rules),
            Kind::SkipRun => return self.skip_run(template, room, breaks_rules),
            // A packet holds one ack.
            Kind::Ack if self.has_ack() => return None,
            Kind::Ack => return self.ack(self.swarm.ack),
            Kind::Padding => DrawnFrame::Padding { bytes: 1 + self.random.index(room.min(64)) },
            Kind::Ping => DrawnFrame::Ping,
            Kind::AckRequest => DrawnFrame::AckRequest,
            Kind::Credit => DrawnFrame::Credit(self.random.bits() >> self.random.below(64)),
            Kind::Timestamp => DrawnFrame::Timestamp(self.random.bits() >> self.random.below(64)),
            Kind::PathChallenge => DrawnFrame::PathChallenge(self.random.bits()),
            Kind::PathResponse => {
                DrawnFrame::PathResponse(self.state.challenges.pop().unwrap_or(self.random.bits()))
            }
            Kind::RetireConnectionId if breaks_rules => DrawnFrame::RetireConnectionId(self.random.below(9)),
            Kind::RetireConnectionId => DrawnFrame::RetireConnectionId(self.state.spare_ids.pop()?),
            Kind::Last if !self.random.happens(2) => DrawnFrame::Ping,
            Kind::Last => match self.random.below(3) {
                0 => DrawnFrame::Close { reason_bytes: self.random.pick(&[0, 1, 128]) },
                1 => DrawnFrame::NewConnectionId(self.random.below(3)),
                _ => DrawnFrame::ResumeToken,
            },
        })
    }

    fn message(&mut self, template: FrameTemplate, room: usize, breaks_rules: bool) -> Option<DrawnFrame> {
        let room = room.checked_sub(MESSAGE_FIELDS_BYTES)?;
        let known = self.id(template.id);
        let fragmented = known.and_then(|id| self.state.fragmented.get(&id).copied());
        let bytes = match (template.length, fragmented) {
            (LengthChoice::Matching, Some(fragmented)) => fragmented.total as usize,
            (length, _) => length.value(&mut self.random, room),
        };
        if bytes > room {
            return None;
        }
        let matches = fragmented.filter(|_| template.length == LengthChoice::Matching);
        let (channel, delivery) = match matches {
            Some(fragmented) => (fragmented.channel, fragmented.delivery),
            None => (self.channel(template.channel), self.delivery(template, known?)),
        };
        self.allowed(DrawnFrame::Message { channel, delivery, bytes }, breaks_rules)
    }

    fn fragment(
        &mut self,
        template: FrameTemplate,
        number: u64,
        room: usize,
        breaks_rules: bool,
    ) -> Option<DrawnFrame> {
        let room = room.checked_sub(MESSAGE_FIELDS_BYTES)?;
        let is_reliable = matches!(
            template.mode,
            Mode::ReliableUnordered | Mode::ReliableSequenced | Mode::ReliableOrdered
        );
        let (name, known) = if is_reliable {
            let id = self.id(template.id)?;
            (0, self.state.fragmented.get(&id).copied())
        } else {
            let name = self.unreliable_number(template.id, number);
            (name, self.state.unreliable.get(&name).copied())
        };
        let fragmented = match known {
            Some(fragmented) if !breaks_rules => fragmented,
            _ => Fragmented {
                channel: self.channel(template.channel),
                delivery: match template.mode {
                    Mode::Unreliable | Mode::ReliableLatest => Delivery::Unreliable,
                    Mode::UnreliableSequenced => Delivery::UnreliableSequenced,
                    _ => {
                        let id = self.id(template.id)?;
                        self.delivery(template, id)
                    }
                },
                total: self.total(template.total, is_reliable, breaks_rules),
                end: 0,
                whole: 0,
            },
        };
        let bytes = template.length.value(&mut self.random, room);
        let bytes = bytes.clamp(1, (fragmented.total as usize).min(room.max(1)));
        let last_offset = fragmented.total.checked_sub(u32::try_from(bytes).ok()?)?;
        let offset = template.offset.value(&mut self.random, fragmented.end, last_offset);
        // Past the end of the message the template begins again.
        let offset = if offset > last_offset { 0 } else { offset };
        let frame = DrawnFrame::Fragment {
            channel: fragmented.channel,
            delivery: fragmented.delivery,
            number: name,
            total: fragmented.total,
            offset,
            bytes,
        };
        let is_one_more = known.is_none() && is_reliable;
        if is_one_more && self.state.fragmented.len() >= FRAGMENTED_MAX && !breaks_rules {
            return None;
        }
        self.allowed(frame, breaks_rules)
    }

    fn skip(&mut self, template: FrameTemplate, breaks_rules: bool) -> Option<DrawnFrame> {
        let id = self.id(template.id)?;
        let bytes = match template.length {
            LengthChoice::Fill => MESSAGE_LIMIT_BYTES,
            length => u32::try_from(length.value(&mut self.random, 1_100)).ok()?,
        };
        let bytes = match self.state.fragmented.get(&id) {
            Some(fragmented) if template.length == LengthChoice::Matching => fragmented.total,
            _ => bytes,
        };
        let (id, after) = (MessageId(id), self.after(template.after, template.channel, id));
        let frame = DrawnFrame::Skip(Skip { channel: self.channel(template.channel), id, after, bytes });
        self.allowed(frame, breaks_rules)
    }

    fn run(&mut self, template: FrameTemplate, room: usize, breaks_rules: bool) -> Option<DrawnFrame> {
        let room = room.checked_sub(MESSAGE_FIELDS_BYTES)?;
        let id = self.id(template.id)?;
        let count = self.count(room);
        let room = (room / usize::from(count)).saturating_sub(BODY_LENGTH_BYTES);
        let bytes = template.length.value(&mut self.random, room);
        let delivery = match self.delivery(template, id) {
            Delivery::ReliableSequenced { id } => Delivery::ReliableUnordered { id },
            Delivery::ReliableLatest { .. } => Delivery::Unreliable,
            delivery => delivery,
        };
        let frame = DrawnFrame::Run { channel: self.channel(template.channel), delivery, count, bytes };
        self.allowed(frame, breaks_rules)
    }

    fn skip_run(&mut self, template: FrameTemplate, room: usize, breaks_rules: bool) -> Option<DrawnFrame> {
        let Some(DrawnFrame::Skip(first)) = self.skip(template, true) else { return None };
        let count = self.count(room.checked_sub(MESSAGE_FIELDS_BYTES)? / SKIPPED_LENGTH_BYTES);
        self.allowed(DrawnFrame::SkipRun { first, count }, breaks_rules)
    }

    /// Draws the number of messages of a run whose bodies have at most `room` bytes.
    fn count(&mut self, room: usize) -> u16 {
        let most = u16::try_from(room).unwrap_or(u16::MAX).clamp(1, PACKET_RUN_MESSAGES_MAX);
        let drawn = self.random.pick(&[1, 2, 3, 8, 64, PACKET_RUN_MESSAGES_MAX]);
        drawn.min(most)
    }

    /// Returns the frame if the server must accept it by the model, or if it may break a rule.
    fn allowed(&self, frame: DrawnFrame, breaks_rules: bool) -> Option<DrawnFrame> {
        (breaks_rules || self.state.is_allowed(&frame)).then_some(frame)
    }

    /// Makes an ack of packets that arrived, or `None` if none did.
    pub(crate) fn ack(&mut self, choice: AckChoice) -> Option<DrawnFrame> {
        let received = &self.state.received;
        let newest = *received.back()?;
        let mut ranges: Vec<AckRange> = Vec::new();
        match choice {
            AckChoice::Newest => ranges.push(range(newest, newest)),
            AckChoice::Any => {
                let number = received[received.len() - 1 - self.random.index(received.len().min(100))];
                ranges.push(range(number, number));
            }
            AckChoice::All | AckChoice::Half => {
                let parity = newest % 2;
                let numbers = received.iter().rev().copied();
                for number in numbers.filter(|number| choice == AckChoice::All || number % 2 == parity) {
                    let count = ranges.len();
                    match ranges.last_mut() {
                        Some(last) if last.smallest().0 <= number + 1 => {
                            *last = range(number.min(last.smallest().0), last.largest().0);
                        }
                        _ if count == ACK_RANGES_SENT => break,
                        _ => ranges.push(range(number, number)),
                    }
                }
            }
        }
        let delays = [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(25), Duration::MAX];
        Some(DrawnFrame::Ack { delay: self.random.pick(&delays), ranges })
    }

    fn id(&mut self, choice: IdChoice) -> Option<u64> {
        let id = choice.value(&self.state, &mut self.random);
        // The message that is held back is never sent.
        (id >= self.state.first).then_some(id)
    }

    /// Chooses the packet number that identifies a fragmented unreliable message.
    fn unreliable_number(&mut self, choice: IdChoice, number: u64) -> u64 {
        match choice {
            IdChoice::Next => number,
            IdChoice::Same => self.state.unreliable.last_key_value().map_or(number, |(name, _)| *name),
            // More than one message in a packet: numbers that no packet had.
            IdChoice::Ahead | IdChoice::Edge => number.saturating_sub(self.random.below(20)),
            IdChoice::Fragmented | IdChoice::Recent | IdChoice::Lowest => {
                let at = self.random.index(self.state.unreliable.len());
                self.state.unreliable.keys().nth(at).copied().unwrap_or(number)
            }
        }
    }

    fn delivery(&mut self, template: FrameTemplate, id: u64) -> Delivery {
        let after = self.after(template.after, template.channel, id);
        let id = MessageId(id);
        match template.mode {
            Mode::Unreliable => Delivery::Unreliable,
            Mode::UnreliableSequenced => Delivery::UnreliableSequenced,
            Mode::ReliableUnordered => Delivery::ReliableUnordered { id },
            Mode::ReliableSequenced => Delivery::ReliableSequenced { id },
            Mode::ReliableOrdered => Delivery::ReliableOrdered { id, after },
            Mode::ReliableLatest => {
                self.state.version += 1;
                let key = match template.id {
                    IdChoice::Next | IdChoice::Ahead => self.random.bits(),
                    _ => self.random.below(16),
                };
                Delivery::ReliableLatest { key, version: self.state.version }
            }
        }
    }

    fn after(&mut self, choice: AfterChoice, channel: ChannelChoice, id: u64) -> Option<MessageId> {
        let after = choice.value(&self.state, &mut self.random, channel, id);
        after.filter(|after| *after < id).map(MessageId)
    }

    fn channel(&mut self, choice: ChannelChoice) -> ChannelId {
        ChannelId(match choice {
            ChannelChoice::One(channel) => channel,
            ChannelChoice::Alternate => u16::from(self.made.is_multiple_of(2)),
            ChannelChoice::Few => u16::try_from(self.random.below(8)).unwrap_or(0),
            ChannelChoice::Any => u16::try_from(self.random.below(65_536)).unwrap_or(0),
        })
    }

    fn total(&mut self, choice: TotalChoice, is_reliable: bool, breaks_rules: bool) -> u32 {
        let largest = if is_reliable { self.state.peer.message_max_bytes } else { UNRELIABLE_MAX_BYTES };
        let total = choice.value(&mut self.random, largest);
        if breaks_rules { total } else { total.min(largest) }
    }
}
