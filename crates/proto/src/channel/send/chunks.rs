//! The encoded bodies of messages, in chunks of memory: from the time when a message is queued until its run is
//! acknowledged.
//!
//! Each queue of the scheduler appends to a chunk of its own, so that its messages are one run whatever other channels
//! send. A chunk is filled from front to back, and used again once nothing refers to it. A peer that acknowledges
//! selectively can keep a chunk with a single run, so the capacity of all chunks is bounded.

use std::ops::Range;
use std::sync::Arc;

use drumfire_wire::Bodies;

use super::free_list::NO_INDEX;
use crate::channel::block::MessageBlock;
use crate::convert::{saturated, to_usize};
use crate::limits::DATAGRAM_SENT_MAX_BYTES;

/// The capacity of a chunk in bytes, while little memory is in use.
const CHUNK_BYTES: usize = 2_048;

/// The capacity of a chunk in bytes, when more than half of it is in use anyway. A run ends with its chunk.
const LARGE_CHUNK_BYTES: usize = 16_384;

/// The capacity in bytes that chunks may have whatever is in use: a few channels with a chunk each.
const CAPACITY_MIN_BYTES: usize = 16_384;

/// The room in bytes with which a chunk is filled further. The end of a chunk with less room stays unused, because a
/// run that is cut there costs a frame.
const ROOM_MIN_BYTES: usize = DATAGRAM_SENT_MAX_BYTES;

/// The chunks of one connection.
#[derive(Debug)]
pub(super) struct BodyChunks {
    /// All chunks. Their indices do not change.
    chunks: Vec<BodyChunk>,
    /// The indices of listed chunks. The chunk that was listed last is used first, because its memory is likely still in
    /// the cache.
    listed: Vec<u32>,
    /// The sum of the capacities of all chunks in bytes.
    capacity_bytes: usize,
}

#[derive(Debug)]
struct BodyChunk {
    /// The bodies. The vector never grows beyond its first capacity.
    bytes: Vec<u8>,
    /// The number of segments and runs with bodies in this chunk.
    live_count: u32,
    /// The use of the chunk.
    state: ChunkState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    /// A queue appends to the chunk.
    Open,
    /// The chunk has room, and is in the list for the next queue.
    Listed,
    /// The chunk has no room, and is listed again when nothing refers to it.
    Full,
}

/// The position of the bodies of a segment or run. The owner of a range gives it back with [`BodyChunks::release`].
#[derive(Debug)]
pub(super) struct BodyRange {
    /// The memory with the bodies.
    source: Source,
    /// The offset of the first byte there.
    from: u32,
    /// The length of all bodies in bytes.
    bytes: u32,
}

/// Memory with bodies.
#[derive(Debug)]
enum Source {
    /// The chunk with this index.
    Own(u32),
    /// A block that other connections share. It is not counted here.
    Shared(Arc<MessageBlock>),
}

/// The memory that chunks may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkLimits {
    /// The limit of the connection's send memory in bytes.
    pub(super) limit_bytes: usize,
    /// The charges of all messages of the connection in bytes.
    pub(super) used_bytes: usize,
}

impl BodyRange {
    /// Returns the position of these messages of a block.
    pub(super) fn of_block(block: &Arc<MessageBlock>, range: &Range<usize>) -> Self {
        let (from, end) = (block.start_of(range.start), block.start_of(range.end));
        let [from, bytes] = [from, end.saturating_sub(from)].map(|bytes| saturated(bytes, u32::MAX));
        Self { source: Source::Shared(Arc::clone(block)), from, bytes }
    }

    /// The length of all bodies in bytes.
    pub(super) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The index of the chunk, or `NO_INDEX` for a block.
    const fn chunk(&self) -> u32 {
        match self.source {
            Source::Own(chunk) => chunk,
            Source::Shared(_) => NO_INDEX,
        }
    }
}

impl BodyChunk {
    fn room(&self) -> usize {
        self.bytes.capacity().saturating_sub(self.bytes.len())
    }
}

