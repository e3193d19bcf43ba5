//! Fragmentation of long messages, and the fate of each fragment.
//!
//! This module tracks only the byte ranges. The message decides how a lost fragment is repaired.

use std::collections::VecDeque;

use bytes::BufMut;
use drumfire_wire::{EncodeError, Fragment, FrameWriter, Message, MessageId};

use crate::channel::ranges::Ranges;
use crate::convert::{to_u64, to_usize};
use crate::limits::FRAGMENT_MIN_BYTES;
use crate::loss::PacketFate;

/// The first fate id of a fragment. Reliable messages never reach it, and values begin above.
const FIRST_ID: u64 = 1 << 60;

/// Whether this fate id belongs to a fragment.
pub(super) const fn is_fragment(id: MessageId) -> bool {
    id.0 >= FIRST_ID && id.0 < FIRST_ID << 1
}

/// The fate of the sent bytes of a fragmented reliable message.
#[derive(Debug, Default)]
pub(super) struct FragmentFates {
    /// The bytes that have arrived.
    acknowledged: Ranges,
    /// The bytes to be sent again. They have not arrived, as far as is known.
    lost: Ranges,
}

impl FragmentFates {
    /// Whether bytes must be sent again.
    pub(super) const fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The first range of bytes to be sent again.
    pub(super) fn first_lost(&self) -> Option<(u32, u32)> {
        self.lost.first()
    }

    /// Registers bytes that were sent, for the first time or again.
    pub(super) fn on_sent_again(&mut self, begin: u32, end: u32) {
        self.lost.remove(begin, end);
    }

    /// Registers bytes that were lost. Bytes that arrived in another fragment are not sent again.
    pub(super) fn on_lost(&mut self, begin: u32, end: u32) {
        self.lost.insert_without(begin, end, &self.acknowledged);
    }

    /// Registers bytes that arrived. Returns whether these were the last of `total`.
    pub(super) fn on_acknowledged(&mut self, begin: u32, end: u32, total: u32) -> bool {
        self.acknowledged.insert(begin, end);
        self.lost.remove(begin, end);
        self.acknowledged.is_whole(total)
    }

    /// Asserts what must hold between two calls.
    pub(super) fn assert_invariants(&self) {
        self.acknowledged.assert_invariants();
        self.lost.assert_invariants();
    }
}

/// The fragments of one connection that are in flight.
#[derive(Debug, Default)]
pub(super) struct FragmentTable {
    /// The fragments from the number `base` on. A fragment whose fate is known is removed when it is the oldest.
    fragments: VecDeque<Option<SentFragment>>,
    /// The number of fragments that were removed from `fragments`.
    base: u64,
}

/// A fragment in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentFragment {
    /// The id of its message.
    pub(super) message: u64,
    /// The offset of its first byte.
    pub(super) begin: u32,
    /// The offset behind its last byte.
    pub(super) end: u32,
    /// The bytes were sent again since, so the loss of this fragment has no effect.
    is_repeated: bool,
}

impl FragmentTable {
    /// Registers a fragment that was written. Returns the id by which its fate is reported.
    pub(super) fn on_sent(&mut self, message: u64, begin: u32, end: u32) -> MessageId {
        // As with receipts, ids are positions in the order of sending.
        let count = to_u64(self.fragments.len());
        self.fragments.push_back(Some(SentFragment { message, begin, end, is_repeated: false }));
        MessageId(FIRST_ID.saturating_add(self.base).saturating_add(count))
    }

    /// Removes a fragment whose fate is known. Returns `None` when the fate has no effect.
    pub(super) fn resolve(&mut self, fate: PacketFate, id: MessageId) -> Option<SentFragment> {
        // The table ends with the oldest fragment in flight, so its size follows the packets in flight.
        let fragment = self.entry(id)?.take();
        while self.fragments.pop_front_if(|fragment| fragment.is_none()).is_some() {
            self.base = self.base.saturating_add(1);
        }
        fragment.filter(|fragment| fate == PacketFate::Acknowledged || !fragment.is_repeated)
    }

    /// Marks a fragment whose bytes are sent again whatever its fate.
    pub(super) fn repeat(&mut self, id: MessageId) -> Option<SentFragment> {
        let fragment = self.entry(id)?.as_mut()?;
        // Only the first repetition queues the bytes. They would otherwise be sent once per probe.
        let is_first = !std::mem::replace(&mut fragment.is_repeated, true);
        is_first.then_some(*fragment)
    }

    /// Asserts what must hold between two calls.
    pub(super) fn assert_invariants(&self) {
        debug_assert!(
            self.fragments.front().is_none_or(Option::is_some),
            "the fate of the oldest fragment is known, and the fragment is still stored"
        );
    }

    /// The entry of a fragment. `None` for a fragment that was removed.
    fn entry(&mut self, id: MessageId) -> Option<&mut Option<SentFragment>> {
        let index = id.0.checked_sub(FIRST_ID)?.checked_sub(self.base)?;
        self.fragments.get_mut(usize::try_from(index).ok()?)
    }
}

/// Whether a message that did not fit must be fragmented, because it would not fit an empty packet with `room_bytes` bytes
/// of frames either.
pub(super) fn must_fragment(error: EncodeError, room_bytes: usize) -> bool {
    matches!(error, EncodeError::NoRoom { needed_bytes } if needed_bytes > room_bytes)
}

