//! A model of the send queue with one record per message, and a simple receiver, next to the queue under the same random
//! operations.
//!
//! The model knows the fate of each message from the frames that were written and from the fates of their packets. It must
//! agree with the queue on receipts, on the messages that were given up, on the order of each channel, and on the memory.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use drumfire_puppet::Random;
use drumfire_tries::tries;
use drumfire_wire::{Delivery, Frame, FrameWriter, Frames};

use super::super::*;
use crate::channel::block::{BlockOptions, MessageBlock};
use crate::channel::{Redundancy, WhenFull};
use crate::loss::PacketFate;

/// The longest reliable message that the peer accepts, in bytes.
const PEER_MAX_BYTES: usize = 3_000;

const CHANNELS: u64 = 3;

/// A message that the queue accepted.
struct Record {
    channel: u16,
    mode: Mode,
    payload_bytes: usize,
    deadline: Option<Moment>,
    has_receipt: bool,
    /// The channel drops the oldest messages when the memory is full, or a newer message replaces this one.
    is_replaceable: bool,
    /// The bytes that were acknowledged.
    acknowledged: BTreeSet<usize>,
    /// The bytes that the receiver has.
    received: BTreeSet<usize>,
    /// A Skip was written instead of the message.
    is_skipped: bool,
    /// The last packet with the message, unless it waits to be sent again in any case. Only the fate of this packet
    /// matters to a value.
    last_packet: Option<u64>,
    /// The outcome that the queue reported.
    outcome: Option<Outcome>,
}

/// The part of a message that a packet carries.
#[derive(Clone)]
struct Content {
    number: u32,
    bytes: std::ops::Range<usize>,
    id: Option<u64>,
    after: Option<u64>,
    is_skip: bool,
}

struct SentPacket {
    number: u64,
    fate_ids: Vec<MessageId>,
    contents: Vec<Content>,
}

/// The messages with ids that arrived, and those among them that were delivered.
#[derive(Default)]
struct Receiver {
    arrived: BTreeMap<u64, (u32, Option<u64>, bool)>,
    delivered_ids: BTreeSet<u64>,
    delivered: Vec<u32>,
}

struct World {
    random: Random,
    queue: SendQueue,
    now: Moment,
    next_packet: u64,
    next_number: u32,
    receipt_percent: u64,
    edge_bytes: u64,
    records: BTreeMap<u32, Record>,
    in_flight: Vec<SentPacket>,
    /// The message of each id, and of each fragmented message without an id by the number of its first packet.
    by_id: BTreeMap<u64, u32>,
    by_packet: BTreeMap<u64, u32>,
    receiver: Receiver,
}

impl World {
    fn of_seed(seed: u64) -> Self {
        let mut random = Random::of_seed(seed);
        let mut queue = SendQueue::new(IdleSendState::new(), KeyedBuildHasher::new(seed));
        queue.credit.set_parameters(u32::try_from(PEER_MAX_BYTES).unwrap(), 40_000);
        Self {
            receipt_percent: random.pick(&[0, 30, 100, 100]),
            random,
            queue,
            now: Moment::ORIGIN,
            next_packet: 0,
            next_number: 0,
            edge_bytes: 40_000,
            records: BTreeMap::new(),
            in_flight: Vec::new(),
            by_id: BTreeMap::new(),
            by_packet: BTreeMap::new(),
            receiver: Receiver::default(),
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..3 if self.receipt_percent < 100 => self.push_block(),
            0..40 => (0..=self.random.below(12)).for_each(|_| self.push()),
            40..65 => self.fill_any(),
            65..80 => self.resolve_packet(PacketFate::Acknowledged),
            80..88 => self.resolve_packet(PacketFate::Lost),
            88..92 => self.repeat(),
            92..95 => self.now = self.now.after(Duration::from_millis(self.random.below(20))),
            95..97 => self.set_options(),
            _ => self.grant(20_000),
        }
        self.queue.assert_invariants();
    }

