//! The memory of waiting messages: an entry for each single one and for each segment, linked to the next one of its
//! queue. A second array has the properties that few entries have.

use std::collections::VecDeque;

use bytes::Bytes;
use drumfire_wire::ChannelId;

use super::chunks::{BodyChunks, ChunkLimits};
use super::free_list::{FreeList, NO_INDEX};
use super::segment::{ExtraFields, Progress, QueueEntry, QueuedBodies, QueuedEntry, QueuedMessage, Segment};
use crate::channel::Mode;
use crate::channel::receipt::ReceiptId;
use crate::convert::to_usize;
use crate::time::Moment;

/// The waiting messages and segments of one connection, unordered.
#[derive(Debug)]
pub(super) struct SegmentSlab {
    /// The entries by index. Free entries have no mode.
    entries: Vec<SlabEntry>,
    /// The indices of `entries` that are free.
    free: FreeList,
    /// The properties that few entries have, by the `slot` of their entry.
    extras: Vec<ExtrasSlot>,
    /// The free indices of `extras`.
    free_slots: FreeList,
}

/// A waiting message or segment, or a free entry without a mode. `next` links to the next entry of the queue or of the free
/// list.
#[derive(Debug)]
struct SlabEntry {
    /// The message or messages. An empty message for a free entry.
    content: QueuedBodies,
    /// The time at which the first message was queued.
    queued_at: Moment,
    /// The index of its extras, or `NO_INDEX` for an entry without any.
    slot: u32,
    /// The index of the next entry of its queue or of the free list, or `NO_INDEX` for the last one.
    next: u32,
    /// The channel of the messages.
    channel: ChannelId,
    /// The delivery mode, or `None` for a free entry.
    mode: Option<Mode>,
}

/// An entry of `extras`.
#[derive(Debug)]
enum ExtrasSlot {
    /// The entry is in use.
    Used(ExtraFields),
    /// The entry is free, and links to the next free one.
    Free(u32),
}