impl BodyChunks {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), listed: Vec::new(), capacity_bytes: 0 }
    }

    /// Appends the body of a message to a range. `open` is the chunk of its queue. Returns false if the range does not
    /// end where the chunk does, or if the chunk has no room.
    #[inline]
    pub(super) fn extend(&mut self, range: &mut BodyRange, open: u32, payload: &[u8]) -> bool {
        let index = range.chunk();
        let Some(chunk) = self.chunks.get_mut(to_usize(index)).filter(|_| index == open) else {
            return false;
        };
        let (end, body_bytes) =
            (range.from.saturating_add(range.bytes), Bodies::encoded_bytes(payload.len()));
        // Another segment of the same queue may follow in the chunk. Bodies of a run have no gaps, because they are copied into
        // the packet as they are.
        if to_usize(end) != chunk.bytes.len() || chunk.room() < body_bytes {
            return false;
        }
        Bodies::put(payload, &mut chunk.bytes);
        range.bytes = range.bytes.saturating_add(saturated(body_bytes, u32::MAX));
        true
    }

    /// Adds the bodies of two messages. `open` is the chunk of their queue, which is replaced when it has no room.
    /// Returns `None` when there may be no further chunk.
    pub(super) fn add(
        &mut self,
        open: &mut u32,
        payloads: [&[u8]; 2],
        limits: ChunkLimits,
    ) -> Option<BodyRange> {
        let bytes = payloads.into_iter().map(|payload| Bodies::encoded_bytes(payload.len())).sum::<usize>();
        // A queue keeps its chunk as long as it has room, so few chunks have bodies of one queue.
        if self.chunks.get(to_usize(*open)).is_none_or(|chunk| chunk.room() < bytes) {
            self.close(open);
            *open = self.open(limits)?;
        }
        let chunk = self.chunks.get_mut(to_usize(*open))?;
        debug_assert!(chunk.room() >= bytes, "a chunk is opened without room for {bytes} bytes");
        let from = saturated(chunk.bytes.len(), u32::MAX);
        payloads.into_iter().for_each(|payload| Bodies::put(payload, &mut chunk.bytes));
        chunk.live_count = chunk.live_count.saturating_add(1);
        Some(BodyRange { source: Source::Own(*open), from, bytes: saturated(bytes, u32::MAX) })
    }

    /// Opens a chunk with room for at least a datagram. Returns its index.
    fn open(&mut self, limits: ChunkLimits) -> Option<u32> {
        if let Some(index) = self.listed.pop() {
            if let Some(chunk) = self.chunks.get_mut(to_usize(index)) {
                chunk.state = ChunkState::Open;
            }
            return Some(index);
        }
        let is_large = limits.used_bytes > LARGE_CHUNK_BYTES / 2;
        let bytes = if is_large { LARGE_CHUNK_BYTES } else { CHUNK_BYTES };
        // Without losses the chunks are smaller than the charges. A new chunk beyond them means that many chunks have few
        // messages left, so messages keep their own payloads.
        let limit_bytes = limits.limit_bytes.saturating_add(limits.limit_bytes / 10);
        if self.capacity_bytes >= limits.used_bytes.max(CAPACITY_MIN_BYTES)
            || self.capacity_bytes.saturating_add(bytes) > limit_bytes
        {
            return None;
        }
        let chunk = BodyChunk { bytes: Vec::with_capacity(bytes), live_count: 0, state: ChunkState::Open };
        self.capacity_bytes = self.capacity_bytes.saturating_add(chunk.bytes.capacity());
        self.chunks.push(chunk);
        Some(saturated(self.chunks.len().saturating_sub(1), NO_INDEX))
    }

    /// Releases the chunk of a queue that no longer appends to it, if it has one.
    #[inline]
    pub(super) fn close(&mut self, open: &mut u32) {
        if *open != NO_INDEX {
            // Most queues never had one: a message that is alone in its queue keeps its own payload.
            self.list(std::mem::replace(open, NO_INDEX));
        }
    }

    /// Lists a chunk that no queue appends to, if it has room.
    fn list(&mut self, index: u32) {
        let Some(chunk) = self.chunks.get_mut(to_usize(index)) else { return };
        debug_assert!(chunk.state != ChunkState::Listed, "chunk {index} is listed twice");
        // An empty chunk has all its room, whatever was in it before.
        let has_room = chunk.live_count == 0 || chunk.room() >= ROOM_MIN_BYTES;
        chunk.state = if has_room { ChunkState::Listed } else { ChunkState::Full };
        if has_room {
            self.listed.push(index);
        }
    }

    /// Returns the bodies of a range.
    pub(super) fn bodies<'a>(&'a self, range: &'a BodyRange) -> &'a [u8] {
        let from = to_usize(range.from);
        let bytes = match &range.source {
            Source::Own(chunk) => self.chunks.get(to_usize(*chunk)).map(|chunk| &chunk.bytes[..]),
            Source::Shared(block) => Some(block.bodies()),
        };
        let bodies = bytes.and_then(|bytes| bytes.get(from..from.saturating_add(to_usize(range.bytes))));
        debug_assert!(bodies.is_some(), "no bodies are at {range:?}");
        bodies.unwrap_or_default()
    }

    /// Splits the first `bytes` bytes off a range. Returns their range.
    pub(super) fn split_first(&mut self, range: &mut BodyRange, bytes: usize) -> BodyRange {
        let bytes = saturated(bytes, u32::MAX);
        debug_assert!(bytes < range.bytes, "{bytes} bytes are split from {range:?}");
        let source = match &range.source {
            Source::Own(index) => {
                if let Some(chunk) = self.chunks.get_mut(to_usize(*index)) {
                    chunk.live_count = chunk.live_count.saturating_add(1);
                }
                Source::Own(*index)
            }
            Source::Shared(block) => Source::Shared(Arc::clone(block)),
        };
        let first = BodyRange { source, from: range.from, bytes };
        range.from = range.from.saturating_add(bytes);
        range.bytes = range.bytes.saturating_sub(bytes);
        first
    }

    /// Releases the bodies of a range.
    pub(super) fn release(&mut self, range: BodyRange) {
        // A block is freed with its last range.
        let BodyRange { source, .. } = range;
        let index = match source {
            Source::Own(index) => index,
            Source::Shared(block) => return drop(block),
        };
        let Some(chunk) = self.chunks.get_mut(to_usize(index)) else { return };
        debug_assert!(chunk.live_count > 0, "bodies of chunk {index} were released before");
        chunk.live_count = chunk.live_count.saturating_sub(1);
        // The memory stays, so that a connection in a steady state allocates nothing.
        if chunk.live_count == 0 {
            // An open chunk stays with its queue, and a listed one is in the list already.
            chunk.bytes.clear();
            if chunk.state == ChunkState::Full {
                self.list(index);
            }
        }
    }

    /// Frees all memory if nothing refers to it.
    pub(super) fn shrink(&mut self) {
        if self.listed.len() == self.chunks.len() && self.chunks.iter().all(|chunk| chunk.live_count == 0) {
            *self = Self::new();
        }
    }

    #[cfg(test)]
    pub(super) const fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Asserts what must hold between two calls. `live` are all ranges, and `open` the chunks of all queues.
    pub(super) fn assert_invariants<'a>(
        &self,
        live: impl Iterator<Item = &'a BodyRange>,
        open: impl Iterator<Item = u32>,
    ) {
        // Nothing is allocated here, because tests count the allocations of builds with assertions.
        let mut live_count = 0_usize;
        for range in live {
            debug_assert_eq!(
                self.bodies(range).len(),
                to_usize(range.bytes),
                "the bodies of a range are gone"
            );
            live_count = live_count.saturating_add(matches!(range.source, Source::Own(_)).into());
        }
        let counted = self.chunks.iter().map(|chunk| to_usize(chunk.live_count)).sum::<usize>();
        debug_assert_eq!(counted, live_count, "the ranges of the chunks were counted wrong");
        let count_of = |state| self.chunks.iter().filter(|chunk| chunk.state == state).count();
        let is_open = |index: u32| {
            self.chunks.get(to_usize(index)).is_some_and(|chunk| chunk.state == ChunkState::Open)
        };
        let mut open_count = 0_usize;
        for index in open {
            debug_assert!(is_open(index), "a queue appends to chunk {index}, which is not open");
            open_count = open_count.saturating_add(1);
        }
        debug_assert_eq!(count_of(ChunkState::Open), open_count, "an open chunk has no queue, or several");
        debug_assert_eq!(count_of(ChunkState::Listed), self.listed.len(), "a chunk with room is not listed");
        let is_lost = |chunk: &BodyChunk| chunk.state == ChunkState::Full && chunk.live_count == 0;
        debug_assert!(!self.chunks.iter().any(is_lost), "an empty chunk is not used again");
        let capacity_bytes = self.chunks.iter().map(|chunk| chunk.bytes.capacity()).sum::<usize>();
        debug_assert_eq!(self.capacity_bytes, capacity_bytes, "the chunks have another capacity");
    }
}
