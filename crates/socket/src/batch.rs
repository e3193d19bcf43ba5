//! Received messages: the memory of one receive call, and the datagrams in it.
//!
//! [`crate::Io`] fills a [`RecvBatch`], and [`crate::Receiver`] decides which messages are handed on. With UDP GRO the
//! kernel coalesces several datagrams of one sender into one message, a [`GroBatch`]. All of its datagrams have the same
//! length, except the last one, which may be shorter. Splitting a train needs only these lengths.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::net::SocketAddr;

use crate::sys::{LocalAddress, RecvHeaders, RecvParts, RecvSlot};

/// The maximum number of messages that one receive call fills.
pub(crate) const MAX_BATCH: usize = 32;

/// The maximum length of a message from the kernel, which may be a train.
pub(crate) const MAX_MESSAGE_BYTES: usize = 65_535;

/// Added to the distance between slots of full message size. If they were exactly 64 KiB apart, the first cache lines
/// of all 32 slots would compete for the same cache set.
const STAGGER_BYTES: usize = 193;

/// Memory for up to 32 received messages. It is allocated once and used for every receive call.
pub struct RecvBatch {
    // Memory: slot `n` starts at `n * stride`. Only the first `slot_bytes` of a slot are offered to the kernel.
    memory: Box<[u8]>,
    stride: usize,
    slot_bytes: usize,
    // Messages: `filled` of `limit` offered slots hold one.
    slots: Box<[RecvSlot]>,
    limit: usize,
    filled: usize,
    headers: RecvHeaders,
}

impl RecvBatch {
    /// Allocates `slots` slots that read `slot_bytes` each. With `has_room_for_trains` they can grow to whole trains.
    pub(crate) fn new(slots: usize, slot_bytes: usize, has_room_for_trains: bool) -> Self {
        let slots = slots.clamp(1, MAX_BATCH);
        let stride = if has_room_for_trains { MAX_MESSAGE_BYTES + STAGGER_BYTES } else { slot_bytes };
        // The allocator gets zeroed pages from the kernel, which have no memory until they are written. Room for trains
        // costs little until trains arrive.
        Self {
            memory: vec![0; stride.saturating_mul(slots)].into_boxed_slice(),
            stride,
            slot_bytes: slot_bytes.min(stride),
            slots: vec![RecvSlot::EMPTY; slots].into_boxed_slice(),
            limit: slots,
            filled: 0,
            headers: RecvHeaders::new(slots),
        }
    }

    /// Returns the number of messages that the next receive call may add, 1 to 32.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of messages in the batch.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Adds one message as the kernel would, and returns whether there was a free slot. A message that does not fit its
    /// slot is truncated and marked. `segment_bytes` is the segment size of a train. Fakes of [`crate::Io`] use it.
    pub fn put(&mut self, from: SocketAddr, message: &[u8], segment_bytes: Option<usize>) -> bool {
        if self.filled == self.limit {
            return false;
        }
        let memory = self.memory.chunks_mut(self.stride).nth(self.filled);
        let (Some(memory), Some(slot)) = (memory, self.slots.get_mut(self.filled)) else { return false };
        // Copy as many bytes as fit. The kernel truncates a message the same way.
        let room = memory.iter_mut().take(self.slot_bytes);
        let bytes = room.len().min(message.len());
        room.zip(message).for_each(|(to, from)| *to = *from);
        *slot = RecvSlot {
            from,
            local: LocalAddress::ANY,
            bytes,
            segment_bytes: segment_bytes.unwrap_or(0),
            is_truncated: message.len() > self.slot_bytes,
            is_control_truncated: false,
        };
        self.filled = self.filled.saturating_add(1);
        true
    }

    /// Empties the batch and sets how many messages the next receive call may add.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.clamp(1, self.slots.len());
        self.filled = 0;
    }

    pub(crate) fn set_filled(&mut self, filled: usize) {
        self.filled = filled.min(self.limit);
    }

    /// Reads whole trains from now on. The batch must have been created with room for trains.
    pub(crate) fn grow_to_trains(&mut self) {
        debug_assert!(self.stride >= MAX_MESSAGE_BYTES, "a slot without room for a train would truncate it");
        self.slot_bytes = self.stride.min(MAX_MESSAGE_BYTES);
    }

    pub(crate) fn parts(&mut self) -> RecvParts<'_> {
        RecvParts {
            memory: &mut self.memory,
            stride: self.stride,
            slot_bytes: self.slot_bytes,
            limit: self.limit,
            slots: &mut self.slots,
            headers: &mut self.headers,
        }
    }

    pub(crate) fn filled_slots(&mut self) -> &mut [RecvSlot] {
        self.slots.get_mut(..self.filled).unwrap_or_default()
    }

    pub(crate) fn received(&self) -> Received<'_> {
        Received {
            memory: &self.memory,
            stride: self.stride,
            slots: self.slots.get(..self.filled).unwrap_or_default(),
        }
    }

    pub(crate) fn received_mut(&mut self) -> ReceivedMut<'_> {
        ReceivedMut {
            memory: &mut self.memory,
            stride: self.stride,
            slots: self.slots.get(..self.filled).unwrap_or_default(),
        }
    }
}

