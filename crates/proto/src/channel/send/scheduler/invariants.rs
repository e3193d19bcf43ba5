//! Invariants of the queues, the rotation, and the counts of the scheduler between two calls.
//!
//! Only builds with debug assertions check them.

use std::collections::VecDeque;

use drumfire_wire::Bodies;

use super::{ChannelQueue, ChannelScheduler, QueueKey, Sequenced};
use crate::channel::Mode;
use crate::channel::send::charge;
use crate::channel::send::chunks::{BodyChunks, BodyRange};
use crate::channel::send::free_list::NO_INDEX;
use crate::channel::send::segment::{QueueEntry, QueuedBodies, Segment};
use crate::convert::to_usize;
use crate::event::charge_all;

impl ChannelScheduler {
    /// Asserts what must hold between two calls. Returns the charges in bytes of the waiting messages, without those
    /// that were begun under an id, and the number of waiting values.
    pub(in crate::channel::send) fn assert_invariants(&self, chunks: &BodyChunks) -> (usize, usize) {
        // Each of several queues is in one list. A queue in no list would never be sent.
        debug_assert!(self.only.is_none() || self.queues.is_empty(), "the only queue is not alone");
        let listed_count = self.turns.iter().chain(&self.blocked).map(VecDeque::len).sum::<usize>();
        debug_assert_eq!(listed_count, self.queues.len(), "the queues do not match the rotation");
        for (class, keys) in (0..).zip(&self.turns).chain((0..).zip(&self.blocked)) {
            let is_of_class = |key| self.queues.get(key).is_some_and(|queue| queue.class == class);
            debug_assert!(
                keys.iter().all(is_of_class),
                "a list of class {class} has a queue of another class"
            );
        }
        let blocked_count = self.blocked.iter().map(VecDeque::len).sum::<usize>();
        debug_assert!(blocked_count == 0 || self.has_blocked, "blocked queues are forgotten");

        // Every message is in its queue, except the newest of a sequenced channel with a message in flight.
        let only = self.only.iter().map(|(key, queue)| (key, queue));
        let queues = only.chain(&self.queues);
        let in_queues = queues.clone().flat_map(|(key, queue)| self.check_queue(*key, queue));
        let is_aside = |state: &&Sequenced| state.is_in_flight && state.newest != NO_INDEX;
        let aside = self.sequenced.values().filter(is_aside).map(|state| self.messages.get(state.newest));
        let (mut count, mut bytes, mut value_count, mut without_id) = (0_usize, 0_usize, 0_usize, 0_usize);
        for entry in in_queues.chain(aside.flatten()) {
            count = count.saturating_add(1);
            value_count = value_count.saturating_add((entry.mode == Mode::ReliableLatest).into());
            let needs_id = entry.mode.needs_id();
            without_id = without_id.saturating_add((!needs_id).into());
            bytes = bytes.saturating_add(match entry.content {
                QueuedBodies::Segment(segment) => check_segment(segment, chunks),
                QueuedBodies::Single(_) if needs_id && entry.extras.progress.is_some() => 0,
                QueuedBodies::Single(payload) => charge(payload.len()),
            });
        }
        debug_assert_eq!(count, self.messages.used_count(), "a message waits in no queue");

        // The counts show whether there is anything to send.
        let with_id = queues.filter(|(key, _)| key.needs_id);
        let begun = with_id
            .clone()
            .filter(|(key, _)| self.first(**key).is_some_and(|first| first.extras.progress.is_some()));
        debug_assert_eq!(
            (self.without_id, self.open_queues, self.begun_queues),
            (without_id, with_id.count().saturating_sub(blocked_count), begun.count()),
            "what can be sent was counted wrong"
        );
        (bytes, value_count)
    }

    /// The bodies of all segments.
    pub(in crate::channel::send) fn segment_bodies(&self) -> impl Iterator<Item = &BodyRange> {
        self.messages.segments().map(|segment| &segment.bodies)
    }

    /// The chunks to which queues append.
    pub(in crate::channel::send) fn open_chunks(&self) -> impl Iterator<Item = u32> {
        let only = self.only.iter().map(|(_, queue)| queue);
        only.chain(self.queues.values()).map(|queue| queue.chunk).filter(|chunk| *chunk != NO_INDEX)
    }

    /// Asserts that a queue leads from its first message to its last, and returns its messages.
    fn check_queue(&self, key: QueueKey, queue: &ChannelQueue) -> impl Iterator<Item = QueueEntry<'_>> {
        debug_assert!(self.messages.get(queue.first).is_some(), "{key:?} is empty");
        let (first, last) = (queue.first, queue.last);
        let indices = std::iter::successors(Some(first), |index| Some(self.messages.next_of(*index)));
        let with_receipts = indices.clone().map_while(|index| self.messages.get(index)).map(|entry| {
            let QueuedBodies::Segment(segment) = entry.content else { return 0 };
            if segment.has_receipts { usize::from(segment.count) } else { 0 }
        });
        debug_assert_eq!(
            with_receipts.take(self.messages.used_count()).sum::<usize>(),
            queue.receipts.len(),
            "the segments of {key:?} have other receipts"
        );
        // A queue with a loop would not end.
        let indices = indices.take(self.messages.used_count().saturating_add(1));
        indices.map_while(|index| Some((index, self.messages.get(index)?))).map(move |(index, entry)| {
            let is_last = self.messages.get(self.messages.next_of(index)).is_none();
            debug_assert_eq!(is_last, index == last, "{key:?} does not end with its last message");
            debug_assert_eq!(
                (entry.channel, entry.mode.needs_id()),
                (key.channel, key.needs_id),
                "a message is in the queue {key:?}"
            );
            debug_assert!(
                entry.extras.progress.is_none() || index == first,
                "a message overtakes in {key:?}"
            );
            entry
        })
    }
}

/// Asserts that the counts of a segment agree with its bodies. Returns the charges of its messages in bytes.
fn check_segment(segment: &Segment, chunks: &BodyChunks) -> usize {
    let (mut left, mut count, mut payload_bytes) = (chunks.bodies(&segment.bodies), 0_u16, 0_usize);
    let first = Bodies::split_first(left).map_or(0, |(payload, _)| payload.len());
    while let Some((payload, rest)) = Bodies::split_first(left) {
        (left, count) = (rest, count.saturating_add(1));
        payload_bytes = payload_bytes.saturating_add(payload.len());
    }
    debug_assert!(
        left.is_empty()
            && count > 0
            && (count, payload_bytes, first)
                == (segment.count, to_usize(segment.payload_bytes), segment.first_bytes.into()),
        "{segment:?} has {count} messages of {payload_bytes} bytes, the first of {first}"
    );
    charge_all(count, payload_bytes)
}
