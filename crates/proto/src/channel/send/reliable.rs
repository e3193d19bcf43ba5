//! Reliable messages that were sent, until they are acknowledged: in flight, or lost and to be sent again.
//!
//! Messages get their ids when they are first sent (PROTOCOL 8.2, "Message ids"). Consecutive messages of one channel that
//! go into one packet are one run, with one record. Another module limits the memory of messages.

mod fragmented;
mod invariants;
mod resend;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use bytes::BufMut;
use drumfire_wire::{ChannelId, Delivery, EncodeError, FrameWriter, Message, MessageId};

use super::chunks::{BodyChunks, BodyRange};
use super::fragments::FragmentTable;
use super::segment::{QueuedMessage, SingleEntry};
use super::sent_run::{Order, RunBodies, RunFrame, RunIds, RunState, SentRun};
use crate::channel::{Mode, Priority, Redundancy};
use crate::convert::saturated;
use crate::ids::KeyedBuildHasher;
use crate::limits::{MESSAGE_IDS_IN_FLIGHT, REDUNDANT_MAX_BYTES};
use crate::loss::PacketFate;
use crate::time::Moment;

/// The number of records up to which acknowledged ones may outnumber the others.
const RECORDS_MIN: usize = 64;

/// The sent reliable messages of one connection.
#[derive(Debug)]
pub(super) struct Reliable {
    // Messages
    /// Sent runs by ascending id. All ids below `next_id` that are in no run have arrived. An acknowledged run leaves when
    /// it is the oldest, or with many others.
    runs: VecDeque<SentRun>,
    /// The id of the next message.
    next_id: u64,
    /// The number of acknowledged runs in `runs`.
    acknowledged_count: usize,
    /// The newest id of each channel with ordered messages in flight, and of others until their runs leave.
    newest: HashMap<ChannelId, u64, KeyedBuildHasher>,

    // Repetition
    /// The first ids of lost runs in ascending order, by class of priority. An id may be of a run that has arrived
    /// since, but not the first one of a class.
    lost: [VecDeque<u64>; Priority::COUNT],
    /// The number of ids in `lost`.
    lost_count: usize,
    /// The first ids of runs to be repeated for redundancy, oldest first.
    copied: VecDeque<u64>,

    // Fragments
    /// The fragments in flight.
    sent_fragments: FragmentTable,
    /// The number of fragmented messages of each channel that are not acknowledged. Without channels that have none.
    fragmented: HashMap<ChannelId, u32, KeyedBuildHasher>,
    /// The number of fragmented messages of all channels that are not acknowledged.
    fragmented_count: usize,
}

/// Messages of one channel that a packet acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AckedMessages {
    /// The ids of the packet's run. The receipts of messages that arrived earlier were resolved before.
    pub(super) ids: RunIds,
    /// The channel.
    pub(super) channel: ChannelId,
    /// The send memory that was released, in bytes.
    pub(super) charge_bytes: usize,
    /// Whether the next message of a ReliableSequenced channel may be sent now.
    pub(super) is_sequenced: bool,
}

/// Messages that were given up after they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SkippedMessages {
    /// The ids of the messages.
    pub(super) ids: RunIds,
    /// The sum of the lengths of the payloads that were released.
    pub(super) payload_bytes: usize,
}

/// The packet of messages that are sent for the first time, and how they are sent again.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendPriority {
    /// The class of priority.
    pub(super) class: usize,
    /// The packet number.
    pub(super) packet: u64,
    /// The number of times that short messages are repeated.
    pub(super) redundancy: Redundancy,
}

impl Reliable {
    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(super) fn prefetch(&self) -> impl Copy + use<> {
        (
            self.runs.front().map(|run| run.payload_bytes),
            self.lost_count,
            self.copied.len(),
            self.fragmented_count,
        )
    }

    /// Creates an empty queue whose first message gets this id.
    pub(super) fn new(next_id: u64, hash: KeyedBuildHasher) -> Self {
        Self {
            runs: VecDeque::new(),
            next_id,
            acknowledged_count: 0,
            newest: HashMap::with_hasher(hash),
            lost: Default::default(),
            lost_count: 0,
            copied: VecDeque::new(),
            sent_fragments: FragmentTable::default(),
            fragmented: HashMap::with_hasher(hash),
            fragmented_count: 0,
        }
    }

