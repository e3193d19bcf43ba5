//! Receive slots: memory for one batch of messages, allocated once and filled again and again.
//!
//! A batch does not receive and does not judge; [`crate::Io`] fills it and [`crate::Receiver`] decides what
//! counts. Fakes fill it through [`RecvBatch::put`].
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

use std::net::{Ipv4Addr, SocketAddr};

use crate::LocalAddress;
use crate::sys::RecvHeaders;
use crate::train::{Segments, Train, segment_count};

/// The most messages one receive call fills.
pub(crate) const MAX_BATCH: usize = 32;

/// The longest message the kernel hands over, trains included.
pub(crate) const MAX_MESSAGE_BYTES: usize = 65_535;

/// Added between slots of full message size, so that their first lines fall into different cache sets:
/// at a distance of exactly 64 KiB all 32 would compete for one.
const STAGGER_BYTES: usize = 193;

/// What the platform noted about one received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) from: SocketAddr,
    /// Which of the host's addresses it came to, where that is asked.
    pub(crate) local: LocalAddress,
    pub(crate) bytes: usize,
    /// Stride of a train; 0 where the kernel named none.
    pub(crate) segment_bytes: usize,
    pub(crate) is_truncated: bool,
    pub(crate) is_control_truncated: bool,
}

impl Slot {
    const EMPTY: Self = Self {
        from: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        local: LocalAddress::ANY,
        bytes: 0,
        segment_bytes: 0,
        is_truncated: false,
        is_control_truncated: false,
    };

    pub(crate) fn datagram_count(&self) -> usize {
        if self.segment_bytes == 0 { 1 } else { segment_count(self.bytes, self.segment_bytes) }
    }
}

/// Memory for up to 32 received messages.
pub struct RecvBatch {
    memory: Box<[u8]>,
    stride: usize,
    slot_bytes: usize,
    slots: Box<[Slot]>,
    limit: usize,
    filled: usize,
    headers: RecvHeaders,
}

/// The pieces a platform's receive call works on.
pub(crate) struct RecvParts<'a> {
    pub(crate) memory: &'a mut [u8],
    pub(crate) stride: usize,
    pub(crate) slot_bytes: usize,
    pub(crate) limit: usize,
    pub(crate) slots: &'a mut [Slot],
    pub(crate) headers: &'a mut RecvHeaders,
}

impl RecvBatch {
    /// A batch of `slots` slots that read `slot_bytes` each, with room to grow to whole trains if asked.
    pub(crate) fn new(slots: usize, slot_bytes: usize, has_room_for_trains: bool) -> Self {
        let slots = slots.clamp(1, MAX_BATCH);
        let stride = if has_room_for_trains { MAX_MESSAGE_BYTES + STAGGER_BYTES } else { slot_bytes };
        Self {
            memory: vec![0; stride.saturating_mul(slots)].into_boxed_slice(),
            stride,
            slot_bytes: slot_bytes.min(stride),
            slots: vec![Slot::EMPTY; slots].into_boxed_slice(),
            limit: slots,
            filled: 0,
            headers: RecvHeaders::new(slots),
        }
    }

    /// How many messages the next receive may put here, 1 to 32.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many messages are here.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Puts one message, as the kernel would: cut to the slot and marked where it is too long. Answers whether
    /// there was a free slot. For fakes of [`crate::Io`].
    pub fn put(&mut self, from: SocketAddr, message: &[u8], segment_bytes: Option<usize>) -> bool {
        if self.filled == self.limit {
            return false;
        }
        let memory = self.memory.chunks_mut(self.stride).nth(self.filled);
        let (Some(memory), Some(slot)) = (memory, self.slots.get_mut(self.filled)) else { return false };
        let room = memory.iter_mut().take(self.slot_bytes);
        let bytes = room.len().min(message.len());
        room.zip(message).for_each(|(to, from)| *to = *from);
        *slot = Slot {
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

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.clamp(1, self.slots.len());
        self.filled = 0;
    }

    pub(crate) fn set_filled(&mut self, filled: usize) {
        self.filled = filled.min(self.limit);
    }

    /// Reads whole trains from now on. Only for a batch made with room for them.
    pub(crate) fn grow_to_trains(&mut self) {
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

    pub(crate) fn filled_slots(&mut self) -> &mut [Slot] {
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

/// One batch of received datagrams, after the unusable ones were counted and set aside.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    memory: &'a [u8],
    stride: usize,
    slots: &'a [Slot],
}

/// One UDP payload and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender's address, as the socket reported it.
    pub from: SocketAddr,
    /// Which of the host's addresses it came to, on a socket bound to an unspecified one.
    pub local: LocalAddress,
    /// The payload, at least one byte.
    pub bytes: &'a [u8],
}

impl<'a> Received<'a> {
    /// The messages as trains: without GRO each holds one datagram.
    pub fn trains(&self) -> impl Iterator<Item = Train<'a>> + use<'a> {
        self.memory.chunks(self.stride).zip(self.slots).filter(|(_, slot)| slot.bytes > 0).map(
            |(memory, slot)| {
                let segment_bytes = if slot.segment_bytes == 0 { slot.bytes } else { slot.segment_bytes };
                let bytes = memory.get(..slot.bytes).unwrap_or(memory);
                Train { from: slot.from, local: slot.local, bytes, segment_bytes }
            },
        )
    }

    /// Every datagram, trains taken apart, in the order of arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'a>> + use<'a> {
        self.trains().flat_map(|train| {
            let segments: Segments<'a> = train.segments();
            segments.map(move |bytes| Datagram { from: train.from, local: train.local, bytes })
        })
    }
}

/// One batch of received datagrams whose bytes may be changed where they lie, for who opens packets in place.
pub struct ReceivedMut<'a> {
    memory: &'a mut [u8],
    stride: usize,
    slots: &'a [Slot],
}

/// One UDP payload that may be changed, and where it came from.
#[derive(Debug, PartialEq, Eq)]
pub struct DatagramMut<'a> {
    /// The sender's address, as the socket reported it.
    pub from: SocketAddr,
    /// Which of the host's addresses it came to, on a socket bound to an unspecified one.
    pub local: LocalAddress,
    /// The payload, at least one byte.
    pub bytes: &'a mut [u8],
}

impl ReceivedMut<'_> {
    /// Every datagram, trains taken apart, in the order of arrival.
    pub fn datagrams_mut(&mut self) -> impl Iterator<Item = DatagramMut<'_>> {
        let messages = self.memory.chunks_mut(self.stride).zip(self.slots);
        messages.filter(|(_, slot)| slot.bytes > 0).flat_map(|(memory, slot)| {
            let segment_bytes = if slot.segment_bytes == 0 { slot.bytes } else { slot.segment_bytes };
            let message = memory.get_mut(..slot.bytes).unwrap_or_default();
            message.chunks_mut(segment_bytes).map(|bytes| DatagramMut {
                from: slot.from,
                local: slot.local,
                bytes,
            })
        })
    }
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
    fn both_ways_to_look_at_a_batch_show_the_same_datagrams() {
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
            for (at, datagram) in batch.received().datagrams().enumerate() {
                let is_changed = datagram.bytes.iter().all(|byte| *byte == 0xFF);
                assert_eq!(is_changed, at == changed);
                assert!(is_changed || datagram.bytes == before[at]);
            }
        }
    }
}
