//! Messages waiting to be sent, and reliable ones until they are acknowledged.
//!
//! Messages leave in the order they came, lost ones first; ids are given at first transmission (PROTOCOL,
//! "Messages"). Which packet takes them, and when, is decided by whoever builds packets.

use std::collections::{HashMap, VecDeque};

use bytes::{BufMut, Bytes};
use drumfire_wire::{ChannelId, Delivery, FrameWriter, Message, MessageId};

use super::Mode;
use crate::ids::FoldBuild;
use crate::limits::{ITEM_CHARGE_BYTES, MESSAGE_IDS_AHEAD};
use crate::loss::Fate;

/// The messages of one connection on their way out.
#[derive(Debug)]
pub(crate) struct SendQueue {
    unreliable: VecDeque<Waiting>,
    reliable: VecDeque<Waiting>,
    /// Reliable messages that were sent, by id from `base` on.
    sent: VecDeque<Sent>,
    /// The smallest id not yet acknowledged.
    base: u64,
    lost: VecDeque<u64>,
    /// Per channel with something under way, the newest unacknowledged id.
    newest: HashMap<ChannelId, u64, FoldBuild>,
    stamp: u64,
    used_bytes: usize,
    limit_bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    channel: ChannelId,
    payload: Bytes,
    /// Which of two queues' fronts came first.
    stamp: u64,
}

#[derive(Debug)]
struct Sent {
    channel: ChannelId,
    payload: Bytes,
    /// The id of the channel's message before, the newest unacknowledged one when last looked at.
    previous: Option<u64>,
    /// The packet that carried it last.
    packet: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    Lost,
    Acknowledged,
}

/// What was put into a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) message_count: u32,
    pub(crate) reliable_count: u32,
    pub(crate) resent_count: u32,
}