impl SegmentSlab {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), free: FreeList::new(), extras: Vec::new(), free_slots: FreeList::new() }
    }

    /// The number of entries that fit into the allocated memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Reads the entry of the next message, for `Connection::prefetch_parts`.
    #[inline]
    pub(super) fn prefetch(&self) -> impl Copy + use<> {
        self.entries.get(to_usize(self.free.next())).map(|entry| entry.next)
    }

    /// Returns the entry at this index.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<QueueEntry<'_>> {
        // A free entry has no mode, so it is never taken for a message.
        let SlabEntry { content, queued_at, slot, channel, mode, .. } = self.entries.get(to_usize(index))?;
        let extras = match self.extras.get(to_usize(*slot)) {
            Some(ExtrasSlot::Used(extras)) => extras,
            _ => &ExtraFields::NONE,
        };
        Some(QueueEntry { channel: *channel, mode: (*mode)?, content, queued_at: *queued_at, extras })
    }

    /// Stores an entry as the last of its queue. Returns its index.
    #[inline]
    pub(super) fn put(&mut self, entry: QueuedEntry) -> u32 {
        let QueuedEntry { channel, mode, content, queued_at, extras } = entry;
        let slot = self.keep(extras);
        let new = SlabEntry { content, queued_at, slot, next: NO_INDEX, channel, mode: Some(mode) };
        // Entries that were released are used first, so the array grows only as far as the longest queues.
        let index = self.free.next();
        match self.entries.get_mut(to_usize(index)) {
            Some(entry) => {
                debug_assert!(entry.mode.is_none(), "the entry {index} is in use");
                self.free.take(entry.next);
                *entry = new;
            }
            None => {
                self.free.take_new();
                self.entries.push(new);
            }
        }
        index
    }

    /// Adds a message to the entry at this index, with which its queue ends, as `QueuedMessage::can_join` allows. `open` is
    /// the chunk of the queue, and `receipts` those of its segments. Returns false if there is no memory for its body.
    pub(super) fn join(
        &mut self,
        index: u32,
        message: &QueuedMessage,
        (chunks, limits): (&mut BodyChunks, ChunkLimits),
        open: &mut u32,
        receipts: &mut VecDeque<ReceiptId>,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(to_usize(index)) else { return false };
        let receipt = message.extras.receipt;
        match &mut entry.content {
            QueuedBodies::Segment(segment) => {
                // This is the usual case of a busy queue: no entry, no link, and no reference is added.
                if !chunks.extend(&mut segment.bodies, *open, &message.payload) {
                    return false;
                }
                segment.on_extended(&message.payload);
            }
            // The second message begins a segment. A message that is alone is never copied.
            QueuedBodies::Single(payload) => {
                let payloads = [&payload[..], &message.payload[..]];
                let Some(bodies) = chunks.add(open, payloads, limits) else { return false };
                entry.content = QueuedBodies::Segment(Segment::new(bodies, payloads, receipt.is_some()));
                if let Some(first) = self.take_receipt(index) {
                    receipts.push_back(first);
                }
            }
        }
        // Receipts are not in the segment, because few messages have one.
        if let Some(receipt) = receipt {
            receipts.push_back(receipt);
        }
        true
    }

    /// Removes the receipt of the message at this index.
    fn take_receipt(&mut self, index: u32) -> Option<ReceiptId> {
        let entry = self.entries.get_mut(to_usize(index))?;
        let Some(ExtrasSlot::Used(extras)) = self.extras.get_mut(to_usize(entry.slot)) else { return None };
        // The lifetime stays, because all messages of the segment share it.
        let receipt = extras.receipt.take();
        if *extras == ExtraFields::NONE {
            let slot = std::mem::replace(&mut entry.slot, NO_INDEX);
            self.release(slot);
        }
        receipt
    }

    /// Returns the segment at this index.
    #[inline]
    pub(super) fn segment_mut(&mut self, index: u32) -> Option<&mut Segment> {
        match self.entries.get_mut(to_usize(index)).map(|entry| &mut entry.content) {
            Some(QueuedBodies::Segment(segment)) => Some(segment),
            _ => None,
        }
    }

    /// Removes an entry. Returns it with the index of the next one of its queue.
    pub(super) fn take(&mut self, index: u32) -> Option<(QueuedEntry, u32)> {
        let entry = self.entries.get_mut(to_usize(index))?;
        let mode = entry.mode.take()?;
        // A free entry holds no memory of the application.
        let content = std::mem::replace(&mut entry.content, QueuedBodies::Single(Bytes::new()));
        let slot = std::mem::replace(&mut entry.slot, NO_INDEX);
        let (channel, queued_at) = (entry.channel, entry.queued_at);
        // One field links the queue while the entry is in use, and the free entries afterwards.
        let next = std::mem::replace(&mut entry.next, self.free.release(index));
        let extras = self.release(slot);
        Some((QueuedEntry { channel, mode, content, queued_at, extras }, next))
    }

    /// Replaces a message with its own payload. Returns the old message.
    pub(super) fn replace(&mut self, index: u32, waiting: QueuedMessage) -> Option<QueuedMessage> {
        let &SlabEntry { slot, next, mode, .. } = self.entries.get(to_usize(index))?;
        // The new message keeps the link, and with it the turn of the old one. Nothing else of the old one is kept.
        let (mode, extras) = (mode?, self.release(slot));
        let slot = self.keep(waiting.extras);
        let QueuedMessage { channel, payload, queued_at, .. } = waiting;
        let content = QueuedBodies::Single(payload);
        let new = SlabEntry { content, queued_at, slot, next, channel, mode: Some(waiting.mode) };
        let SlabEntry { channel, content, queued_at, .. } =
            std::mem::replace(self.entries.get_mut(to_usize(index))?, new);
        debug_assert!(matches!(content, QueuedBodies::Single(_)), "a segment is replaced by one message");
        QueuedEntry { channel, mode, content, queued_at, extras }.into_message()
    }

    /// Links the entry `before` to the entry `next`.
    pub(super) fn link(&mut self, before: u32, next: u32) {
        debug_assert!(
            self.get(before).is_some() && self.get(next).is_some(),
            "the messages {before} and {next} do not both wait"
        );
        if let Some(entry) = self.entries.get_mut(to_usize(before)) {
            entry.next = next;
        }
    }

    /// Registers the progress of the fragmented message at this index.
    pub(super) fn set_progress(&mut self, index: u32, progress: Progress) {
        debug_assert!(self.get(index).is_some(), "the message {index} does not wait");
        let Some(&SlabEntry { slot, .. }) = self.entries.get(to_usize(index)) else { return };
        if let Some(ExtrasSlot::Used(extras)) = self.extras.get_mut(to_usize(slot)) {
            extras.progress = Some(progress);
            return;
        }
        // Only a message without a lifetime, a receipt, or a key has no extras before its first fragment.
        let slot = self.keep(ExtraFields { progress: Some(progress), ..ExtraFields::NONE });
        if let Some(entry) = self.entries.get_mut(to_usize(index)) {
            entry.slot = slot;
        }
    }

    /// All segments, in no order.
    pub(super) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.entries.iter().filter_map(|entry| match &entry.content {
            QueuedBodies::Segment(segment) => Some(segment),
            QueuedBodies::Single(_) => None,
        })
    }

    /// The number of entries in use.
    pub(super) fn used_count(&self) -> usize {
        to_usize(self.free.used_count())
    }

    /// The index of the next entry of a queue.
    pub(super) fn next_of(&self, index: u32) -> u32 {
        self.entries.get(to_usize(index)).map_or(NO_INDEX, |entry| entry.next)
    }

    /// The number of entries in use, and of all entries.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.entries.iter().filter(|entry| entry.mode.is_some()).count(), self.entries.len())
    }

    /// Stores extras. Returns their index, or `NO_INDEX` when there are none.
    fn keep(&mut self, extras: ExtraFields) -> u32 {
        // Most messages have no extras, and pay four bytes for that.
        if extras == ExtraFields::NONE {
            return NO_INDEX;
        }
        let index = self.free_slots.next();
        match self.extras.get_mut(to_usize(index)) {
            Some(slot) => {
                debug_assert!(matches!(slot, ExtrasSlot::Free(_)), "the extras {index} are in use");
                self.free_slots.take(if let ExtrasSlot::Free(link) = *slot { link } else { NO_INDEX });
                *slot = ExtrasSlot::Used(extras);
            }
            None => {
                self.free_slots.take_new();
                self.extras.push(ExtrasSlot::Used(extras));
            }
        }
        index
    }

    /// Removes extras. Returns them, or `ExtraFields::NONE` for `NO_INDEX`.
    fn release(&mut self, index: u32) -> ExtraFields {
        // `NO_INDEX` is beyond the end of the array.
        let Some(slot) = self.extras.get_mut(to_usize(index)) else { return ExtraFields::NONE };
        debug_assert!(matches!(slot, ExtrasSlot::Used(_)), "the extras {index} are free");
        let taken = std::mem::replace(slot, ExtrasSlot::Free(self.free_slots.release(index)));
        if let ExtrasSlot::Used(extras) = taken { extras } else { ExtraFields::NONE }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::ITEM_CHARGE_BYTES;

    fn waiting(channel: u16, key: u64) -> QueuedMessage {
        let payload = Bytes::from(channel.to_be_bytes().to_vec());
        let extras = ExtraFields { key, ..ExtraFields::NONE };
        let mode = if key == 0 { Mode::ReliableOrdered } else { Mode::ReliableLatest };
        QueuedMessage { channel: ChannelId(channel), mode, payload, queued_at: Moment::ORIGIN, extras }
    }

    fn is_same(waiting: &QueuedMessage, channel: u16, key: u64) -> bool {
        let is_whole = waiting.payload == channel.to_be_bytes().as_slice() && waiting.extras.key == key;
        is_whole && waiting.channel.0 == channel && (waiting.mode == Mode::ReliableLatest) == (key > 0)
    }

    #[test]
    fn a_waiting_message_takes_no_more_than_its_charge() {
        assert!(size_of::<SlabEntry>() <= ITEM_CHARGE_BYTES, "{}", size_of::<SlabEntry>());
    }

    proptest! {
        #[test]
        fn the_slab_agrees_with_a_map(
            acts in prop::collection::vec((0_u8..4, 0_u64..3, any::<prop::sample::Index>()), 1..200),
        ) {
            let (mut slab, mut model) = (SegmentSlab::new(), Vec::<(u32, u16, u64)>::new());
            let mut max = 0;
            for (number, (act, key, which)) in (0_u16..).zip(acts) {
                if act < 2 || model.is_empty() {
                    let index = slab.put(waiting(number, key).into());
                    prop_assert!(model.iter().all(|(other, ..)| *other != index));
                    model.push((index, number, key));
                } else {
                    let at = which.index(model.len());
                    let (index, channel, before) = model[at];
                    let older = if act == 2 {
                        model.swap_remove(at);
                        slab.take(index).and_then(|(older, _)| older.into_message())
                    } else {
                        model[at] = (index, number, key);
                        slab.replace(index, waiting(number, key))
                    };
                    prop_assert!(older.is_some_and(|older| is_same(&older, channel, before)));
                }
                max = max.max(model.len());
                for &(index, channel, key) in &model {
                    let stored = slab.get(index).unwrap();
                    prop_assert_eq!((stored.channel.0, stored.extras.key), (channel, key));
                }
            }
            prop_assert!(slab.entries.len() <= max && slab.extras.len() <= max, "freed entries are reused");
            for (index, ..) in model {
                prop_assert!(slab.take(index).is_some() && slab.get(index).is_none());
                prop_assert!(slab.take(index).is_none() && slab.replace(index, waiting(0, 0)).is_none());
            }
        }
    }
}
