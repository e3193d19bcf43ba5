//! Reliable messages that were sent, until they are acknowledged: in flight, or lost and to be sent again.
//!
//! A message gets its id when it is first sent (PROTOCOL 8.2, "Message ids"). Another module limits the memory of messages.

mod in_pieces;

use std::collections::{HashMap, VecDeque};

use bytes::{BufMut, Bytes};
use drumfire_wire::{ChannelId, Delivery, EncodeError, FrameWriter, Message, MessageId, Skip};

use super::pieces::{FragmentFates, FragmentTable};
use super::waiting::{DeliveryTerms, QueueEntry, QueuedMessage};
use super::{FillCounts, Packet};
use crate::channel::receipt::ReceiptId;
use crate::channel::{Mode, Priority, Redundancy};
use crate::ids::FoldBuild;
use crate::limits::{MESSAGE_IDS_AHEAD, REDUNDANT_MAX_BYTES};
use crate::time::Moment;

/// The sent reliable messages of one connection.
#[derive(Debug)]
pub(super) struct Reliable {
    /// Sent messages, by id from `base` on.
    sent: VecDeque<Sent>,
    /// The smallest id not yet acknowledged.
    base: u64,
    /// Ids of lost messages, by class of priority.
    lost: [VecDeque<u64>; Priority::COUNT],
    /// The number of ids in `lost`.
    lost_count: usize,
    /// Ids of messages to be repeated for redundancy, oldest first.
    copied: VecDeque<u64>,
    /// The newest unacknowledged id of each channel with ordered messages in flight.
    newest: HashMap<ChannelId, u64, FoldBuild>,
    book: FragmentTable,
    /// The number of fragmented messages of each channel that are not acknowledged.
    in_pieces: HashMap<ChannelId, u32, FoldBuild>,
    in_pieces_count: usize,
}

#[derive(Debug)]
struct Sent {
    channel: ChannelId,
    payload: Bytes,
    /// The length of the payload, also after the payload was released.
    bytes: u32,
    terms: DeliveryTerms,
    /// The fate of the fragments, if the message is fragmented.
    pieces: Option<Box<FragmentFates>>,
    /// The message was given up. A Skip is sent instead.
    is_given_up: bool,
    order: Order,
    class: u8,
    copies_left: u8,
    /// The last packet with the message.
    packet: u64,
    state: State,
}

/// The delivery order of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// No constraint.
    Unordered,
    /// No constraint: the channel has one message in flight at a time.
    Sequenced,
    /// After the previous message of the channel: the newest unacknowledged one at the last check.
    After(Option<u64>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InFlight,
    Lost,
    Acknowledged,
}

/// A message that was written for the first time.
#[derive(Debug, Clone, Copy)]
pub(super) struct First {
    pub(super) id: MessageId,
    order: Order,
}

/// A message that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) channel: ChannelId,
    pub(super) payload_bytes: usize,
    pub(super) is_sequenced: bool,
    pub(super) receipt: Option<ReceiptId>,
}

/// A message that was given up after it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GivenUp {
    pub(super) payload_bytes: usize,
    pub(super) receipt: Option<ReceiptId>,
}

impl Order {
    fn delivery(self, id: u64) -> Delivery {
        let id = MessageId(id);
        match self {
            Self::Unordered => Delivery::ReliableUnordered { id },
            Self::Sequenced => Delivery::ReliableSequenced { id },
            Self::After(before) => Delivery::ReliableOrdered { id, after: before.map(MessageId) },
        }
    }
}

impl Reliable {
    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(super) fn prefetch(&self) -> impl Copy + use<> {
        (self.sent.front().map(|sent| sent.bytes), self.lost_count, self.copied.len(), self.in_pieces_count)
    }

    /// Creates an empty queue whose first message gets this id.
    pub(super) fn new(next_id: u64, hash: FoldBuild) -> Self {
        Self {
            sent: VecDeque::new(),
            base: next_id,
            lost: Default::default(),
            lost_count: 0,
            copied: VecDeque::new(),
            newest: HashMap::with_hasher(hash),
            book: FragmentTable::default(),
            in_pieces: HashMap::with_hasher(hash),
            in_pieces_count: 0,
        }
    }

    /// Whether a lost message waits to be sent again.
    pub(super) fn has_lost(&self) -> bool {
        self.lost_count > 0
    }

    /// The id of the next message, if no message is left.
    pub(super) fn next_id_when_empty(&self) -> Option<u64> {
        self.sent.is_empty().then_some(self.base)
    }

    /// Whether another message may be sent for the first time. The receiver refuses ids too far above its lowest
    /// missing id, which is never below the lowest unacknowledged one.
    pub(super) fn may_give_id(&self) -> bool {
        u64::try_from(self.sent.len()).is_ok_and(|in_flight| in_flight < MESSAGE_IDS_AHEAD)
    }