/// Returns the number of datagrams in the message of a slot. An empty datagram is one too.
pub(crate) fn datagram_count(slot: &RecvSlot) -> usize {
    if slot.segment_bytes == 0 { 1 } else { segment_count(slot.bytes, slot.segment_bytes) }
}

/// One batch of received datagrams, without the messages that were dropped.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    memory: &'a [u8],
    stride: usize,
    slots: &'a [RecvSlot],
}

/// One UDP payload with its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender's address, as the socket reported it.
    pub from: SocketAddr,
    /// The local address that the datagram was sent to, on a socket that is bound to an unspecified address.
    pub local: LocalAddress,
    /// The payload, at least one byte.
    pub bytes: &'a [u8],
}

impl<'a> Received<'a> {
    /// Returns the messages as trains. Without GRO, each train holds one datagram.
    pub fn trains(&self) -> impl Iterator<Item = GroBatch<'a>> + use<'a> {
        // The receiver sets the length of a dropped message to 0.
        self.memory.chunks(self.stride).zip(self.slots).filter(|(_, slot)| slot.bytes > 0).map(
            |(memory, slot)| {
                let segment_bytes = if slot.segment_bytes == 0 { slot.bytes } else { slot.segment_bytes };
                let bytes = memory.get(..slot.bytes).unwrap_or(memory);
                GroBatch { from: slot.from, local: slot.local, bytes, segment_bytes }
            },
        )
    }

    /// Returns every datagram in the order of arrival, with trains split.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'a>> + use<'a> {
        self.trains().flat_map(|train| {
            let segments: Segments<'a> = train.segments();
            segments.map(move |bytes| Datagram { from: train.from, local: train.local, bytes })
        })
    }
}

/// One batch of received datagrams whose bytes may be changed, for callers that decrypt packets in place.
pub struct ReceivedMut<'a> {
    memory: &'a mut [u8],
    stride: usize,
    slots: &'a [RecvSlot],
}

/// One UDP payload that may be changed, with its addresses.
#[derive(Debug, PartialEq, Eq)]
pub struct DatagramMut<'a> {
    /// The sender's address, as the socket reported it.
    pub from: SocketAddr,
    /// The local address that the datagram was sent to, on a socket that is bound to an unspecified address.
    pub local: LocalAddress,
    /// The payload, at least one byte.
    pub bytes: &'a mut [u8],
}

impl ReceivedMut<'_> {
    /// Returns every datagram in the order of arrival, with trains split.
    pub fn datagrams_mut(&mut self) -> impl Iterator<Item = DatagramMut<'_>> {
        // `GroBatch` borrows its bytes as shared, so the messages are split here again.
        let messages = self.memory.chunks_mut(self.stride).zip(self.slots);
        messages.filter(|(_, slot)| slot.bytes > 0).flat_map(|(memory, slot)| {
            let segment_bytes = if slot.segment_bytes == 0 { slot.bytes } else { slot.segment_bytes };
            let message = memory.get_mut(..slot.bytes).unwrap_or_default();
            // `chunks_mut` panics at a size of 0. The filter removed messages without bytes, so the size is not 0.
            message.chunks_mut(segment_bytes).map(|bytes| DatagramMut {
                from: slot.from,
                local: slot.local,
                bytes,
            })
        })
    }
}

/// One message from the kernel: one datagram, or several consecutive datagrams of one sender.
#[derive(Clone, Copy, Debug)]
pub struct GroBatch<'a> {
    /// The sender's address, as the socket reported it.
    pub from: SocketAddr,
    /// The local address that the train was sent to, on a socket that is bound to an unspecified address.
    pub local: LocalAddress,
    /// The payloads of the datagrams without anything in between, at least one byte.
    pub bytes: &'a [u8],
    /// The length of each datagram except the last one, which may be shorter. At least 1.
    pub segment_bytes: usize,
}

impl<'a> GroBatch<'a> {
    /// Returns the number of datagrams in the train, at least one.
    #[must_use]
    pub fn datagram_count(&self) -> usize {
        segment_count(self.bytes.len(), self.segment_bytes)
    }