/// Writes the bytes of a message from `begin` up to `end`, as many as fit. Returns the end of the fragment, or `None`
/// when the packet has no room for a fragment of useful size.
pub(super) fn write_fragment<B: BufMut>(
    writer: &mut FrameWriter<B>,
    whole: &Message<'_>,
    number: u64,
    begin: u32,
    end: u32,
) -> Option<u32> {
    debug_assert!(
        begin < end && to_usize(end) <= whole.payload.len(),
        "no fragment has the bytes {begin} to {end}"
    );
    let total_bytes = u32::try_from(whole.payload.len()).ok()?;
    let rest = whole.payload.get(to_usize(begin)..to_usize(end))?;
    let cut = |bytes: usize| {
        let message = Message { payload: rest.get(..bytes)?, ..*whole };
        Some(Fragment { message, number, total_bytes, offset_bytes: begin })
    };
    // A fragment of one byte shows what the fields around it take. It is not written.
    let head_bytes = writer.fragment_bytes(&cut(1)?).ok()?.checked_sub(1)?;
    let room = writer.remaining_bytes().checked_sub(head_bytes)?;
    // The header was measured with a length field of one byte.
    let room = match room {
        0..128 => room,
        128..16_385 => (room.saturating_sub(1)).max(127),
        _ => room.saturating_sub(2),
    };
    // Each fragment repeats the fields, so the end of a nearly full packet is better left empty.
    let bytes = rest.len().min(room);
    if bytes < rest.len().min(FRAGMENT_MIN_BYTES) {
        return None;
    }
    // The bytes fit, but the packet may have as many frames as it can have.
    writer.fragment(&cut(bytes)?).ok()?;
    begin.checked_add(u32::try_from(bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_wire::{ChannelId, Delivery, Frame, Frames};

    #[test]
    fn fragment_ids_are_between_message_and_value_ids() {
        let end = FIRST_ID << 1;
        for (id, expected) in [(FIRST_ID - 1, false), (FIRST_ID, true), (end - 1, true), (end, false)] {
            assert_eq!(is_fragment(MessageId(id)), expected, "{id:#x}");
        }
    }

    #[test]
    fn a_fragment_fills_a_packet_or_waits_for_the_next() {
        let payload = vec![7; 70_000];
        let delivery = Delivery::ReliableUnordered { id: MessageId(300) };
        let whole = Message { channel: ChannelId(1), delivery, payload: &payload };
        for room in 1..1_500 {
            for begin in [0, 100, 20_000, 69_000] {
                let mut memory = vec![0; room];
                let mut writer = FrameWriter::new(&mut memory[..]);
                let end = write_fragment(&mut writer, &whole, 0, begin, 70_000);
                let (written, left) = (writer.written_bytes(), writer.remaining_bytes());
                let Some(end) = end else {
                    assert!(room < 64 + 14 && written == 0, "{room}");
                    continue;
                };
                assert!(
                    left == 0 || end == 70_000 || (left == 1 && end - begin == 127),
                    "{room}: {left} left"
                );
                let Some(Ok(Frame::Fragment(fragment))) = Frames::new(&memory[..written]).next() else {
                    panic!("no fragment in {room}");
                };
                assert_eq!((fragment.offset_bytes, fragment.end_bytes()), (begin, Some(end)));
            }
        }
    }

    #[test]
    fn the_last_bytes_go_into_any_packet_with_room() {
        let payload = [7; 1_000];
        let whole = Message { channel: ChannelId(1), delivery: Delivery::Unreliable, payload: &payload };
        let mut memory = [0; 20];
        let mut writer = FrameWriter::new(&mut memory[..]);
        assert_eq!(write_fragment(&mut writer, &whole, 5, 990, 1_000), Some(1_000));
        assert_eq!(write_fragment(&mut writer, &whole, 5, 999, 1_000), None);
    }

    #[test]
    fn a_packet_that_is_full_of_frames_takes_no_fragment() {
        let payload = [7; 5_000];
        let whole = Message { channel: ChannelId(1), delivery: Delivery::Unreliable, payload: &payload };
        let mut memory = [0; 1_200];
        let mut writer = FrameWriter::new(&mut memory[..]);
        while writer.ping().is_ok() {}
        let left = writer.remaining_bytes();
        assert_eq!(write_fragment(&mut writer, &whole, 5, 0, 5_000), None);
        assert!(left > 1_000 && writer.remaining_bytes() == left, "{left} bytes left");
    }

    #[test]
    fn a_fragment_is_resolved_once_and_a_resent_one_is_not_lost() {
        let mut sent_fragments = FragmentTable::default();
        let ids = [0, 1, 2].map(|at| sent_fragments.on_sent(9, at, at + 1));
        assert!(ids.into_iter().all(is_fragment));
        assert_eq!(sent_fragments.repeat(ids[1]).map(|fragment| fragment.begin), Some(1));
        assert!(sent_fragments.repeat(ids[1]).is_none());
        assert!(sent_fragments.resolve(PacketFate::Lost, ids[1]).is_none());
        assert_eq!(sent_fragments.resolve(PacketFate::Lost, ids[0]).map(|fragment| fragment.begin), Some(0));
        assert!(sent_fragments.resolve(PacketFate::Acknowledged, ids[0]).is_none());
        assert_eq!(sent_fragments.on_sent(9, 3, 4).0, ids[2].0 + 1);
        assert!(sent_fragments.resolve(PacketFate::Acknowledged, ids[2]).is_some());
        assert_eq!(sent_fragments.fragments.len(), 1);
    }
}