    /// Marks a message as lost, after a packet with it was lost.
    pub(super) fn on_lost(&mut self, id: u64, packet: u64) {
        // A copy in a later packet is still in flight.
        if sent_ref(&self.sent, self.base, id).is_some_and(|sent| sent.packet == packet) {
            self.repeat(id);
        }
    }

    /// Sends a message again whatever its fate, unless it was acknowledged.
    pub(super) fn repeat(&mut self, id: u64) {
        if let Some(sent) = sent_mut(&mut self.sent, self.base, id)
            && sent.state == State::InFlight
        {
            sent.state = State::Lost;
            if let Some(lost) = self.lost.get_mut(usize::from(sent.class)) {
                lost.push_back(id);
                self.lost_count = self.lost_count.saturating_add(1);
            }
        }
    }

    /// Writes the lost messages of a class, oldest first. Returns false when one did not fit.
    pub(super) fn write_lost<B: BufMut>(
        &mut self,
        class: usize,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
        mut given_up: impl FnMut(GivenUp),
    ) -> bool {
        while let Some(id) = self.first_lost(class) {
            let is_lost = sent_ref(&self.sent, self.base, id).is_some_and(|sent| sent.state == State::Lost);
            if is_lost {
                if let Some(over) = self.give_up(id, packet.now) {
                    given_up(over);
                }
                if !self.write_lost_one(packet, writer, id, carry, filled) {
                    return false;
                }
            }
            if let Some(lost) = self.lost.get_mut(class) {
                lost.pop_front();
                self.lost_count = self.lost_count.saturating_sub(1);
            }
        }
        true
    }

    fn first_lost(&self, class: usize) -> Option<u64> {
        if self.lost_count == 0 {
            return None;
        }
        self.lost.get(class)?.front().copied()
    }