    /// Returns the datagrams in the order in which they were sent.
    #[must_use]
    pub fn segments(&self) -> Segments<'a> {
        // Segments of 0 bytes would make the iterator endless. `GroBatch` is a public struct, so any value is possible.
        Segments { rest: self.bytes, segment_bytes: self.segment_bytes.max(1) }
    }

    /// Returns the first datagram of the train.
    #[must_use]
    pub fn first(&self) -> &'a [u8] {
        self.bytes.get(..self.segment_bytes).unwrap_or(self.bytes)
    }

    /// Returns the last datagram of the train, which may be shorter than the others.
    #[must_use]
    pub fn last(&self) -> &'a [u8] {
        let start = self.datagram_count().saturating_sub(1).saturating_mul(self.segment_bytes);
        self.bytes.get(start..).unwrap_or_default()
    }
}

/// An iterator over the datagrams of a [`GroBatch`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: &'a [u8],
    segment_bytes: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        // The last segment may be shorter than the others.
        let (segment, rest) = self.rest.split_at_checked(self.segment_bytes).unwrap_or((self.rest, &[]));
        self.rest = rest;
        Some(segment)
    }
}

/// Returns the number of segments of `segment_bytes` in `bytes`. An empty message is one segment.
fn segment_count(bytes: usize, segment_bytes: usize) -> usize {
    if bytes <= segment_bytes { 1 } else { bytes.div_ceil(segment_bytes.max(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> RecvBatch {
        let mut batch = RecvBatch::new(4, 8, false);
        let from = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert!(batch.put(from(1), b"abc", None));
        assert!(batch.put(from(2), b"", None));
        assert!(batch.put(from(3), b"ddeef", Some(2)));
        assert!(batch.put(from(4), b"exactly8", Some(8)));
        assert!(!batch.put(from(5), b"full", None));
        batch
    }

    #[test]
    fn both_views_of_a_batch_show_the_same_datagrams() {
        let mut batch = filled();
        let copy = |datagram: Datagram<'_>| (datagram.from, datagram.bytes.to_vec());
        let shared: Vec<_> = batch.received().datagrams().map(copy).collect();
        let mut received = batch.received_mut();
        let owned: Vec<_> =
            received.datagrams_mut().map(|datagram| (datagram.from, datagram.bytes.to_vec())).collect();
        assert_eq!(shared, owned);
        let payloads: Vec<&[u8]> = owned.iter().map(|(_, bytes)| bytes.as_slice()).collect();
        assert_eq!(payloads, [&b"abc"[..], b"dd", b"ee", b"f", b"exactly8"]);
    }

    #[test]
    fn changing_one_datagram_changes_no_other() {
        for changed in 0..5 {
            let mut batch = filled();
            let before: Vec<Vec<u8>> =
                batch.received().datagrams().map(|datagram| datagram.bytes.to_vec()).collect();
            let mut received = batch.received_mut();
            if let Some(datagram) = received.datagrams_mut().nth(changed) {
                datagram.bytes.fill(0xFF);
            }
            for (index, datagram) in batch.received().datagrams().enumerate() {
                let is_changed = datagram.bytes.iter().all(|byte| *byte == 0xFF);
                assert_eq!(is_changed, index == changed);
                assert!(is_changed || datagram.bytes == before[index]);
            }
        }
    }

    fn train(bytes: &[u8], segment_bytes: usize) -> GroBatch<'_> {
        let from = "127.0.0.1:1".parse().expect("an address");
        GroBatch { from, local: LocalAddress::ANY, bytes, segment_bytes }
    }

    #[test]
    fn a_train_splits_by_segment_size_with_a_shorter_last_one() {
        let bytes: Vec<u8> = (0..=255).collect();
        for segment_bytes in 1..=256 {
            for length in 1..=bytes.len() {
                let train = train(&bytes[..length], segment_bytes);
                let segments: Vec<&[u8]> = train.segments().collect();
                assert_eq!(segments.concat(), &bytes[..length]);
                assert_eq!(segments.len(), train.datagram_count());
                assert_eq!(segments[0], train.first());
                assert_eq!(segments[segments.len() - 1], train.last());
                assert!(segments[..segments.len() - 1].iter().all(|segment| segment.len() == segment_bytes));
            }
        }
    }

    #[test]
    fn a_segment_size_of_zero_does_not_loop() {
        assert_eq!(train(b"abc", 0).segments().count(), 3);
        assert_eq!(train(b"abc", 0).datagram_count(), 3);
    }
}