    fn push(&mut self) {
        let mode = self.random.pick(&[
            Mode::Unreliable,
            Mode::UnreliableSequenced,
            Mode::ReliableUnordered,
            Mode::ReliableOrdered,
            Mode::ReliableOrdered,
            Mode::ReliableOrdered,
            Mode::ReliableSequenced,
            Mode::ReliableLatest,
        ]);
        let bytes = match self.random.below(40) {
            0 if mode != Mode::ReliableLatest => 1_146 + self.random.index(PEER_MAX_BYTES),
            1..5 => 4 + self.random.index(1_020),
            _ => 4 + self.random.index(60),
        };
        let channel = u16::try_from(self.random.below(CHANNELS)).unwrap();
        let mut options = SendOptions { key: self.random.below(3), ..SendOptions::new(mode) };
        options.priority =
            self.random.pick(&[Priority::Normal, Priority::Normal, Priority::Urgent, Priority::Bulk]);
        // A fragmented unreliable message of which a part was lost could expire after its outcome is known.
        let may_expire = mode.is_reliable() || bytes < 1_146;
        let has_lifetime = may_expire && self.random.happens(20);
        options.lifetime = has_lifetime.then(|| Duration::from_millis(1 + self.random.below(20)));
        let number = self.next_number;
        self.next_number += 1;
        let mut payload = vec![0; bytes];
        payload[..4].copy_from_slice(&number.to_le_bytes());
        let has_receipt = self.random.happens(self.receipt_percent);
        let receipt = has_receipt.then(|| ReceiptId(NonZeroU64::new(u64::from(number) + 1).unwrap()));
        let limit_bytes = self.random.pick(&[usize::MAX, 60_000, 8_000]);
        let is_dropping = self.queue.options_of(ChannelId(channel)).when_full == WhenFull::DropOldest;
        let message = Message::new(ChannelId(channel), payload, options);
        let pushed = self.queue.push(limit_bytes, self.now, message, receipt, IfFull::Notify);
        let expired_count = self.pop_expired(Some(number).filter(|_| has_receipt));
        let refused_count = match pushed {
            PushResult::Taken(count) => {
                // A message that may be dropped, or replaced by a newer one, may expire whatever its lifetime.
                let record = Record {
                    channel,
                    mode,
                    payload_bytes: bytes,
                    deadline: options.lifetime.map(|lifetime| self.now.after(lifetime)),
                    has_receipt,
                    is_replaceable: is_dropping
                        || matches!(mode, Mode::ReliableSequenced | Mode::ReliableLatest),
                    acknowledged: BTreeSet::new(),
                    received: BTreeSet::new(),
                    is_skipped: false,
                    last_packet: None,
                    outcome: None,
                };
                self.records.insert(number, record);
                count
            }
            PushResult::Dropped(count) => count,
            PushResult::Full | PushResult::Overflow => 0,
        };
        if self.receipt_percent == 100 {
            let replaced_count = expired_count - refused_count;
            assert!(
                replaced_count <= u32::from(matches!(mode, Mode::ReliableSequenced | Mode::ReliableLatest))
            );
        }
    }

    /// Queues messages of a block that other connections could share. The others are refused.
    fn push_block(&mut self) {
        let mode = self.random.pick(&[
            Mode::Unreliable,
            Mode::UnreliableSequenced,
            Mode::ReliableUnordered,
            Mode::ReliableOrdered,
        ]);
        let channel = u16::try_from(self.random.below(CHANNELS)).unwrap();
        let mut options = SendOptions::new(mode);
        options.priority = self.random.pick(&[Priority::Normal, Priority::Urgent]);
        options.lifetime = self.random.happens(20).then(|| Duration::from_millis(1 + self.random.below(20)));
        let mut block = MessageBlock::new();
        let first_number = self.next_number;
        let is_long = self.random.happens(20);
        for _ in 0..=self.random.below(60) {
            let bytes = 4 + self.random.index(if is_long { 1_000 } else { 60 });
            let mut payload = vec![0; bytes];
            payload[..4].copy_from_slice(&self.next_number.to_le_bytes());
            if block.push(&payload) {
                self.next_number += 1;
            }
        }
        let start = self.random.index(block.len());
        let range = start..start + self.random.index(block.len() - start + 1);
        let limit_bytes = self.random.pick(&[usize::MAX, 60_000, 8_000]);
        let is_replaceable = self.queue.options_of(ChannelId(channel)).when_full == WhenFull::DropOldest;
        let of_channel = BlockOptions { channel: ChannelId(channel), options };
        let (block, before_bytes) = (Arc::new(block), self.queue.used_bytes());
        let accepted = self.queue.push_block(limit_bytes, self.now, &of_channel, &block, range.clone());
        assert!(accepted <= range.len());
        let mut charged_bytes = 0;
        for index in range.start..range.start + accepted {
            let payload_bytes = block.payload(index).len();
            charged_bytes += charge(payload_bytes);
            let record = Record {
                channel,
                mode,
                payload_bytes,
                deadline: options.lifetime.map(|lifetime| self.now.after(lifetime)),
                has_receipt: false,
                is_replaceable,
                acknowledged: BTreeSet::new(),
                received: BTreeSet::new(),
                is_skipped: false,
                last_packet: None,
                outcome: None,
            };
            self.records.insert(first_number + u32::try_from(index).unwrap(), record);
        }
        assert_eq!(self.queue.used_bytes(), before_bytes + charged_bytes);
    }