    fn write_again<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        id: u64,
    ) -> Result<(), EncodeError> {
        let Some(order) = self.refreshed_order(id) else { return Ok(()) };
        let Some(sent) = sent_mut(&mut self.sent, self.base, id) else { return Ok(()) };
        sent.order = order;
        if sent.is_given_up {
            let after = if let Order::After(before) = order { before.map(MessageId) } else { None };
            writer.skip(&Skip { channel: sent.channel, id: MessageId(id), after, bytes: sent.bytes })?;
        } else {
            let delivery = order.delivery(id);
            writer.message(&Message { channel: sent.channel, delivery, payload: &sent.payload })?;
        }
        sent.state = State::InFlight;
        sent.packet = number;
        Ok(())
    }

    /// The delivery order of a message at present.
    fn refreshed_order(&self, id: u64) -> Option<Order> {
        Some(match sent_ref(&self.sent, self.base, id)?.order {
            Order::After(before) => Order::After(self.newest_unacknowledged(before)),
            order => order,
        })
    }

    /// Gives up a lost message, if its lifetime is over and it was not given up before.
    fn give_up(&mut self, id: u64, now: Moment) -> Option<GivenUp> {
        let sent = sent_mut(&mut self.sent, self.base, id)?;
        if sent.is_given_up || !sent.terms.is_over(now) {
            return None;
        }
        sent.is_given_up = true;
        let payload_bytes = std::mem::take(&mut sent.payload).len();
        Some(GivenUp { payload_bytes, receipt: sent.terms.receipt.take() })
    }

    /// Writes a message for the first time.
    pub(super) fn write_first<B: BufMut>(
        &self,
        writer: &mut FrameWriter<B>,
        waiting: QueueEntry<'_>,
    ) -> Result<First, EncodeError> {
        let (id, order) = (self.next_id(), self.order_for(waiting));
        let delivery = order.delivery(id);
        let QueueEntry { channel, payload, .. } = waiting;
        writer.message(&Message { channel, delivery, payload })?;
        Ok(First { id: MessageId(id), order })
    }

    /// Keeps the message that [`Self::write_first`] wrote into packet `number`.
    pub(super) fn keep(
        &mut self,
        waiting: QueuedMessage,
        first: First,
        class: usize,
        number: u64,
        redundancy: Redundancy,
    ) {
        // Copies of long messages would crowd out new messages.
        let is_short = waiting.payload.len() <= REDUNDANT_MAX_BYTES;
        let copies_left = if is_short { redundancy.copies() } else { 0 };
        if copies_left > 0 {
            self.copied.push_back(first.id.0);
        }
        if matches!(first.order, Order::After(_)) {
            self.newest.insert(waiting.channel, first.id.0);
        }
        self.sent.push_back(Sent {
            channel: waiting.channel,
            bytes: u32::try_from(waiting.payload.len()).unwrap_or(u32::MAX),
            payload: waiting.payload,
            terms: waiting.extras.terms,
            pieces: None,
            is_given_up: false,
            order: first.order,
            class: u8::try_from(class).unwrap_or(0),
            copies_left,
            packet: number,
            state: State::InFlight,
        });
    }

    /// Repeats short messages that are in flight in earlier packets, each once per packet, as far as they fit.
    pub(super) fn write_copies<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) {
        for _ in 0..self.copied.len() {
            let Some(id) = self.copied.pop_front() else { return };
            let Some(sent) = sent_ref(&self.sent, self.base, id) else { continue };
            if sent.state != State::InFlight || sent.is_given_up || sent.pieces.is_some() {
                // A lost message is sent again anyway.
                continue;
            }
            if sent.packet == number {
                self.copied.push_back(id);
                continue;
            }
            if self.write_again(number, writer, id).is_err() {
                self.copied.push_front(id);
                return;
            }
            carry(MessageId(id));
            filled.copied_count = filled.copied_count.saturating_add(1);
            filled.reliable_count = filled.reliable_count.saturating_add(1);
            if let Some(sent) = sent_mut(&mut self.sent, self.base, id) {
                sent.copies_left = sent.copies_left.saturating_sub(1);
                if sent.copies_left > 0 {
                    self.copied.push_back(id);
                }
            }
        }
    }

    fn next_id(&self) -> u64 {
        self.base.saturating_add(u64::try_from(self.sent.len()).unwrap_or(u64::MAX))
    }

    fn order_for(&self, waiting: QueueEntry<'_>) -> Order {
        match waiting.mode {
            Mode::ReliableOrdered => Order::After(self.newest.get(&waiting.channel).copied()),
            Mode::ReliableSequenced => Order::Sequenced,
            _ => Order::Unordered,
        }
    }

    /// Registers that a message arrived. Returns it the first time.
    pub(super) fn acknowledge(&mut self, id: u64) -> Option<Arrived> {
        let sent = sent_mut(&mut self.sent, self.base, id)?;
        if sent.state == State::Acknowledged {
            return None;
        }
        sent.state = State::Acknowledged;
        let has_pieces = sent.pieces.take().is_some();
        let payload_bytes = std::mem::take(&mut sent.payload).len();
        let (channel, order, receipt) = (sent.channel, sent.order, sent.terms.receipt.take());
        if let Order::After(previous) = order
            && self.newest.get(&channel) == Some(&id)
        {
            match self.newest_unacknowledged(previous) {
                Some(newest) => self.newest.insert(channel, newest),
                None => self.newest.remove(&channel),
            };
        }
        while self.sent.pop_front_if(|sent| sent.state == State::Acknowledged).is_some() {
            self.base = self.base.saturating_add(1);
        }
        if has_pieces {
            self.on_pieces_over(channel);
        }
        self.drop_found();
        // An acknowledged message is not repeated. Packets that are always full would let these ids accumulate.
        while let Some(&id) = self.copied.front()
            && sent_ref(&self.sent, self.base, id).is_none_or(|sent| sent.state == State::Acknowledged)
        {
            self.copied.pop_front();
        }
        Some(Arrived { channel, payload_bytes, is_sequenced: order == Order::Sequenced, receipt })
    }

    /// Removes lost messages that were acknowledged after all, so that they do not count as sendable.
    fn drop_found(&mut self) {
        let lost_lists = if self.lost_count > 0 { self.lost.as_mut_slice() } else { &mut [] };
        for lost in lost_lists {
            while let Some(&id) = lost.front()
                && sent_ref(&self.sent, self.base, id).is_none_or(|sent| sent.state != State::Lost)
            {
                lost.pop_front();
                self.lost_count = self.lost_count.saturating_sub(1);
            }
        }
    }

    /// The newest message that is not acknowledged, among `id` and the channel's messages before it.
    fn newest_unacknowledged(&self, id: Option<u64>) -> Option<u64> {
        let mut candidate = id;
        while let Some(id) = candidate {
            let sent = sent_ref(&self.sent, self.base, id)?;
            if sent.state != State::Acknowledged {
                return Some(id);
            }
            candidate = match sent.order {
                Order::After(previous) => previous,
                Order::Unordered | Order::Sequenced => None,
            };
        }
        None
    }

    #[cfg(test)]
    pub(super) fn copied_count(&self) -> usize {
        self.copied.len()
    }

    /// The smallest unacknowledged id, and the number of channels with messages in flight.
    #[cfg(test)]
    pub(super) fn standing(&self) -> (u64, usize) {
        (self.base, self.newest.len())
    }
}

fn sent_ref(sent: &VecDeque<Sent>, base: u64, id: u64) -> Option<&Sent> {
    sent.get(usize::try_from(id.checked_sub(base)?).ok()?)
}

fn sent_mut(sent: &mut VecDeque<Sent>, base: u64, id: u64) -> Option<&mut Sent> {
    sent.get_mut(usize::try_from(id.checked_sub(base)?).ok()?)
}