    /// Whether a lost message waits to be sent again.
    pub(super) fn has_lost(&self) -> bool {
        self.lost_count > 0
    }

    /// Whether messages wait to be repeated for redundancy.
    pub(super) fn has_copies(&self) -> bool {
        !self.copied.is_empty()
    }

    /// The id of the next message, if no message is left.
    pub(super) fn next_id_when_empty(&self) -> Option<u64> {
        self.runs.is_empty().then_some(self.next_id)
    }

    /// The id of the next message.
    pub(super) const fn next_id(&self) -> u64 {
        self.next_id
    }

    /// The smallest id that is not acknowledged, or the next id.
    fn base(&self) -> u64 {
        self.runs.front().map_or(self.next_id, |run| run.ids.first)
    }

    /// Whether another message may be sent for the first time.
    pub(super) fn can_assign_id(&self) -> bool {
        self.ids_left() > 0
    }

    /// The number of messages that may be sent for the first time. The receiver refuses ids too far above its lowest
    /// missing id, which is never below the lowest unacknowledged one.
    pub(super) fn ids_left(&self) -> u64 {
        MESSAGE_IDS_IN_FLIGHT.saturating_sub(self.next_id.saturating_sub(self.base()))
    }

    /// The indices of the runs that have any of these ids. Runs are split, but never joined, so that a run lies either
    /// inside the ids of an earlier packet or outside.
    fn indices(&self, ids: RunIds) -> Range<usize> {
        // Packets are mostly acknowledged in the order in which they were sent.
        let is_oldest = self.runs.front().is_some_and(|run| run.ids.first == ids.first);
        let start = if is_oldest { 0 } else { self.runs.partition_point(|run| run.ids.end() <= ids.first) };
        let of_ids =
            self.runs.range(start.min(self.runs.len())..).take_while(|run| run.ids.first < ids.end());
        start..start.saturating_add(of_ids.count())
    }

    /// The index of the run that begins with this id. `None` if its messages have arrived, with all older ones or long
    /// ago.
    fn index_of(&self, id: u64) -> Option<usize> {
        let index = self.runs.partition_point(|run| run.ids.first < id);
        self.runs.get(index).is_some_and(|run| run.ids.first == id).then_some(index)
    }

    /// The run that begins with this id.
    fn run(&self, id: u64) -> Option<&SentRun> {
        self.runs.get(self.index_of(id)?)
    }

    /// See [`Self::run`].
    fn run_mut(&mut self, id: u64) -> Option<&mut SentRun> {
        let index = self.index_of(id)?;
        self.runs.get_mut(index)
    }

    /// Marks messages as lost, after a packet with them was lost.
    pub(super) fn on_lost(&mut self, id: MessageId, packet: u64) {
        for index in self.indices(RunIds::from_fate_id(id)) {
            // A copy in a later packet is still in flight.
            if self.runs.get(index).is_some_and(|run| run.packet == packet) {
                self.mark_lost(index);
            }
        }
    }

    /// Queues messages to be sent again before their fate is known, unless they were acknowledged.
    pub(super) fn repeat(&mut self, id: MessageId) {
        for index in self.indices(RunIds::from_fate_id(id)) {
            self.mark_lost(index);
        }
    }

    /// Marks a run as lost if it is in flight.
    fn mark_lost(&mut self, index: usize) {
        if let Some(run) = self.runs.get_mut(index)
            && run.state == RunState::InFlight
        {
            run.state = RunState::Lost;
            let (class, first) = (run.class, run.ids.first);
            self.insert_lost(class, first);
        }
    }

    /// Adds a run to the lost ones of its class.
    fn insert_lost(&mut self, class: u8, id: u64) {
        debug_assert!(usize::from(class) < Priority::COUNT, "a message of class {class}");
        let Some(lost) = self.lost.get_mut(usize::from(class)) else { return };
        // The oldest messages go first, because later ones may wait for them at the receiver. Losses are mostly found
        // in the order of the ids.
        let index = match lost.back() {
            Some(last) if *last >= id => lost.partition_point(|other| *other < id),
            _ => lost.len(),
        };
        // The list may still have a run that was acknowledged and then lost in another packet.
        if lost.get(index) != Some(&id) {
            lost.insert(index, id);
            self.lost_count = self.lost_count.saturating_add(1);
        }
    }