    fn set_options(&mut self) {
        let options = ChannelOptions::default()
            .redundancy(self.random.pick(&[Redundancy::None, Redundancy::One, Redundancy::Three]))
            .when_full(self.random.pick(&[WhenFull::Block, WhenFull::DropOldest, WhenFull::DropNewest]))
            .weight(self.random.pick(&[1, 3].map(|weight| std::num::NonZeroU8::new(weight).unwrap())));
        let channel = u16::try_from(self.random.below(CHANNELS)).unwrap();
        // Messages that wait already may now be dropped.
        for record in self.records.values_mut().filter(|record| record.channel == channel) {
            record.is_replaceable |= options.when_full == WhenFull::DropOldest;
        }
        self.queue.set_options(ChannelId(channel), options);
    }

    fn grant(&mut self, bytes: u64) {
        self.edge_bytes += bytes;
        self.queue.on_credit(self.edge_bytes);
    }

    fn fill_any(&mut self) {
        let room = match self.random.below(4) {
            0 => self.random.index(200),
            _ => 200 + self.random.index(1_000),
        };
        self.fill(room);
    }

    /// Fills a packet, and registers its frames. Returns whether it contains anything.
    fn fill(&mut self, room: usize) -> bool {
        let (mut memory, mut fate_ids) = (vec![0; room], Vec::new());
        let mut writer = FrameWriter::new(&mut memory[..]);
        let number = self.next_packet;
        self.next_packet += 1;
        let packet = Packet { number, now: self.now, room_bytes: 1_150 };
        let filled = self.queue.fill(packet, &mut writer, |id| fate_ids.push(id));
        let bytes = writer.written_bytes();
        assert_eq!(fate_ids.len(), (filled.reliable_count + filled.receipt_count) as usize);
        let mut contents = Vec::new();
        for frame in Frames::new(&memory[..bytes]) {
            self.read(frame.unwrap(), &mut contents);
        }
        for content in &contents {
            let record = self.records.get_mut(&content.number).unwrap();
            record.is_skipped |= content.is_skip;
            record.last_packet = Some(number);
        }
        let expired_count = self.pop_expired(None);
        assert!(expired_count <= filled.expired_count);
        assert!(self.receipt_percent < 100 || expired_count == filled.expired_count);
        let charged = self.by_id.values().map(|number| charge(self.records[number].payload_bytes));
        assert!(charged.sum::<usize>() as u64 <= self.edge_bytes, "messages were sent without credit");
        if !contents.is_empty() {
            self.in_flight.push(SentPacket { number, fate_ids, contents });
        }
        bytes > 0
    }

