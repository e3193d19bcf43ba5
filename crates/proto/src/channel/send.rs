//! Messages that wait to be sent, and reliable messages until they are acknowledged.
//!
//! Within each priority class, lost messages are sent first, then waiting messages in turn. The packet builder
//! decides when to fill a packet.

mod blocks;
mod chunks;
mod fates;
mod fill;
mod fragments;
mod free_list;
mod latest;
mod reliable;
mod room;
mod scheduler;
mod segment;
mod segment_slab;
mod sent_run;

use std::time::Duration;

use drumfire_wire::{ChannelId, MessageId};

use self::chunks::{BodyChunks, ChunkLimits};
use self::latest::{LatestValues, ReplacedValue};
use self::reliable::{Reliable, SkippedMessages};
use self::scheduler::{ChannelScheduler, QueueKey};
use self::segment::{ExtraFields, QueuedBodies, QueuedMessage};
use super::credit::SendCredit;
use super::message::{Message, SendOptions};
use super::receipt::{Outcome, ReceiptId, Receipts};
use super::{ChannelOptions, IfFull, Mode, Priority, notify_below_bytes};
use crate::event::charge_all;
use crate::ids::KeyedBuildHasher;
use crate::limits::ITEM_CHARGE_BYTES;
use crate::time::Moment;

pub(crate) use self::fill::{FillCounts, Packet};

/// The queued messages of one connection.
#[derive(Debug)]
pub(crate) struct SendQueue {
    // Messages. Each part is `None` until it is needed, and again after `shrink` found it empty.
    /// The messages that wait, and the options of channels.
    scheduler: Option<Box<ChannelScheduler>>,
    /// The messages with ids that were sent, until they are acknowledged.
    reliable: Option<Box<Reliable>>,
    /// The bodies of messages that wait in segments or were sent in runs.
    chunks: BodyChunks,
    /// The values of keys, waiting and in flight.
    latest: Option<Box<LatestValues>>,
    /// The receipts of messages without ids, and all outcomes.
    receipts: Option<Box<Receipts>>,

    // Limits
    /// The id of the next reliable message while `reliable` is `None`.
    next_id: u64,
    /// The keyed hash for tables whose keys the peer may control.
    hash: KeyedBuildHasher,
    /// Bytes of messages that wait or are not acknowledged, including charges.
    used_bytes: usize,
    /// The peer's limits for reliable messages.
    pub(crate) credit: SendCredit,
    /// The time at which the lifetime ends of the message that waits for the peer's credit. `None` while no message
    /// waits for it, or one without a lifetime.
    credit_deadline: Option<Moment>,

    // Notices to senders
    /// A sender was refused and is notified when fewer bytes than this are used. 0 = no sender was refused.
    notify_below_bytes: usize,
    /// `used_bytes` without the memory that was freed since the last [`SendQueue::has_freed`].
    reported_bytes: usize,
    /// The connection is listed as one that has freed memory.
    pub(crate) is_listed: bool,
}

/// The state that is kept while there is nothing to send and nothing in flight.
#[derive(Debug)]
pub(crate) struct IdleSendState {
    /// The id of the next reliable message.
    next_id: u64,
    /// The peer's limits for reliable messages.
    pub(crate) credit: SendCredit,
}

impl IdleSendState {
    pub(crate) const fn new() -> Self {
        Self { next_id: 0, credit: SendCredit::new() }
    }
}

/// The result of queueing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushResult {
    /// The message was queued, and this many older messages were dropped for it.
    Taken(u32),
    /// The sender has to wait.
    Full,
    /// The message was dropped. The count includes older messages that were dropped with it.
    Dropped(u32),
    /// The connection must close.
    Overflow,
}

