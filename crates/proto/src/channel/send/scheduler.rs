//! The send scheduler: one queue per channel, strict priority between classes, and a fair share of bytes between the
//! queues of one class (deficit round robin, Shreedhar and Varghese 1995).
//!
//! A queue exists while a message waits in it, so idle channels cost neither memory nor time. The scheduler knows
//! nothing about sent messages, except that a ReliableSequenced channel has one in flight at a time.

mod dequeue;
mod invariants;

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use drumfire_wire::ChannelId;

use super::chunks::{BodyChunks, ChunkLimits};
use super::free_list::NO_INDEX;
use super::segment::{
    ExtraFields, Progress, QueueEntry, QueuedBodies, QueuedEntry, QueuedMessage, Segment, SingleEntry,
};
use super::segment_slab::SegmentSlab;
use crate::channel::receipt::ReceiptId;
use crate::channel::{ChannelOptions, Mode, Priority};
use crate::ids::KeyedBuildHasher;
use crate::time::Moment;
use crate::visits::{self, Visit};

/// Bytes that a queue of weight 1 may send in its turn.
const QUANTUM_BYTES: u32 = 256;

/// All queues of one connection.
#[derive(Debug)]
pub(super) struct ChannelScheduler {
    // Queues
    /// All waiting messages and segments. The queues link them.
    messages: SegmentSlab,
    /// The only queue, while there is just one: most connections use one channel at a time, and need no turns.
    /// `None` when there are several, and until all of those are empty.
    only: Option<(QueueKey, ChannelQueue)>,
    /// The queues when there are several.
    queues: HashMap<QueueKey, ChannelQueue, KeyedBuildHasher>,
    /// Queues in the rotation, by class. Each of several queues is in `turns` or in `blocked`, once.
    turns: [VecDeque<QueueKey>; Priority::COUNT],
    /// Queues of messages with ids that were visited while no id was available, or while too many messages were
    /// fragmented.
    blocked: [VecDeque<QueueKey>; Priority::COUNT],

    // Counts that show whether anything can be sent
    /// Whether any queue may be in `blocked`.
    has_blocked: bool,
    /// The number of queued messages and segments without ids.
    without_id: usize,
    /// The number of queues of messages with ids that are not blocked.
    open_queues: usize,
    /// The number of queues among them whose first message already has its id.
    begun_queues: usize,
    /// The next message with an id exceeds the peer's credit, and no other may overtake it.
    is_short_of_credit: bool,

    // Channels
    /// The ReliableSequenced channels with a message that waits or is in flight.
    sequenced: HashMap<ChannelId, Sequenced, KeyedBuildHasher>,
    /// The options of channels that differ from the default.
    options: HashMap<ChannelId, ChannelOptions, KeyedBuildHasher>,
}

/// The key of a queue. Messages with ids and without ids of a channel do not block each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueKey {
    /// The channel of all messages in the queue.
    channel: ChannelId,
    /// Whether the messages have ids.
    needs_id: bool,
}

impl Hash for QueueKey {
    /// Hashes one word, which is the cheapest input for the hasher.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.channel.0) << 1 | u64::from(self.needs_id));
    }
}

/// A queue with at least one message.
#[derive(Debug)]
struct ChannelQueue {
    /// The index of the first message or segment.
    first: u32,
    /// The index of the last message or segment.
    last: u32,
    /// The chunk to which the bodies of segments are appended, or `NO_INDEX`.
    chunk: u32,
    /// The deficit counter: bytes that the queue may send before the next queue has its turn.
    credit_bytes: u32,
    /// The class of priority, from the message that began the queue.
    class: usize,
    /// The receipts of all messages in segments that have receipts, oldest first.
    receipts: VecDeque<ReceiptId>,
}

