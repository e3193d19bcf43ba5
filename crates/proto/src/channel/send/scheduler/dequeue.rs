//! The removal of messages from their queues: they were sent, their lifetime ended, or newer messages need their memory.

use super::{ChannelScheduler, NO_INDEX, QueueKey, queue_mut};
use crate::channel::Mode;
use crate::channel::receipt::ReceiptId;
use crate::channel::send::charge;
use crate::channel::send::chunks::{BodyChunks, BodyRange};
use crate::channel::send::segment::{QueueEntry, QueuedBodies, QueuedEntry, QueuedMessage, turn_bytes};
use crate::channel::send::sent_run::RunFrame;
use crate::convert::{saturated, to_usize};
use drumfire_wire::ChannelId;

/// A message that was dropped before it was sent.
#[derive(Debug)]
pub(in crate::channel::send) struct DroppedMessage {
    /// The length of the payload in bytes.
    pub(in crate::channel::send) payload_bytes: usize,
    /// The receipt, which was not answered.
    pub(in crate::channel::send) receipt: Option<ReceiptId>,
}

impl ChannelScheduler {
    /// The bytes that the current queue of this class may send before the next one has its turn.
    pub(in crate::channel::send) fn turn_bytes(&self, key: QueueKey, class: usize) -> usize {
        // A queue that is alone in its class needs no credit.
        if self.only.is_some() || self.turns.get(class).is_some_and(|turns| turns.len() == 1) {
            return usize::MAX;
        }
        self.queues.get(&key).map_or(0, |queue| to_usize(queue.credit_bytes))
    }

    /// Removes the first message of the current queue, which has its own payload, because it was sent or given up.
    #[inline]
    pub(in crate::channel::send) fn pop(
        &mut self,
        key: QueueKey,
        is_sent: bool,
        chunks: &mut BodyChunks,
    ) -> Option<QueuedMessage> {
        let removed = self.remove_first(key, is_sent, chunks)?;
        debug_assert!(matches!(removed.content, QueuedBodies::Single(_)), "{key:?} begins with a segment");
        removed.into_message()
    }

    /// Removes the first messages of the current queue, which begins with a segment that has all of them. Calls
    /// `on_receipt` with their receipts. Returns their bodies, which the caller must release.
    pub(in crate::channel::send) fn take_part(
        &mut self,
        key: QueueKey,
        part: &RunFrame,
        chunks: &mut BodyChunks,
        on_receipt: impl FnMut(ReceiptId),
    ) -> Option<BodyRange> {
        let queue = queue_mut(&mut self.only, &mut self.queues, key)?;
        let segment = self.messages.segment_mut(queue.first)?;
        // Segments with receipts leave in the order in which their messages came, so the receipts need no position.
        if segment.has_receipts {
            let count = usize::from(part.count).min(queue.receipts.len());
            queue.receipts.drain(..count).for_each(on_receipt);
        }
        if part.count < segment.count {
            let bytes = turn_bytes(part.count, saturated(part.payload_bytes, u32::MAX));
            queue.credit_bytes = queue.credit_bytes.saturating_sub(bytes);
            return Some(segment.split_first(part, chunks));
        }
        match self.remove_first(key, true, chunks)?.content {
            QueuedBodies::Segment(segment) => Some(segment.bodies),
            QueuedBodies::Single(_) => None,
        }
    }

    /// Removes the first message or segment of the current queue.
    #[inline]
    fn remove_first(&mut self, key: QueueKey, is_sent: bool, chunks: &mut BodyChunks) -> Option<QueuedEntry> {
        debug_assert!(self.first(key).is_some(), "{key:?} has no message to remove");
        let is_only = self.only.is_some();
        let queue = queue_mut(&mut self.only, &mut self.queues, key)?;
        let first = self.messages.get(queue.first)?;
        let bytes = match first.content {
            QueuedBodies::Segment(segment) => turn_bytes(segment.count, segment.payload_bytes),
            QueuedBodies::Single(_) => first.next_bytes(),
        };
        queue.credit_bytes = queue.credit_bytes.saturating_sub(bytes);
        let (removed, next) = self.messages.take(queue.first)?;
        queue.first = next;
        let (is_now_empty, class) = (queue.first == NO_INDEX, queue.class);
        // The chunk of a queue that ends may have room for the messages of another one.
        if is_now_empty {
            chunks.close(&mut queue.chunk);
        }
        if is_now_empty && is_only {
            self.only = None;
        } else if is_now_empty {
            self.queues.remove(&key);
            if let Some(turns) = self.turns.get_mut(class)
                && turns.front() == Some(&key)
            {
                turns.pop_front();
            }
        }
        // The counts show whether anything can be sent. With a count too high, the endpoint would build empty packets
        // forever, and with a count too low, messages would wait forever.
        debug_assert!(
            if key.needs_id {
                self.open_queues >= usize::from(is_now_empty)
                    && self.begun_queues >= usize::from(removed.extras.progress.is_some())
            } else {
                self.without_id > 0
            },
            "a message of {key:?} was not counted"
        );
        if !key.needs_id {
            self.without_id = self.without_id.saturating_sub(1);
        } else {
            self.begun_queues = self.begun_queues.saturating_sub(removed.extras.progress.is_some().into());
            self.open_queues = self.open_queues.saturating_sub(is_now_empty.into());
        }
        if removed.mode == Mode::ReliableSequenced
            && removed.extras.progress.is_none()
            && let Some(state) = self.sequenced.get_mut(&removed.channel)
        {
            (state.newest, state.is_in_flight) = (NO_INDEX, is_sent);
            if !is_sent {
                self.sequenced.remove(&removed.channel);
            }
        }
        Some(removed)
    }