impl SendQueue {
    /// Creates an empty queue that continues from an idle state.
    pub(crate) const fn new(
        IdleSendState { next_id, credit }: IdleSendState,
        hash: KeyedBuildHasher,
    ) -> Self {
        let used_bytes = 0;
        Self {
            scheduler: None,
            reliable: None,
            chunks: BodyChunks::new(),
            latest: None,
            receipts: None,
            next_id,
            hash,
            used_bytes,
            credit,
            credit_deadline: None,
            notify_below_bytes: 0,
            reported_bytes: 0,
            is_listed: false,
        }
    }

    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(crate) fn prefetch(&self) -> impl Copy + use<> {
        let scheduler = self.scheduler.as_deref().map(ChannelScheduler::prefetch);
        (scheduler, self.reliable.as_deref().map(Reliable::prefetch), self.used_bytes)
    }

    /// Processes the peer's new total credit.
    pub(crate) fn on_credit(&mut self, total_bytes: u64) {
        // More credit may be enough for the message that waits for it.
        if self.credit.on_credit(total_bytes) {
            self.recheck_credit();
        }
    }

    /// Returns the time at which [`Self::on_timeout`] must be called, because the message that waits for credit can
    /// then be given up.
    #[inline]
    pub(crate) const fn credit_deadline(&self) -> Option<Moment> {
        self.credit_deadline
    }

    /// Ends the wait for credit if the lifetime of the message that waits has ended. The next packet gives the message up.
    #[inline]
    pub(crate) fn on_timeout(&mut self, now: Moment) {
        // No other message with an id may overtake it, so all of them would wait for a message that is never sent.
        if self.credit_deadline.is_some_and(|deadline| deadline <= now) {
            self.recheck_credit();
        }
    }