/// The state of a ReliableSequenced channel besides the message in flight.
#[derive(Debug)]
struct Sequenced {
    /// The index of the newest message that was not sent yet, or `NO_INDEX`. While a message is in flight, the newest
    /// one is in no queue.
    newest: u32,
    /// Whether a message was sent and has not arrived.
    is_in_flight: bool,
    /// The priority of the newest message.
    priority: Priority,
}

impl ChannelScheduler {
    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(super) fn prefetch(&self) -> impl Copy + use<> {
        (self.messages.prefetch(), self.without_id, self.sequenced.len(), self.options.len())
    }

    pub(super) fn new(hash: KeyedBuildHasher) -> Self {
        Self {
            messages: SegmentSlab::new(),
            only: None,
            queues: HashMap::with_hasher(hash),
            turns: Default::default(),
            blocked: Default::default(),
            has_blocked: false,
            without_id: 0,
            open_queues: 0,
            begun_queues: 0,
            is_short_of_credit: false,
            sequenced: HashMap::with_hasher(hash),
            options: HashMap::with_hasher(hash),
        }
    }

    /// Queues a message. Returns the message that it replaces, if any. In an existing queue it gets the priority of
    /// the queue, so that nothing overtakes within a channel.
    pub(super) fn push(
        &mut self,
        waiting: QueuedMessage,
        priority: Priority,
        chunks: &mut BodyChunks,
        limits: ChunkLimits,
    ) -> Option<QueuedMessage> {
        if waiting.mode != Mode::ReliableSequenced {
            // In the usual case nothing waits.
            let may_join = self.has_queues() && waiting.can_be_in_segment();
            if !may_join || !self.join(&waiting, chunks, limits) {
                self.push_at_end(waiting, priority);
            }
            return None;
        }
        let fresh = Sequenced { newest: NO_INDEX, is_in_flight: false, priority };
        let state = self.sequenced.entry(waiting.channel).or_insert(fresh);
        let (channel, newest, is_in_flight) = (waiting.channel, state.newest, state.is_in_flight);
        debug_assert!(
            newest == NO_INDEX || self.messages.get(newest).is_some(),
            "the newest message of {channel:?} does not wait"
        );
        // The newer message takes the place of the one that waits, and keeps its turn.
        if self.messages.get(newest).is_some() {
            return self.messages.replace(newest, waiting);
        }
        let index = self.messages.put(waiting.into());
        if let Some(state) = self.sequenced.get_mut(&channel) {
            (state.newest, state.priority) = (index, priority);
        }
        if !is_in_flight {
            self.append(index, priority);
        }
        None
    }

    /// Adds a message to the segment with which its queue ends, or begins a segment with the message there. Returns false
    /// if the queue does not exist, or ends with something else.
    #[inline(never)]
    fn join(&mut self, message: &QueuedMessage, chunks: &mut BodyChunks, limits: ChunkLimits) -> bool {
        let has_copies = self.options_of(message.channel).redundancy.copies() > 0;
        let key = QueueKey { channel: message.channel, needs_id: message.mode.needs_id() };
        let Some(queue) = queue_mut(&mut self.only, &mut self.queues, key) else { return false };
        // Only the last entry is looked at: a message that joined an earlier one would overtake others.
        self.messages.get(queue.last).is_some_and(|last| message.can_join(last, has_copies))
            && self.messages.join(
                queue.last,
                message,
                (chunks, limits),
                &mut queue.chunk,
                &mut queue.receipts,
            )
    }

    /// Appends a message to its queue. Returns its index.
    pub(super) fn push_at_end(&mut self, waiting: QueuedMessage, priority: Priority) -> u32 {
        let index = self.messages.put(waiting.into());
        self.append(index, priority);
        index
    }

    /// Appends a segment to its queue. The messages have no receipts, and are given up at `deadline`.
    pub(super) fn push_segment(
        &mut self,
        channel: ChannelId,
        mode: Mode,
        segment: Segment,
        now: Moment,
        deadline: Option<Moment>,
        priority: Priority,
    ) {
        let extras = ExtraFields { deadline, ..ExtraFields::NONE };
        let entry =
            QueuedEntry { channel, mode, content: QueuedBodies::Segment(segment), queued_at: now, extras };
        let index = self.messages.put(entry);
        self.append(index, priority);
    }