    /// Writes a message for the first time. Returns its order, for [`Self::keep`].
    pub(super) fn write_first<B: BufMut>(
        &self,
        writer: &mut FrameWriter<B>,
        waiting: SingleEntry<'_>,
    ) -> Result<Order, EncodeError> {
        // The id is used only when the message fits, so that ids have no gaps.
        let SingleEntry { channel, mode, payload, .. } = waiting;
        let order = self.order_for(channel, mode);
        writer.message(&Message { channel, delivery: self.first_delivery(order), payload })?;
        Ok(order)
    }

    /// Keeps the message that [`Self::write_first`] wrote. Returns its ids.
    #[inline]
    pub(super) fn keep(&mut self, waiting: QueuedMessage, order: Order, send: SendPriority) -> RunIds {
        debug_assert!(
            u32::try_from(waiting.payload.len()).is_ok() && send.class < Priority::COUNT,
            "a message of class {} has {} bytes",
            send.class,
            waiting.payload.len()
        );
        let payload_bytes = waiting.payload.len();
        self.keep_run(SentRun {
            ids: RunIds { first: self.next_id, count: 1 },
            channel: waiting.channel,
            content: RunBodies::Message(waiting.payload),
            payload_bytes: saturated(payload_bytes, u32::MAX),
            deadline: waiting.extras.deadline,
            order,
            class: saturated(send.class, u8::MAX),
            state: RunState::InFlight,
            packet: send.packet,
            fragments: None,
            // Copies of long messages would displace new messages.
            copies_left: if payload_bytes <= REDUNDANT_MAX_BYTES { send.redundancy.copies() } else { 0 },
        })
    }

    /// The fields of the next message that is sent for the first time, with this order.
    pub(super) fn first_delivery(&self, order: Order) -> Delivery {
        order.delivery(self.next_id, self.base())
    }

    /// Keeps messages of a segment that were written for the first time. Returns their ids.
    pub(super) fn keep_part(
        &mut self,
        channel: ChannelId,
        bodies: BodyRange,
        part: &RunFrame,
        deadline: Option<Moment>,
        order: Order,
        send: SendPriority,
    ) -> RunIds {
        self.keep_run(SentRun {
            ids: RunIds { first: self.next_id, count: part.count },
            channel,
            content: RunBodies::Bodies(bodies),
            payload_bytes: saturated(part.payload_bytes, u32::MAX),
            deadline,
            order,
            class: saturated(send.class, u8::MAX),
            state: RunState::InFlight,
            packet: send.packet,
            fragments: None,
            copies_left: send.redundancy.copies(),
        })
    }

    /// Keeps a run that was written with the next ids. Returns its ids.
    #[inline]
    fn keep_run(&mut self, run: SentRun) -> RunIds {
        let ids = run.ids;
        debug_assert_eq!(ids.first, self.next_id, "a message was written under another id");
        self.next_id = ids.end();
        if run.copies_left > 0 {
            self.copied.push_back(ids.first);
        }
        if matches!(run.order, Order::After(_)) {
            self.newest.insert(run.channel, ids.end().saturating_sub(1));
        }
        self.runs.push_back(run);
        ids
    }

    /// The delivery order of a message that is sent for the first time.
    pub(super) fn order_for(&self, channel: ChannelId, mode: Mode) -> Order {
        match mode {
            Mode::ReliableOrdered => Order::After(self.newest.get(&channel).copied()),
            Mode::ReliableSequenced => Order::Sequenced,
            _ => Order::Unordered,
        }
    }

    /// Processes the fate of a packet with these messages. Returns them if they have arrived for the first time.
    pub(super) fn on_fate(
        &mut self,
        fate: PacketFate,
        id: MessageId,
        packet: u64,
        chunks: &mut BodyChunks,
    ) -> Option<AckedMessages> {
        match fate {
            PacketFate::Acknowledged => self.acknowledge(RunIds::from_fate_id(id), chunks),
            PacketFate::Lost => {
                self.on_lost(id, packet);
                None
            }
        }
    }