impl SendQueue {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            unreliable: VecDeque::new(),
            reliable: VecDeque::new(),
            sent: VecDeque::new(),
            base: 0,
            lost: VecDeque::new(),
            newest: HashMap::with_hasher(FoldBuild::new(0)),
            stamp: 0,
            used_bytes: 0,
            limit_bytes,
        }
    }

    /// Takes a message in; false when there is no room for it.
    pub(crate) fn push(&mut self, channel: ChannelId, mode: Mode, payload: Bytes) -> bool {
        let used_bytes = self.used_bytes.saturating_add(charge(payload.len()));
        if used_bytes > self.limit_bytes {
            return false;
        }
        self.used_bytes = used_bytes;
        let waiting = Waiting { channel, payload, stamp: self.stamp };
        self.stamp = self.stamp.wrapping_add(1);
        match mode {
            Mode::Unreliable => self.unreliable.push_back(waiting),
            Mode::ReliableOrdered => self.reliable.push_back(waiting),
        }
        true
    }

    /// Whether a packet could take something.
    pub(crate) fn has_sendable(&self) -> bool {
        !self.lost.is_empty()
            || !self.unreliable.is_empty()
            || (!self.reliable.is_empty() && self.may_give_id())
    }

    /// Writes as many messages as fit into packet `number`; `carry` hears the ids of the reliable ones.
    pub(crate) fn fill<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        mut carry: impl FnMut(MessageId),
    ) -> Filled {
        let mut filled = Filled::default();
        while self.write_lost(number, writer, &mut carry, &mut filled) {}
        if self.lost.is_empty() {
            while self.write_waiting(number, writer, &mut carry, &mut filled) {}
        }
        filled
    }

    /// Takes in what became of a packet with message `id`.
    pub(crate) fn on_fate(&mut self, fate: Fate, id: MessageId, packet: u64) {
        let Some(sent) = sent_mut(&mut self.sent, self.base, id.0) else { return };
        match fate {
            Fate::Lost => {
                // A copy in a later packet is still under way.
                if sent.packet == packet && sent.state == State::UnderWay {
                    sent.state = State::Lost;
                    self.lost.push_back(id.0);
                }
            }
            Fate::Acknowledged => self.acknowledge(id.0),
        }
    }

    /// Sends a message again whatever became of it so far, unless it was acknowledged.
    pub(crate) fn repeat(&mut self, id: MessageId) {
        if let Some(sent) = sent_mut(&mut self.sent, self.base, id.0)
            && sent.state == State::UnderWay
        {
            sent.state = State::Lost;
            self.lost.push_back(id.0);
        }
    }

    /// Drops everything; nothing is sent any more.
    pub(crate) fn clear(&mut self) {
        *self = Self { base: self.base, ..Self::new(0) };
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        self.unreliable.shrink_to_fit();
        self.reliable.shrink_to_fit();
        self.sent.shrink_to_fit();
        self.lost.shrink_to_fit();
        self.newest.shrink_to_fit();
    }

    /// The receiver refuses ids too far beyond what it misses, which is never below what is unacknowledged.
    fn may_give_id(&self) -> bool {
        u64::try_from(self.sent.len()).is_ok_and(|under_way| under_way < MESSAGE_IDS_AHEAD)
    }

    /// Writes the oldest lost message; false when there is none or it does not fit.
    fn write_lost<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut Filled,
    ) -> bool {
        let Some(&id) = self.lost.front() else { return false };
        let still_lost = sent_ref(&self.sent, self.base, id)
            .filter(|sent| sent.state == State::Lost)
            .map(|sent| sent.previous);
        let Some(previous) = still_lost else {
            self.lost.pop_front();
            return true;
        };
        let after = self.newest_unacknowledged(previous);
        let Some(sent) = sent_mut(&mut self.sent, self.base, id) else { return false };
        sent.previous = after;
        let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) };
        if writer.message(&Message { channel: sent.channel, delivery, payload: &sent.payload }).is_err() {
            return false;
        }
        sent.state = State::UnderWay;
        sent.packet = number;
        self.lost.pop_front();
        carry(MessageId(id));
        filled.message_count = filled.message_count.saturating_add(1);
        filled.reliable_count = filled.reliable_count.saturating_add(1);
        filled.resent_count = filled.resent_count.saturating_add(1);
        true
    }

    /// Writes the message that waits longest; false when there is none or it does not fit.
    fn write_waiting<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut Filled,
    ) -> bool {
        let reliable = self.reliable.front().filter(|_| self.may_give_id()).map(|waiting| waiting.stamp);
        let unreliable = self.unreliable.front().map(|waiting| waiting.stamp);
        let is_written = match (reliable, unreliable) {
            (None, None) => false,
            (Some(reliable), Some(unreliable)) if reliable < unreliable => {
                self.write_reliable(number, writer, carry)
            }
            (Some(_), None) => self.write_reliable(number, writer, carry),
            (_, Some(_)) => return self.write_unreliable(writer, filled),
        };
        if is_written {
            filled.message_count = filled.message_count.saturating_add(1);
            filled.reliable_count = filled.reliable_count.saturating_add(1);
        }
        is_written
    }

    fn write_unreliable<B: BufMut>(&mut self, writer: &mut FrameWriter<B>, filled: &mut Filled) -> bool {
        let Some(Waiting { channel, payload, .. }) = self.unreliable.front() else { return false };
        if writer.message(&Message { channel: *channel, delivery: Delivery::Unreliable, payload }).is_err() {
            return false;
        }
        self.used_bytes = self.used_bytes.saturating_sub(charge(payload.len()));
        self.unreliable.pop_front();
        filled.message_count = filled.message_count.saturating_add(1);
        true
    }

    fn write_reliable<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
    ) -> bool {
        let Some(Waiting { channel, payload, .. }) = self.reliable.front() else { return false };
        let under_way = u64::try_from(self.sent.len()).unwrap_or(u64::MAX);
        let id = self.base.saturating_add(under_way);
        let previous = self.newest.get(channel).copied();
        let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: previous.map(MessageId) };
        if writer.message(&Message { channel: *channel, delivery, payload }).is_err() {
            return false;
        }
        self.newest.insert(*channel, id);
        if let Some(Waiting { channel, payload, .. }) = self.reliable.pop_front() {
            self.sent.push_back(Sent { channel, payload, previous, packet: number, state: State::UnderWay });
        }
        carry(MessageId(id));
        true
    }

    fn acknowledge(&mut self, id: u64) {
        let Some(sent) = sent_mut(&mut self.sent, self.base, id) else { return };
        if sent.state == State::Acknowledged {
            return;
        }
        sent.state = State::Acknowledged;
        let payload = std::mem::take(&mut sent.payload);
        let (channel, previous) = (sent.channel, sent.previous);
        self.used_bytes = self.used_bytes.saturating_sub(charge(payload.len()));
        if self.newest.get(&channel) == Some(&id) {
            match self.newest_unacknowledged(previous) {
                Some(newest) => self.newest.insert(channel, newest),
                None => self.newest.remove(&channel),
            };
        }
        while self.sent.pop_front_if(|sent| sent.state == State::Acknowledged).is_some() {
            self.base = self.base.saturating_add(1);
        }
        // What was acknowledged after all is not sent again, and must not look as if it could be.
        while let Some(&id) = self.lost.front()
            && sent_ref(&self.sent, self.base, id).is_none_or(|sent| sent.state != State::Lost)
        {
            self.lost.pop_front();
        }
    }

    /// The first of `id` and the messages its channel sent before it that is not acknowledged.
    fn newest_unacknowledged(&self, id: Option<u64>) -> Option<u64> {
        let mut candidate = id;
        while let Some(id) = candidate {
            let sent = sent_ref(&self.sent, self.base, id)?;
            if sent.state != State::Acknowledged {
                return Some(id);
            }
            candidate = sent.previous;
        }
        None
    }
}