    /// The charge of the message with its own payload at this index. 0 if there is none.
    pub(in crate::channel::send) fn charge_at(&self, index: u32) -> usize {
        let single = self.messages.get(index).and_then(QueueEntry::single);
        single.map_or(0, |waiting| charge(waiting.payload.len()))
    }

    /// The charge of the message that a newer one of this ReliableSequenced channel replaces. 0 if there is none.
    pub(in crate::channel::send) fn replaced_bytes(&self, channel: ChannelId) -> usize {
        self.sequenced.get(&channel).map_or(0, |state| self.charge_at(state.newest))
    }

    /// Whether [`Self::drop_oldest`] can free this much memory of a channel, besides that of the message that a newer one of a
    /// ReliableSequenced channel replaces.
    pub(in crate::channel::send) fn may_drop(&self, channel: ChannelId, mode: Mode, bytes: usize) -> bool {
        let key = QueueKey { channel, needs_id: mode.needs_id() };
        let Some(queue) = self.queue(key) else { return false };
        // The memory of the message that is replaced is free in any case.
        let sequenced = self.sequenced.get(&channel).filter(|_| mode == Mode::ReliableSequenced);
        let replaced = sequenced.map_or(NO_INDEX, |state| state.newest);
        // Mostly the first message is enough, and the walk ends with it.
        let (mut index, mut free_bytes) = (queue.first, 0_usize);
        while let Some(entry) = self.messages.get(index)
            && is_droppable(entry, mode)
        {
            if index != replaced {
                free_bytes = free_bytes.saturating_add(entry.charge());
            }
            if free_bytes >= bytes {
                return true;
            }
            index = self.messages.next_of(index);
        }
        false
    }

    /// Removes the oldest message of a channel that was not sent yet, except ReliableLatest values.
    pub(in crate::channel::send) fn drop_oldest(
        &mut self,
        channel: ChannelId,
        mode: Mode,
        chunks: &mut BodyChunks,
    ) -> Option<DroppedMessage> {
        let key = QueueKey { channel, needs_id: mode.needs_id() };
        let first = self.first(key).filter(|first| is_droppable(*first, mode))?;
        let part = match first.content {
            QueuedBodies::Segment(segment) => Some(segment.first()),
            QueuedBodies::Single(_) => None,
        };
        let class = self.queues.get(&key).map(|queue| queue.class);
        let is_blocked = class.and_then(|class| self.blocked.get(class)).is_some_and(|of| of.contains(&key));
        let open_queues = self.open_queues;
        // An open queue leaves the count with its last message, and a blocked one is not in it.
        if is_blocked {
            self.open_queues = open_queues.saturating_add(1);
        }
        let dropped = match part {
            Some(part) => {
                let mut receipt = None;
                let bodies = self.take_part(key, &part, chunks, |of_first| receipt = Some(of_first))?;
                chunks.release(bodies);
                DroppedMessage { payload_bytes: part.payload_bytes, receipt }
            }
            None => {
                let QueuedMessage { payload, extras, .. } = self.pop(key, false, chunks)?;
                DroppedMessage { payload_bytes: payload.len(), receipt: extras.receipt }
            }
        };
        if is_blocked {
            self.open_queues = open_queues;
        }
        let Some(class) = class.filter(|_| !self.queues.contains_key(&key)) else { return Some(dropped) };
        for queue in [&mut self.turns, &mut self.blocked] {
            if let Some(keys) = queue.get_mut(class) {
                keys.retain(|other| *other != key);
            }
        }
        Some(dropped)
    }
}

/// Whether a message or segment may be dropped for a newer message of this mode.
fn is_droppable(entry: QueueEntry<'_>, mode: Mode) -> bool {
    // A message that has begun is promised to the peer. A value is replaced by a newer one of its key, and not dropped.
    mode != Mode::ReliableLatest && entry.mode != Mode::ReliableLatest && entry.extras.progress.is_none()
}
