//! Reliable messages that were sent, until they are acknowledged: in flight, or lost and to be sent again.
//!
//! A message gets its id when it is first sent (PROTOCOL 8.2, "Message ids"). Another module limits the memory of messages.

mod check_sent;
mod in_pieces;

use std::collections::{HashMap, VecDeque};

use bytes::{BufMut, Bytes};
use drumfire_wire::{ChannelId, Delivery, EncodeError, FrameWriter, Message, MessageId, Skip};

use super::pieces::{FragmentFates, FragmentTable};
use super::waiting::{DeliveryTerms, QueueEntry, QueuedMessage};
use super::{FillCounts, Packet};
use crate::channel::receipt::ReceiptId;
use crate::channel::{Mode, Priority, Redundancy};
use crate::convert::{saturated, to_u64};
use crate::ids::FoldBuild;
use crate::limits::{MESSAGE_IDS_IN_FLIGHT, REDUNDANT_MAX_BYTES};
use crate::time::Moment;

/// The sent reliable messages of one connection.
#[derive(Debug)]
pub(super) struct Reliable {
    // Messages
    /// Sent messages, by id from `base` on. An acknowledged message leaves when it is the oldest.
    sent: VecDeque<Sent>,
    /// The smallest id not yet acknowledged.
    base: u64,
    /// The newest unacknowledged id of each channel with ordered messages in flight.
    newest: HashMap<ChannelId, u64, FoldBuild>,

    // Repetition
    /// Ids of lost messages, by class of priority. An id may be of a message that has arrived since, but not the
    /// first one of a class.
    lost: [VecDeque<u64>; Priority::COUNT],
    /// The number of ids in `lost`.
    lost_count: usize,
    /// Ids of messages to be repeated for redundancy, oldest first.
    copied: VecDeque<u64>,

    // Fragments
    /// The fragments in flight.
    book: FragmentTable,
    /// The number of fragmented messages of each channel that are not acknowledged. Without channels that have none.
    in_pieces: HashMap<ChannelId, u32, FoldBuild>,
    /// The number of fragmented messages of all channels that are not acknowledged.
    in_pieces_count: usize,
}

/// A message that was sent and is not acknowledged, or waits for older ones to be acknowledged.
#[derive(Debug)]
struct Sent {
    // The message
    /// The channel.
    channel: ChannelId,
    /// The content. Empty after the message was acknowledged or given up.
    payload: Bytes,
    /// The length of the payload, also after the payload was released.
    bytes: u32,
    /// The lifetime and the receipt.
    terms: DeliveryTerms,
    /// The delivery order within the channel.
    order: Order,
    /// The class of priority, in which a lost message is sent again.
    class: u8,

    // Its fate
    /// Whether the message is in flight.
    state: MessageState,
    /// The last packet with the message.
    packet: u64,
    /// The fate of the fragments. `None` for a message that is not fragmented.
    pieces: Option<Box<FragmentFates>>,
    /// The message was given up. A Skip is sent instead.
    is_given_up: bool,
    /// The number of copies for redundancy that are still to be sent.
    copies_left: u8,
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

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageState {
    /// In a packet whose fate is not known. Parts of a fragmented message may still wait to be sent.
    InFlight,
    /// To be sent again. Its id is in `lost`.
    Lost,
    /// Arrived. It is kept until all older messages have arrived.
    Acknowledged,
}

/// A message that was written for the first time.
#[derive(Debug, Clone, Copy)]
pub(super) struct First {
    /// The id under which it was written.
    pub(super) id: MessageId,
    /// The order with which it was written.
    order: Order,
}

/// A message that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrived {
    /// The channel.
    pub(super) channel: ChannelId,
    /// The length of the payload that was released, 0 for a message that was given up before.
    pub(super) payload_bytes: usize,
    /// Whether the next message of a ReliableSequenced channel may be sent now.
    pub(super) is_sequenced: bool,
    /// The receipt to answer. `None` without one, and for a message that was given up before.
    pub(super) receipt: Option<ReceiptId>,
}

/// A message that was given up after it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GivenUp {
    /// The length of the payload that was released.
    pub(super) payload_bytes: usize,
    /// The receipt to answer, or `None` without one.
    pub(super) receipt: Option<ReceiptId>,
}