    /// Registers that messages arrived. Returns them unless all of them arrived before.
    fn acknowledge(&mut self, ids: RunIds, chunks: &mut BodyChunks) -> Option<AckedMessages> {
        let mut arrived: Option<AckedMessages> = None;
        for index in self.indices(ids) {
            let Some(run) = self.runs.get_mut(index) else { break };
            if run.state == RunState::Acknowledged {
                continue;
            }
            // A part of the run may have arrived in another packet, and was released then.
            let charge_bytes = run.charge();
            let (channel, is_sequenced) = (run.channel, run.order == Order::Sequenced);
            let sum = arrived.get_or_insert(AckedMessages { ids, channel, charge_bytes: 0, is_sequenced });
            sum.charge_bytes = sum.charge_bytes.saturating_add(charge_bytes);
            // The content goes immediately, although the record may stay until all older messages have arrived.
            run.state = RunState::Acknowledged;
            self.acknowledged_count = self.acknowledged_count.saturating_add(1);
            let has_fragments = run.fragments.take().is_some();
            if let RunBodies::Bodies(range) = std::mem::replace(&mut run.content, RunBodies::Nothing) {
                chunks.release(range);
            }
            if has_fragments {
                self.on_fragmented_acknowledged(channel);
            }
        }
        arrived?;
        self.drop_acknowledged();
        self.drop_acknowledged_losses();
        // An acknowledged message is not repeated. Packets that are always full would let these ids accumulate.
        while let Some(&id) = self.copied.front()
            && self.run(id).is_none_or(|run| run.state == RunState::Acknowledged)
        {
            self.copied.pop_front();
        }
        arrived
    }

    /// Removes the records of runs that have arrived: the oldest ones, and all if there are many.
    fn drop_acknowledged(&mut self) {
        while let Some(run) = self.runs.pop_front_if(|run| run.state == RunState::Acknowledged) {
            self.acknowledged_count = self.acknowledged_count.saturating_sub(1);
            // The next ordered message of the channel has nothing to wait for.
            if matches!(run.order, Order::After(_))
                && self.newest.get(&run.channel) == Some(&run.ids.end().saturating_sub(1))
            {
                self.newest.remove(&run.channel);
            }
        }
        // One missing message must not make the sender keep a record of each later one, because only messages that have
        // not arrived are charged. Each pass removes at least half of the records, so it costs little per record.
        if self.runs.len() > RECORDS_MIN && self.acknowledged_count > self.runs.len() / 2 {
            self.runs.retain(|run| run.state != RunState::Acknowledged);
            self.acknowledged_count = 0;
            let base = self.base();
            self.newest.retain(|_, id| *id >= base);
        }
        if self.runs.is_empty() && !self.newest.is_empty() {
            self.newest.clear();
        }
    }

    /// Removes acknowledged runs from the front of the lists of lost runs, so that they do not count as sendable.
    fn drop_acknowledged_losses(&mut self) {
        for class in 0..if self.lost_count > 0 { Priority::COUNT } else { 0 } {
            while let Some(id) = self.first_lost(class)
                && self.run(id).is_none_or(|run| run.state != RunState::Lost)
            {
                self.pop_lost(class);
            }
        }
    }

    /// The first id of the oldest lost run of this class.
    fn first_lost(&self, class: usize) -> Option<u64> {
        // Most of the time nothing is lost, and the lists need not be read.
        if self.lost_count == 0 {
            return None;
        }
        self.lost.get(class)?.front().copied()
    }

    /// Removes the first run of a list of lost ones.
    fn pop_lost(&mut self, class: usize) {
        if let Some(id) = self.lost.get_mut(class).and_then(VecDeque::pop_front) {
            debug_assert!(self.lost_count > 0, "lost message {id} was not counted");
            self.lost_count = self.lost_count.saturating_sub(1);
        }
    }

    #[cfg(test)]
    pub(super) fn copied_count(&self) -> usize {
        self.copied.len()
    }

    #[cfg(test)]
    pub(super) fn record_count(&self) -> usize {
        self.runs.len()
    }

    /// Returns the smallest unacknowledged id, and the number of channels with ordered messages in flight.
    #[cfg(test)]
    pub(super) fn base_and_channels(&self) -> (u64, usize) {
        (self.base(), self.newest.len())
    }
}