    /// Adds the messages of a frame to the contents of a packet.
    fn read(&mut self, frame: Frame<'_>, contents: &mut Vec<Content>) {
        match frame {
            Frame::Message(message) => {
                let mut reader = self.reader(contents, message.delivery, true);
                reader(message.payload, 0, 0);
            }
            Frame::Run(run) => {
                let mut reader = self.reader(contents, run.delivery, true);
                run.bodies.payloads().for_each(|payload| reader(payload, 0, 0));
            }
            Frame::Fragment(fragment) => {
                let begin = usize::try_from(fragment.offset_bytes).unwrap();
                let mut reader = self.reader(contents, fragment.message.delivery, begin == 0);
                reader(fragment.message.payload, begin, fragment.number);
            }
            Frame::Skip(skip) => self.read_skip(contents, skip.id.0, skip.after, skip.bytes),
            Frame::SkipRun(skip) => {
                let mut after = skip.after;
                for (id, bytes) in (skip.id.0..).zip(skip.lengths.iter()) {
                    self.read_skip(contents, id, after, bytes);
                    after = Some(MessageId(id));
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn read_skip(&mut self, contents: &mut Vec<Content>, id: u64, after: Option<MessageId>, bytes: u32) {
        let payload_bytes = usize::try_from(bytes).unwrap();
        // A fragmented message may be given up before any part of it fitted a packet.
        let is_unknown = |(number, record): &(&u32, &Record)| {
            record.payload_bytes == payload_bytes
                && record.mode.needs_id()
                && record.deadline.is_some_and(|deadline| deadline <= self.now)
                && !self.by_id.values().any(|known| known == *number)
        };
        let known = self.by_id.get(&id).copied();
        let number = known.unwrap_or_else(|| *self.records.iter().find(is_unknown).unwrap().0);
        self.by_id.insert(id, number);
        assert_eq!(self.records[&number].payload_bytes, payload_bytes);
        let after = after.map(|after| after.0);
        contents.push(Content { number, bytes: 0..payload_bytes, id: Some(id), after, is_skip: true });
    }

    /// Returns a function that adds messages with consecutive ids, from their payload and where it begins.
    fn reader<'a>(
        &'a mut self,
        contents: &'a mut Vec<Content>,
        delivery: Delivery,
        has_number: bool,
    ) -> impl FnMut(&[u8], usize, u64) + 'a {
        let mut id = delivery.id().map(|id| id.0);
        let mut after = match delivery {
            Delivery::ReliableOrdered { after, .. } => after.map(|after| after.0),
            _ => None,
        };
        let is_ordered = matches!(delivery, Delivery::ReliableOrdered { .. });
        move |payload, begin, packet| {
            let number = if has_number {
                u32::from_le_bytes(*payload.first_chunk().unwrap())
            } else {
                id.map_or_else(|| self.by_packet[&packet], |id| self.by_id[&id])
            };
            let record = &self.records[&number];
            assert!(!record.is_skipped, "message {number} is sent after its Skip");
            assert_eq!(record.mode.needs_id(), id.is_some());
            assert_eq!(record.mode == Mode::ReliableOrdered, is_ordered);
            match id {
                Some(id) => assert_eq!(*self.by_id.entry(id).or_insert(number), number),
                None => _ = self.by_packet.insert(packet, number),
            }
            let bytes = begin..begin + payload.len();
            contents.push(Content { number, bytes, id, after, is_skip: false });
            after = id.filter(|_| is_ordered);
            id = id.map(|id| id + 1);
        }
    }

    fn resolve_packet(&mut self, fate: PacketFate) {
        if self.in_flight.is_empty() {
            return;
        }
        let packet = self.in_flight.remove(self.random.index(self.in_flight.len().min(6)));
        // A packet that counts as lost may have arrived.
        if fate == PacketFate::Acknowledged || self.random.happens(25) {
            packet.contents.iter().for_each(|content| self.receive(content));
        }
        for id in packet.fate_ids {
            self.queue.on_fate(fate, id, packet.number);
        }
        let mut expected = HashSet::new();
        for Content { number, bytes, .. } in packet.contents {
            let record = self.records.get_mut(&number).unwrap();
            let is_last = record.mode != Mode::ReliableLatest || record.last_packet == Some(packet.number);
            let is_open = record.outcome.is_none() && record.has_receipt && is_last;
            if fate == PacketFate::Acknowledged {
                record.acknowledged.extend(bytes);
                if is_open && record.acknowledged.len() == record.payload_bytes {
                    expected.insert((number, Outcome::Acknowledged));
                }
            } else if is_open && !record.mode.is_reliable() {
                expected.insert((number, Outcome::Lost));
            }
        }
        let outcomes: Vec<_> = std::iter::from_fn(|| self.queue.pop_receipt()).collect();
        let numbers = outcomes.iter().map(|(id, outcome)| (u32::try_from(id.0.get() - 1).unwrap(), *outcome));
        let answered: HashSet<_> = numbers.collect();
        assert_eq!((answered.len(), &answered), (outcomes.len(), &expected), "after {fate:?}");
        for (number, outcome) in expected {
            self.records.get_mut(&number).unwrap().outcome = Some(outcome);
        }
    }

    fn repeat(&mut self) {
        if !self.in_flight.is_empty() {
            let packet = &self.in_flight[self.random.index(self.in_flight.len())];
            packet.fate_ids.iter().for_each(|id| self.queue.repeat(*id));
            for content in &packet.contents {
                let record = self.records.get_mut(&content.number).unwrap();
                record.last_packet.take_if(|number| *number == packet.number);
            }
        }
    }

    /// Reads the receipts of messages that expired. Returns their number. `new` is a message that was just pushed.
    fn pop_expired(&mut self, new: Option<u32>) -> u32 {
        let mut count = 0;
        while let Some((receipt, outcome)) = self.queue.pop_receipt() {
            assert_eq!(outcome, Outcome::Expired);
            count += 1;
            let number = u32::try_from(receipt.0.get() - 1).unwrap();
            let Some(record) = self.records.get_mut(&number) else {
                assert_eq!(new, Some(number), "an unknown message expired");
                continue;
            };
            assert_eq!((record.outcome, record.has_receipt), (None, true), "message {number} expired");
            let is_expired = record.deadline.is_some_and(|deadline| deadline <= self.now);
            let is_too_long = record.payload_bytes > PEER_MAX_BYTES;
            assert!(is_expired || is_too_long || record.is_replaceable, "message {number} expired early");
            record.outcome = Some(Outcome::Expired);
        }
        count
    }

    /// Delivers a message to the simple receiver, with all that waited for it.
    fn receive(&mut self, content: &Content) {
        let record = self.records.get_mut(&content.number).unwrap();
        record.received.extend(content.bytes.clone());
        let Some(id) = content.id else { return };
        if record.received.len() < record.payload_bytes {
            return;
        }
        let receiver = &mut self.receiver;
        receiver.arrived.entry(id).or_insert((content.number, content.after, content.is_skip));
        while let Some((&id, &(number, _, is_skip))) = receiver.arrived.iter().find(|(id, (_, after, _))| {
            !receiver.delivered_ids.contains(id)
                && after.is_none_or(|after| receiver.delivered_ids.contains(&after))
        }) {
            receiver.delivered_ids.insert(id);
            if !is_skip {
                receiver.delivered.push(number);
            }
        }
    }

    /// Sends everything without further loss, and compares what remains.
    fn finish(&mut self) {
        self.grant(u64::from(u32::MAX));
        for _ in 0..10_000 {
            if !self.queue.has_sendable() && self.in_flight.is_empty() {
                break;
            }
            self.fill(1_200);
            self.resolve_packet(PacketFate::Acknowledged);
            self.queue.assert_invariants();
        }
        assert_eq!(self.queue.used_bytes(), 0, "memory is in use at rest");
        self.queue.receipts.take_if(|receipts| receipts.is_empty());
        assert!(self.queue.receipts.is_none() && !self.queue.has_sendable());

        let written: BTreeSet<u32> = self.by_id.values().copied().collect();
        let delivered: BTreeSet<u32> = self.receiver.delivered.iter().copied().collect();
        assert_eq!(delivered.len(), self.receiver.delivered.len(), "a message was delivered twice");
        for (number, record) in &self.records {
            assert!(record.outcome.is_some() || !record.has_receipt, "message {number} has no outcome");
            let is_given_up = match record.outcome {
                Some(outcome) => outcome == Outcome::Expired,
                None => record.is_skipped || (record.mode.needs_id() && !written.contains(number)),
            };
            if record.mode.needs_id() {
                assert!(is_given_up || delivered.contains(number), "message {number} is missing");
            } else if record.mode == Mode::ReliableLatest && record.has_receipt {
                assert!(is_given_up || !record.received.is_empty(), "value {number} is missing");
            }
        }
        // Numbers are given in the order in which messages are queued.
        for channel in 0..u16::try_from(CHANNELS).unwrap() {
            let is_ordered = |number: &&u32| {
                let record = &self.records[*number];
                (record.channel, record.mode) == (channel, Mode::ReliableOrdered)
            };
            let order = self.receiver.delivered.iter().filter(is_ordered);
            assert!(order.is_sorted(), "channel {channel} is out of order");
        }
    }
}

#[test]
fn the_queue_agrees_with_a_model_of_single_messages() {
    for seed in 0..u64::from(tries(10_000)) {
        let mut world = World::of_seed(seed);
        let steps = world.random.pick(&[50, 200, 800]);
        (0..steps).for_each(|_| world.step());
        world.finish();
    }
}