    /// Replaces a message in its queue. Returns the old message.
    pub(super) fn replace(&mut self, index: u32, waiting: QueuedMessage) -> Option<QueuedMessage> {
        debug_assert!(
            self.messages.get(index).is_some(),
            "the message {index} is replaced, and does not wait"
        );
        self.messages.replace(index, waiting)
    }

    /// Sets how messages of a channel are sent from now on.
    pub(super) fn set_options(&mut self, channel: ChannelId, options: ChannelOptions) {
        if options == ChannelOptions::default() {
            self.options.remove(&channel);
        } else {
            self.options.insert(channel, options);
        }
    }

    /// Returns how messages of a channel are sent.
    pub(super) fn options_of(&self, channel: ChannelId) -> ChannelOptions {
        if self.options.is_empty() {
            return ChannelOptions::default();
        }
        self.options.get(&channel).copied().unwrap_or_default()
    }

    /// Whether a message can be sent, depending on whether ids are available.
    pub(super) const fn has_sendable(&self, can_assign_id: bool) -> bool {
        self.without_id > 0 || self.begun_queues > 0 || (can_assign_id && self.open_queues > 0)
    }

    /// Whether the peer's credit is too small for the next message with an id.
    pub(super) const fn is_short_of_credit(&self) -> bool {
        self.is_short_of_credit
    }

    /// Marks that the next message with an id exceeds the peer's credit, or no longer does.
    pub(super) const fn set_short_of_credit(&mut self, is_short: bool) {
        self.is_short_of_credit = is_short;
    }

    /// The channels with waiting messages, and since when the first of each has waited.
    pub(super) fn waiting_since(&self) -> impl Iterator<Item = (ChannelId, Moment)> {
        let only = self.only.iter().map(|(key, queue)| (key, queue));
        only.chain(&self.queues)
            .filter_map(|(key, queue)| Some((key.channel, self.messages.get(queue.first)?.queued_at)))
    }

    /// The class of the only queue, while there is just one.
    pub(super) fn only_class(&self) -> Option<usize> {
        self.only.as_ref().map(|(_, queue)| queue.class)
    }

    /// Whether a message waits in a queue.
    fn has_queues(&self) -> bool {
        self.only.is_some() || !self.queues.is_empty()
    }

    /// Releases the memory of messages and queues when none waits. The options of channels stay.
    pub(super) fn shrink(&mut self) {
        if self.entry_count() == 0 {
            self.messages = SegmentSlab::new();
            self.queues.shrink_to_fit();
            self.turns.iter_mut().chain(&mut self.blocked).for_each(VecDeque::shrink_to_fit);
        }
    }