    /// Compares the next message with the peer's credit again: there is more credit, or the message that waited for it was
    /// dropped or has expired.
    fn recheck_credit(&mut self) {
        self.credit_deadline = None;
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.set_short_of_credit(false);
        }
        self.unblock();
    }

    /// Queues a message if `limit_bytes` of memory have room for it. Otherwise the channel's options decide, and `if_full` in a
    /// channel that blocks.
    pub(crate) fn push(
        &mut self,
        limit_bytes: usize,
        now: Moment,
        message: Message,
        receipt: Option<ReceiptId>,
        if_full: IfFull,
    ) -> PushResult {
        let Message { channel, payload, options } = message;
        // Chunks belong to the whole connection, so the share of a priority does not limit them.
        let chunk_limits = ChunkLimits { limit_bytes, used_bytes: self.used_bytes };
        let limit_bytes = options.priority.share_of(limit_bytes);
        let bytes = charge(payload.len());
        // The memory decides first: a message that is refused changes nothing.
        let mut dropped_count = 0;
        if self.used_bytes.saturating_add(bytes) > limit_bytes {
            match self.make_room(limit_bytes, bytes, channel, &options) {
                PushResult::Taken(count) => dropped_count = count,
                // The sender was promised this memory, and has no way to repeat the message.
                PushResult::Full if if_full == IfFull::Accept => {}
                PushResult::Full if if_full == IfFull::Notify => {
                    // All refused senders try again after one notice, so the one that needs the least room decides.
                    let below_bytes = notify_below_bytes(limit_bytes, payload.len(), 2);
                    self.notify_below_bytes = self.notify_below_bytes.max(below_bytes);
                    return PushResult::Full;
                }
                refused => {
                    if let (PushResult::Dropped(_), Some(receipt)) = (refused, receipt) {
                        self.receipts.get_or_insert_default().resolve(receipt, Outcome::Expired);
                    }
                    return refused;
                }
            }
        }
        let used_bytes = self.used_bytes.saturating_add(bytes);
        let SendOptions { mode, key, priority, lifetime } = options;
        let deadline = lifetime.map(|lifetime| now.after(lifetime));
        let scheduler = self.scheduler.get_or_insert_with(|| Box::new(ChannelScheduler::new(self.hash)));
        let key = if mode == Mode::ReliableLatest { key } else { 0 };
        let extras = ExtraFields { deadline, receipt, key, version: None, progress: None };
        let waiting = QueuedMessage { channel, mode, payload, queued_at: now, extras };
        // A value replaces the older value of its key, whether that waits or is in flight.
        let replaced = if mode == Mode::ReliableLatest {
            let latest = self.latest.get_or_insert_with(|| Box::new(LatestValues::new(self.hash)));
            push_value(scheduler, latest, waiting, priority)
        } else {
            scheduler.push(waiting, priority, &mut self.chunks, chunk_limits)
        };
        self.used_bytes = used_bytes;
        self.reported_bytes = self.reported_bytes.saturating_add(bytes);
        if let Some(older) = replaced {
            self.forget(&older, Outcome::Expired);
            self.recheck_credit();
        }
        PushResult::Taken(dropped_count)
    }

    /// Returns whether a refused sender must be notified now, once per refusal.
    pub(crate) fn take_writable(&mut self) -> bool {
        // While no sender was refused, the threshold is 0, and this is one comparison.
        self.used_bytes < self.notify_below_bytes && std::mem::take(&mut self.notify_below_bytes) > 0
    }

    /// Whether memory was freed since the last call.
    pub(crate) fn has_freed(&mut self) -> bool {
        std::mem::replace(&mut self.reported_bytes, self.used_bytes) > self.used_bytes
    }

    /// Bytes of messages that wait or are not acknowledged, including charges.
    pub(crate) const fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Returns the time that the next message of each channel has waited.
    pub(crate) fn queue_times(&self, now: Moment) -> Vec<(ChannelId, Duration)> {
        let waiting = self.scheduler.iter().flat_map(|scheduler| scheduler.waiting_since());
        let mut times: Vec<_> = waiting.map(|(channel, since)| (channel, now.since(since))).collect();
        times.sort_unstable();
        times
    }

    /// Returns how messages of a channel are sent.
    pub(crate) fn options_of(&self, channel: ChannelId) -> ChannelOptions {
        self.scheduler
            .as_ref()
            .map_or_else(ChannelOptions::default, |scheduler| scheduler.options_of(channel))
    }

    /// Sets how messages of a channel are sent from now on.
    pub(crate) fn set_options(&mut self, channel: ChannelId, options: ChannelOptions) {
        self.scheduler
            .get_or_insert_with(|| Box::new(ChannelScheduler::new(self.hash)))
            .set_options(channel, options);
    }

    /// Whether a packet could carry a message.
    pub(crate) fn has_sendable(&self) -> bool {
        self.has_lost()
            || self.scheduler.as_ref().is_some_and(|scheduler| scheduler.has_sendable(self.can_assign_id()))
    }

    /// Whether a lost message waits to be sent again.
    fn has_lost(&self) -> bool {
        self.reliable.as_ref().is_some_and(|reliable| reliable.has_lost())
    }

    /// Whether the next message with an id may be sent: an id is free, and the peer has credit for it.
    fn can_assign_id(&self) -> bool {
        let has_ids = self.reliable.as_ref().is_none_or(|reliable| reliable.can_assign_id());
        has_ids && !self.scheduler.as_ref().is_some_and(|scheduler| scheduler.is_short_of_credit())
    }

    /// Resumes queues that waited for ids, for credit, or for other fragmented messages.
    fn unblock(&mut self) {
        if self.can_assign_id()
            && let Some(scheduler) = &mut self.scheduler
        {
            scheduler.unblock();
        }
    }

    /// Gives up the first message of a queue, because its lifetime ended or the peer does not accept its size. Returns
    /// false for a message that was given up before, when a lost fragment of it was to be repeated.
    fn expire(&mut self, queue_key: QueueKey, now: Moment) -> bool {
        let progress =
            self.scheduler.as_ref().and_then(|scheduler| scheduler.first(queue_key)?.extras.progress);
        let Some(progress) = progress else {
            let _ = self.pop(queue_key, Outcome::Expired);
            return true;
        };
        // A part was sent. The peer holds memory for a message with an id, and learns from a Skip that the rest will
        // not follow.
        let chunks = &mut self.chunks;
        let removed = self.scheduler.as_mut().and_then(|scheduler| scheduler.pop(queue_key, true, chunks));
        debug_assert!(removed.is_some(), "the message that has expired does not wait");
        let Some(removed) = removed else { return false };
        if !removed.mode.needs_id() {
            release(&mut self.used_bytes, charge(removed.payload.len()));
            if let (Some(id), Some(receipts)) = (progress.receipt, &mut self.receipts) {
                receipts.abandon(id);
            }
            return true;
        }
        let chunks = &mut self.chunks;
        let skipped =
            self.reliable.as_mut().and_then(|reliable| reliable.abandon(progress.number, now, chunks));
        let is_new = skipped.is_some();
        skipped.into_iter().for_each(|skipped| self.on_given_up(skipped));
        is_new
    }

    /// Gives up all messages of the segment with which a queue begins, because their lifetime ended. Returns their number.
    fn expire_segment(&mut self, queue_key: QueueKey) -> u16 {
        let Some(scheduler) = &mut self.scheduler else { return 0 };
        let first = scheduler.first(queue_key).map(|first| first.content);
        debug_assert!(
            matches!(first, Some(QueuedBodies::Segment(_))),
            "{queue_key:?} begins with no segment"
        );
        let Some(QueuedBodies::Segment(segment)) = first else { return 0 };
        // The messages share a deadline, so none of them can be sent any more.
        let whole = segment.whole();
        let (chunks, receipts) = (&mut self.chunks, &mut self.receipts);
        let bodies = scheduler.take_part(queue_key, &whole, chunks, |receipt| {
            receipts.get_or_insert_default().resolve(receipt, Outcome::Expired);
        });
        bodies.into_iter().for_each(|bodies| chunks.release(bodies));
        release(&mut self.used_bytes, charge_all(whole.count, whole.payload_bytes));
        whole.count
    }

    /// Accounts for a message that was given up after part of it was sent. Its overhead stays charged until the peer
    /// acknowledged the Skip.
    fn on_given_up(&mut self, skipped: SkippedMessages) {
        release(&mut self.used_bytes, skipped.payload_bytes);
        if let Some(receipts) = &mut self.receipts {
            receipts.resolve_ids(skipped.ids.first..skipped.ids.end(), Outcome::Expired);
        }
    }

    /// Removes a message that is not kept: it was sent, or its lifetime ended. Returns its receipt.
    fn pop(&mut self, queue_key: QueueKey, outcome: Outcome) -> Option<ReceiptId> {
        let chunks = &mut self.chunks;
        let removed = self.scheduler.as_mut().and_then(|scheduler| scheduler.pop(queue_key, false, chunks));
        debug_assert!(removed.is_some(), "the message to remove does not wait");
        let removed = removed?;
        if removed.mode == Mode::ReliableLatest
            && let Some(latest) = &mut self.latest
        {
            latest.forget((removed.channel, removed.extras.key));
        }
        self.forget(&removed, outcome);
        removed.extras.receipt
    }

    /// Keeps a value that was sent, until the fate of its packet is known.
    fn keep_value(
        &mut self,
        queue_key: QueueKey,
        class: usize,
        version: u64,
        number: u64,
    ) -> Option<MessageId> {
        debug_assert!(
            self.latest.is_some()
                && self.scheduler.as_ref().is_some_and(|queues| queues.first(queue_key).is_some()),
            "the value that was written does not wait"
        );
        let mut sent = self.scheduler.as_mut()?.pop(queue_key, true, &mut self.chunks)?;
        sent.extras.version = Some(version);
        let (key, priority) = ((sent.channel, sent.extras.key), Priority::of_class(class));
        Some(self.latest.as_mut()?.on_sent(key, sent, priority, number))
    }

    /// Releases the charge of a message, and resolves its receipt if the outcome is known.
    fn forget(&mut self, removed: &QueuedMessage, outcome: Outcome) {
        release(&mut self.used_bytes, charge(removed.payload.len()));
        // The fate of an unreliable message is not known when it is sent. Its receipt is open until then.
        if let (Some(receipt), Outcome::Expired | Outcome::Acknowledged) = (removed.extras.receipt, outcome) {
            self.receipts.get_or_insert_default().resolve(receipt, outcome);
        }
    }

    /// Returns the next receipt whose outcome is known.
    pub(crate) fn pop_receipt(&mut self) -> Option<(ReceiptId, Outcome)> {
        self.receipts.as_mut()?.pop()
    }

    /// Releases memory that an idle connection does not need. Returns the remaining state if the queue is empty.
    ///
    /// The ids of receipts and values start again after this, so no packet that `loss` remembers may still name one.
    pub(crate) fn shrink(&mut self) -> Option<IdleSendState> {
        if self.notify_below_bytes > 0 || self.is_listed {
            return None;
        }
        self.latest.take_if(|latest| latest.is_empty());
        // A message that waits may be sent in part, and its other fragments have the same receipt id.
        let has_waiting = self.scheduler.as_ref().is_some_and(|scheduler| scheduler.entry_count() > 0);
        self.receipts.take_if(|receipts| !has_waiting && receipts.is_empty());
        self.scheduler.take_if(|scheduler| scheduler.is_empty());
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.shrink();
        }
        self.chunks.shrink();
        // The next id survives in any case. The peer would take a message with an earlier id for a copy.
        if let Some(reliable) = &self.reliable
            && let Some(next_id) = reliable.next_id_when_empty()
        {
            self.next_id = next_id;
            self.reliable = None;
        }
        match *self {
            Self {
                scheduler: None, reliable: None, latest: None, receipts: None, next_id, credit, ..
            } => Some(IdleSendState { next_id, credit }),
            _ => None,
        }
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        let scheduler = self.scheduler.as_ref();
        // A walk per message would make tests with very long queues quadratic.
        if scheduler.is_some_and(|scheduler| scheduler.entry_count() > CHECKED_MAX) {
            return;
        }
        // Each message is charged once, wherever it is. A fragmented message with an id is in two places while parts
        // of it wait to be sent, and belongs to `reliable`.
        let waiting = scheduler.map_or((0, 0), |scheduler| scheduler.assert_invariants(&self.chunks));
        let sent_bytes = self.reliable.as_ref().map_or(0, |reliable| reliable.assert_invariants());
        let (values_waiting_count, value_bytes) =
            self.latest.as_ref().map_or((0, 0), |latest| latest.assert_invariants());
        let (waiting_bytes, waiting_value_count) = waiting;
        debug_assert_eq!(
            self.used_bytes,
            waiting_bytes.saturating_add(sent_bytes).saturating_add(value_bytes),
            "the send memory was counted wrong: {waiting_bytes} bytes wait, {sent_bytes} were sent, {value_bytes} of \
             values are in flight"
        );
        debug_assert_eq!(
            waiting_value_count, values_waiting_count,
            "a waiting value has no key, or a key no value"
        );
        self.receipts.iter().for_each(|receipts| receipts.assert_invariants());
        let segments = scheduler.iter().flat_map(|scheduler| scheduler.segment_bodies());
        let runs = self.reliable.iter().flat_map(|reliable| reliable.run_bodies());
        let open = scheduler.iter().flat_map(|scheduler| scheduler.open_chunks());
        self.chunks.assert_invariants(segments.chain(runs), open);
    }
}

/// The number of waiting messages and segments up to which [`SendQueue::assert_invariants`] examines all of them.
const CHECKED_MAX: usize = 4_096;

/// Releases memory that was charged for a message.
fn release(used_bytes: &mut usize, bytes: usize) {
    debug_assert!(bytes <= *used_bytes, "{bytes} bytes are released, of {used_bytes} in use");
    *used_bytes = used_bytes.saturating_sub(bytes);
}

/// Puts a value in the place of the older value of its key, or at the end of its queue. Returns the older value.
fn push_value(
    scheduler: &mut ChannelScheduler,
    latest: &mut LatestValues,
    waiting: QueuedMessage,
    priority: Priority,
) -> Option<QueuedMessage> {
    let key = (waiting.channel, waiting.extras.key);
    let older = match latest.supersede(key) {
        // The newer value keeps the turn of the older one. A value that changes often would otherwise never be sent.
        ReplacedValue::Waiting(place) => return scheduler.replace(place, waiting),
        ReplacedValue::InFlight(older) => Some(older),
        ReplacedValue::None => None,
    };
    latest.on_queued(key, scheduler.push_at_end(waiting, priority));
    older
}

/// The memory of a message in bytes.
fn charge(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES)
}

#[cfg(test)]
mod tests;