fn charge(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES)
}

fn sent_ref(sent: &VecDeque<Sent>, base: u64, id: u64) -> Option<&Sent> {
    sent.get(usize::try_from(id.checked_sub(base)?).ok()?)
}

fn sent_mut(sent: &mut VecDeque<Sent>, base: u64, id: u64) -> Option<&mut Sent> {
    sent.get_mut(usize::try_from(id.checked_sub(base)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SEND_MEMORY_BYTES;
    use drumfire_wire::{Frame, Frames};

    /// What a packet of `room` bytes takes: (channel, id and what it comes after, payload).
    type Taken = Vec<(u16, Option<(u64, Option<u64>)>, Vec<u8>)>;

    fn packet(queue: &mut SendQueue, number: u64, room: usize) -> Taken {
        let mut buffer = vec![0; room];
        let mut writer = FrameWriter::new(&mut buffer[..]);
        let mut carried = Vec::new();
        let filled = queue.fill(number, &mut writer, |id| carried.push(id.0));
        let bytes = writer.written_bytes();
        let taken: Taken = Frames::new(&buffer[..bytes])
            .map(|frame| match frame.unwrap() {
                Frame::Message(message) => {
                    let order = match message.delivery {
                        Delivery::Unreliable => None,
                        Delivery::ReliableOrdered { id, after } => Some((id.0, after.map(|after| after.0))),
                    };
                    (message.channel.0, order, message.payload.to_vec())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            carried,
            taken.iter().filter_map(|(_, order, _)| order.map(|(id, _)| id)).collect::<Vec<_>>()
        );
        assert_eq!(
            (filled.message_count as usize, filled.reliable_count as usize),
            (taken.len(), carried.len())
        );
        taken
    }

    fn queue() -> SendQueue {
        SendQueue::new(SEND_MEMORY_BYTES)
    }

    fn reliable(queue: &mut SendQueue, channel: u16, byte: u8) {
        assert!(queue.push(ChannelId(channel), Mode::ReliableOrdered, vec![byte].into()));
    }

    fn orders(taken: &Taken) -> Vec<(u64, Option<u64>)> {
        taken.iter().filter_map(|(_, order, _)| *order).collect()
    }

    #[test]
    fn messages_of_both_modes_share_a_packet_in_the_order_they_came() {
        let mut queue = queue();
        reliable(&mut queue, 1, 10);
        queue.push(ChannelId(2), Mode::Unreliable, vec![11].into());
        reliable(&mut queue, 1, 12);
        let taken = packet(&mut queue, 0, 100);
        let payloads: Vec<_> = taken.iter().map(|(_, _, payload)| payload[0]).collect();
        assert_eq!(payloads, [10, 11, 12]);
        assert_eq!(orders(&taken), [(0, None), (1, Some(0))]);
        assert!(!queue.has_sendable());
        assert_eq!(queue.used_bytes, 2 * 65, "the unreliable one is gone");
    }

    #[test]
    fn what_does_not_fit_waits_for_the_next_packet() {
        let mut queue = queue();
        for byte in 0..3 {
            reliable(&mut queue, 0, byte);
        }
        assert_eq!(packet(&mut queue, 0, 11).len(), 2);
        assert_eq!(packet(&mut queue, 1, 3).len(), 0);
        assert_eq!(orders(&packet(&mut queue, 2, 6)), [(2, Some(1))]);
    }

    #[test]
    fn a_lost_message_goes_first_keeps_its_id_and_names_only_what_is_unacknowledged() {
        let mut queue = queue();
        for byte in 0..4 {
            reliable(&mut queue, 0, byte);
        }
        packet(&mut queue, 0, 100);
        for (fate, id) in [(Fate::Acknowledged, 1), (Fate::Lost, 2), (Fate::Acknowledged, 3)] {
            queue.on_fate(fate, MessageId(id), 0);
        }
        reliable(&mut queue, 0, 9);
        // Message 1 arrived, so 2 comes after 0; 3 arrived, so 4 comes after 2.
        assert_eq!(orders(&packet(&mut queue, 1, 100)), [(2, Some(0)), (4, Some(2))]);
        queue.on_fate(Fate::Acknowledged, MessageId(0), 0);
        queue.on_fate(Fate::Acknowledged, MessageId(2), 1);
        queue.on_fate(Fate::Acknowledged, MessageId(4), 1);
        assert_eq!((queue.base, queue.used_bytes, queue.newest.len()), (5, 0, 0));
    }

    #[test]
    fn a_message_whose_copy_is_under_way_is_not_lost_with_the_first() {
        let mut queue = queue();
        reliable(&mut queue, 0, 1);
        packet(&mut queue, 0, 100);
        queue.on_fate(Fate::Lost, MessageId(0), 0);
        queue.on_fate(Fate::Lost, MessageId(0), 0);
        assert_eq!(packet(&mut queue, 7, 100).len(), 1);
        queue.on_fate(Fate::Lost, MessageId(0), 0);
        assert!(!queue.has_sendable());
        queue.on_fate(Fate::Lost, MessageId(0), 7);
        assert!(queue.has_sendable());
        queue.on_fate(Fate::Acknowledged, MessageId(0), 0);
        assert!(!queue.has_sendable());
        assert_eq!(packet(&mut queue, 8, 100).len(), 0);
    }

    #[test]
    fn a_message_can_be_repeated_while_it_is_under_way() {
        let mut queue = queue();
        reliable(&mut queue, 0, 1);
        packet(&mut queue, 0, 100);
        for number in 1..4 {
            queue.repeat(MessageId(0));
            queue.repeat(MessageId(0));
            assert_eq!(orders(&packet(&mut queue, number, 100)), [(0, None)]);
        }
        queue.on_fate(Fate::Acknowledged, MessageId(0), 1);
        queue.repeat(MessageId(0));
        assert!(!queue.has_sendable());
    }

    #[test]
    fn no_id_goes_4096_beyond_the_oldest_under_way() {
        let mut queue = SendQueue::new(usize::MAX);
        for _ in 0..5_000 {
            reliable(&mut queue, 0, 0);
        }
        let taken: usize = (0..100).map(|number| packet(&mut queue, number, 1_000).len()).sum();
        assert_eq!(taken, 4_096);
        assert!(!queue.has_sendable());
        queue.push(ChannelId(0), Mode::Unreliable, Bytes::new());
        assert_eq!(packet(&mut queue, 100, 1_000).len(), 1, "unreliable ones pass");
        queue.on_fate(Fate::Acknowledged, MessageId(1), 0);
        assert!(!queue.has_sendable());
        queue.on_fate(Fate::Acknowledged, MessageId(0), 0);
        assert_eq!(packet(&mut queue, 101, 1_000).len(), 2);
    }

    #[test]
    fn memory_is_charged_per_message_and_ends_at_its_limit() {
        let mut queue = SendQueue::new(3 * 64 + 5);
        assert!(queue.push(ChannelId(0), Mode::Unreliable, Bytes::new()));
        assert!(queue.push(ChannelId(0), Mode::ReliableOrdered, vec![0; 5].into()));
        assert!(!queue.push(ChannelId(0), Mode::Unreliable, vec![0; 1].into()));
        assert!(queue.push(ChannelId(0), Mode::Unreliable, Bytes::new()));
        assert!(!queue.push(ChannelId(0), Mode::Unreliable, Bytes::new()));
        packet(&mut queue, 0, 100);
        assert_eq!(queue.used_bytes, 69);
        queue.on_fate(Fate::Acknowledged, MessageId(0), 0);
        assert_eq!(queue.used_bytes, 0);
    }
}