    /// Whether the scheduler holds no state.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_queues() && self.sequenced.is_empty() && self.options.is_empty()
    }

    /// Returns queues that waited for ids to the rotation.
    pub(super) fn unblock(&mut self) {
        if !std::mem::take(&mut self.has_blocked) {
            return;
        }
        for (turns, blocked) in self.turns.iter_mut().zip(&mut self.blocked) {
            self.open_queues = self.open_queues.saturating_add(blocked.len());
            turns.append(blocked);
        }
    }

    /// Removes the current queue of this class from the rotation until [`Self::unblock`].
    pub(super) fn block(&mut self, class: usize) {
        // A blocked queue must be in one of the lists, so the shortcut for a single queue ends.
        if let Some((key, queue)) = self.only.take() {
            if let Some(turns) = self.turns.get_mut(queue.class) {
                turns.push_back(key);
            }
            self.queues.insert(key, queue);
        }
        // The current queue is at the front of its class, because `front` returned its message.
        let key = self.turns.get_mut(class).and_then(VecDeque::pop_front);
        debug_assert!(key.is_some_and(|key| key.needs_id), "the queue {key:?} waits for an id");
        let Some(key) = key else { return };
        debug_assert!(self.open_queues > 0, "a queue is blocked that was not counted as open");
        if let Some(blocked) = self.blocked.get_mut(class) {
            blocked.push_back(key);
        }
        self.has_blocked = true;
        self.open_queues = self.open_queues.saturating_sub(1);
    }

    /// Returns the first message or segment of the queue.
    pub(super) fn first(&self, key: QueueKey) -> Option<QueueEntry<'_>> {
        self.messages.get(self.queue(key)?.first)
    }

    /// Returns the queue whose key is `key`.
    fn queue(&self, key: QueueKey) -> Option<&ChannelQueue> {
        match &self.only {
            Some((only, queue)) => (*only == key).then_some(queue),
            None => self.queues.get(&key),
        }
    }

    /// Returns the first message of the queue, if it has its own payload.
    #[inline]
    pub(super) fn first_single(&self, key: QueueKey) -> Option<SingleEntry<'_>> {
        self.first(key)?.single()
    }

    /// Starts to fragment the first message of the current queue.
    pub(super) fn begin(&mut self, key: QueueKey, progress: Progress) {
        debug_assert!(
            self.first(key).is_some_and(|first| first.extras.progress.is_none()),
            "{key:?} has begun"
        );
        let Some(index) = self.queue_mut(key).map(|queue| queue.first) else { return };
        let Some(QueueEntry { mode, channel, .. }) = self.messages.get(index) else { return };
        self.messages.set_progress(index, progress);
        // A message with an id goes on when no further ids are available.
        if key.needs_id {
            self.begun_queues = self.begun_queues.saturating_add(1);
        }
        // Later messages of the sequenced channel wait until this one has arrived.
        if mode == Mode::ReliableSequenced
            && let Some(state) = self.sequenced.get_mut(&channel)
        {
            (state.newest, state.is_in_flight) = (NO_INDEX, true);
        }
    }

    /// Registers the progress of the fragmented first message of the queue.
    pub(super) fn advance(&mut self, key: QueueKey, number: u64, sent_bytes: u32) {
        let Some(index) = self.queue_mut(key).map(|queue| queue.first) else { return };
        let progress = self.messages.get(index).and_then(|entry| entry.extras.progress);
        debug_assert!(
            progress.is_some_and(|progress| progress.sent_bytes < sent_bytes),
            "a fragment of {key:?} makes no progress"
        );
        let Some(progress) = progress else { return };
        self.messages.set_progress(index, Progress { number, sent_bytes, ..progress });
        if let Some(queue) = self.queue_mut(key) {
            let bytes = sent_bytes.saturating_sub(progress.sent_bytes);
            queue.credit_bytes = queue.credit_bytes.saturating_sub(bytes);
        }
    }

    /// Returns the current queue, whose key is `key`.
    fn queue_mut(&mut self, key: QueueKey) -> Option<&mut ChannelQueue> {
        queue_mut(&mut self.only, &mut self.queues, key)
    }

    /// Returns the next message or segment of this class.
    pub(super) fn front(&mut self, class: usize, can_assign_id: bool) -> Option<(QueueKey, QueueEntry<'_>)> {
        if self.only.is_some() {
            visits::count(Visit::Queue);
        }
        if let Some((key, queue)) = &self.only {
            let entry = self.messages.get(queue.first)?;
            let may = can_assign_id || !key.needs_id || entry.extras.progress.is_some();
            return (may && queue.class == class).then_some((*key, entry));
        }
        // Nothing is left but blocked queues, which `unblock` returns.
        if self.without_id == 0 && self.open_queues == 0 {
            return None;
        }
        let key = loop {
            let key = *self.turns.get(class)?.front()?;
            visits::count(Visit::Queue);
            debug_assert!(self.first(key).is_some(), "{key:?} has its turn and no message");
            let turns = self.turns.get_mut(class)?;
            let is_alone = turns.len() == 1;
            let queue = self.queues.get_mut(&key)?;
            let first = self.messages.get(queue.first)?;
            if key.needs_id && !can_assign_id && first.extras.progress.is_none() {
                self.block(class);
                continue;
            }
            // Deficit round robin: a queue that lacks credit for its message gets a quantum, and the next queue has
            // its turn.
            let bytes = first.next_bytes();
            if is_alone || queue.credit_bytes >= bytes {
                break key;
            }
            // The quantum is small, so a channel waits for few messages of the others. A queue that is alone in its
            // class needs no credit.
            let weight = self.options.get(&key.channel).map_or(1, |options| options.weight.get());
            queue.credit_bytes =
                queue.credit_bytes.saturating_add(QUANTUM_BYTES.saturating_mul(weight.into()));
            turns.rotate_left(1);
        };
        let queue = self.queues.get(&key)?;
        Some((key, self.messages.get(queue.first)?))
    }

    /// Releases the newest message of a ReliableSequenced channel after the one in flight has arrived.
    pub(super) fn on_sequenced_arrived(&mut self, channel: ChannelId) {
        debug_assert!(
            self.sequenced.get(&channel).is_some_and(|state| state.is_in_flight),
            "a message of {channel:?} arrived that was not in flight"
        );
        let Some(state) = self.sequenced.get_mut(&channel) else { return };
        state.is_in_flight = false;
        let (newest, priority) = (state.newest, state.priority);
        if newest == NO_INDEX {
            self.sequenced.remove(&channel);
        } else {
            self.append(newest, priority);
        }
    }

    /// Appends the message at this index to its queue.
    fn append(&mut self, index: u32, priority: Priority) {
        debug_assert!(self.messages.get(index).is_some(), "the message {index} does not wait");
        let Some(QueueEntry { channel, mode, .. }) = self.messages.get(index) else { return };
        let key = QueueKey { channel, needs_id: mode.needs_id() };
        self.without_id = self.without_id.saturating_add(usize::from(!key.needs_id));
        let queue = match &mut self.only {
            Some((only, queue)) => (*only == key).then_some(queue),
            None => self.queues.get_mut(&key),
        };
        if let Some(queue) = queue {
            self.messages.link(queue.last, index);
            queue.last = index;
            return;
        }
        self.open_queues = self.open_queues.saturating_add(key.needs_id.into());
        let queue = ChannelQueue {
            first: index,
            last: index,
            chunk: NO_INDEX,
            credit_bytes: 0,
            class: priority.class(),
            receipts: VecDeque::new(),
        };
        // A single queue needs no rotation.
        if self.only.is_none() && self.queues.is_empty() {
            self.only = Some((key, queue));
            return;
        }
        // The second queue ends the shortcut, and both enter the rotation.
        let others = self.only.take();
        for (key, queue) in others.into_iter().chain([(key, queue)]) {
            if let Some(turns) = self.turns.get_mut(queue.class) {
                turns.push_back(key);
            }
            self.queues.insert(key, queue);
        }
    }

    /// The number of waiting messages and segments.
    pub(super) fn entry_count(&self) -> usize {
        self.messages.used_count()
    }
}

/// Returns the current queue, whose key is `key`, or any queue if there are several.
#[inline]
fn queue_mut<'a>(
    only: &'a mut Option<(QueueKey, ChannelQueue)>,
    queues: &'a mut HashMap<QueueKey, ChannelQueue, KeyedBuildHasher>,
    key: QueueKey,
) -> Option<&'a mut ChannelQueue> {
    match only {
        Some((only, queue)) => (*only == key).then_some(queue),
        None => queues.get_mut(&key),
    }
}

#[cfg(test)]
mod tests;