impl Order {
    /// Returns the order as the wire carries it.
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
        to_u64(self.sent.len()) < MESSAGE_IDS_IN_FLIGHT
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
            && sent.state == MessageState::InFlight
        {
            sent.state = MessageState::Lost;
            debug_assert!(usize::from(sent.class) < Priority::COUNT, "a message of class {}", sent.class);
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
            // A message may have arrived while it waited in the list.
            let is_lost =
                sent_ref(&self.sent, self.base, id).is_some_and(|sent| sent.state == MessageState::Lost);
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

    /// The id that was lost first in this class.
    fn first_lost(&self, class: usize) -> Option<u64> {
        // Most of the time nothing is lost, and the lists need not be read.
        if self.lost_count == 0 {
            return None;
        }
        self.lost.get(class)?.front().copied()
    }

    /// Writes a message that was sent before, or its Skip if it was given up.
    fn write_again<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        id: u64,
    ) -> Result<(), EncodeError> {
        debug_assert!(
            sent_ref(&self.sent, self.base, id).is_some_and(|sent| sent.state != MessageState::Acknowledged),
            "message {id} is sent again, and has arrived"
        );
        // The message before it may have arrived since. The receiver must not wait for a message whose id it has
        // forgotten.
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
        sent.state = MessageState::InFlight;
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
        // The id is used only when the message fits, so that ids have no gaps.
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
        debug_assert_eq!(first.id.0, self.next_id(), "a message was written under another id");
        debug_assert!(
            u32::try_from(waiting.payload.len()).is_ok() && class < Priority::COUNT,
            "a message of class {class} has {} bytes",
            waiting.payload.len()
        );
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
            bytes: saturated(waiting.payload.len(), u32::MAX),
            payload: waiting.payload,
            terms: waiting.extras.terms,
            order: first.order,
            class: saturated(class, u8::MAX),
            state: MessageState::InFlight,
            packet: number,
            pieces: None,
            is_given_up: false,
            copies_left,
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
        // The list is visited once: ids that are still due go to its end.
        for _ in 0..self.copied.len() {
            let Some(id) = self.copied.pop_front() else { return };
            let Some(sent) = sent_ref(&self.sent, self.base, id) else { continue };
            if sent.state != MessageState::InFlight || sent.is_given_up || sent.pieces.is_some() {
                // A lost message is sent again anyway.
                continue;
            }
            // A second copy in one packet would share its fate.
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

    /// The id of the next message.
    fn next_id(&self) -> u64 {
        self.base.saturating_add(to_u64(self.sent.len()))
    }

    /// The delivery order of a message that is sent for the first time.
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
        if sent.state == MessageState::Acknowledged {
            return None;
        }
        // The payload goes immediately, although the entry stays until all older messages have arrived.
        sent.state = MessageState::Acknowledged;
        let has_pieces = sent.pieces.take().is_some();
        let payload_bytes = std::mem::take(&mut sent.payload).len();
        let (channel, order, receipt) = (sent.channel, sent.order, sent.terms.receipt.take());
        // The next ordered message must come after the newest one that may still be missing at the receiver. Without
        // such a message it is due immediately.
        if let Order::After(previous) = order
            && self.newest.get(&channel) == Some(&id)
        {
            match self.newest_unacknowledged(previous) {
                Some(newest) => self.newest.insert(channel, newest),
                None => self.newest.remove(&channel),
            };
        }
        while self.sent.pop_front_if(|sent| sent.state == MessageState::Acknowledged).is_some() {
            self.base = self.base.saturating_add(1);
        }
        if has_pieces {
            self.on_pieces_over(channel);
        }
        self.drop_found();
        // An acknowledged message is not repeated. Packets that are always full would let these ids accumulate.
        while let Some(&id) = self.copied.front()
            && sent_ref(&self.sent, self.base, id).is_none_or(|sent| sent.state == MessageState::Acknowledged)
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
                && sent_ref(&self.sent, self.base, id).is_none_or(|sent| sent.state != MessageState::Lost)
            {
                lost.pop_front();
                debug_assert!(self.lost_count > 0, "lost message {id} was not counted");
                self.lost_count = self.lost_count.saturating_sub(1);
            }
        }
    }

    /// The newest message that is not acknowledged, among `id` and the channel's messages before it.
    fn newest_unacknowledged(&self, id: Option<u64>) -> Option<u64> {
        // Each message names the one before it in its channel. Messages below the oldest entry have arrived.
        let mut candidate = id;
        while let Some(id) = candidate {
            let sent = sent_ref(&self.sent, self.base, id)?;
            if sent.state != MessageState::Acknowledged {
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

/// Returns the entry of a message. `None` for one that has arrived, with all older ones.
fn sent_ref(sent: &VecDeque<Sent>, base: u64, id: u64) -> Option<&Sent> {
    sent.get(usize::try_from(id.checked_sub(base)?).ok()?)
}

/// As [`sent_ref`].
fn sent_mut(sent: &mut VecDeque<Sent>, base: u64, id: u64) -> Option<&mut Sent> {
    sent.get_mut(usize::try_from(id.checked_sub(base)?).ok()?)
}
