//! The encoded bodies of sent runs, in chunks of memory that several runs share.
//!
//! A chunk is filled from front to back, and used again once no run refers to it. A peer that acknowledges selectively can
//! keep a chunk with a single run, so the capacity of all chunks is bounded by the memory that the messages are charged.

use super::free::NOWHERE;
use crate::convert::{saturated, to_usize};

/// The capacity of a chunk in bytes: the bodies of three full packets, so that little is left unused at its end.
const CHUNK_BYTES: usize = 4_096;

/// The chunks of one connection.
#[derive(Debug)]
pub(super) struct BodyChunks {
    /// All chunks. Their indices do not change.
    chunks: Vec<BodyChunk>,
    /// The index of the chunk that bodies are appended to, or `NOWHERE`.
    open: u32,
    /// The indices of chunks without runs, except the open one. The chunk that was released last is used first, because
    /// its memory is likely still in the cache.
    free: Vec<u32>,
    /// The sum of the capacities of all chunks in bytes.
    capacity_bytes: usize,
}

#[derive(Debug)]
struct BodyChunk {
    /// The bodies. The vector never grows beyond the capacity that it had when it was empty.
    bytes: Vec<u8>,
    /// The number of runs with bodies in this chunk.
    live_runs: u32,
}

/// The position of the bodies of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyRange {
    /// The index of the chunk.
    chunk: u32,
    /// The offset of the first byte in the chunk.
    from: u32,
    /// The length of all bodies in bytes.
    bytes: u32,
}

impl BodyRange {
    /// Splits the first `bytes` bytes off. Returns the range of the others.
    pub(super) fn split_off(&mut self, bytes: usize) -> Self {
        let bytes = saturated(bytes, u32::MAX);
        debug_assert!(bytes < self.bytes, "{bytes} bytes are split from {self:?}");
        let rest = Self {
            chunk: self.chunk,
            from: self.from.saturating_add(bytes),
            bytes: self.bytes.saturating_sub(bytes),
        };
        self.bytes = bytes;
        rest
    }
}

impl BodyChunks {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), open: NOWHERE, free: Vec::new(), capacity_bytes: 0 }
    }

    /// Whether `bytes` bytes may be added. `charged_bytes` are the charges of all messages of the connection.
    pub(super) fn may_add(&self, bytes: usize, charged_bytes: usize) -> bool {
        // Without losses the chunks are much smaller than the charges. A new chunk beyond them means that many chunks
        // have few runs left.
        self.open_room() >= bytes || !self.free.is_empty() || self.capacity_bytes <= charged_bytes
    }

    /// The bytes that fit into the open chunk.
    fn open_room(&self) -> usize {
        let open = self.chunks.get(to_usize(self.open));
        open.map_or(0, |chunk| chunk.bytes.capacity().saturating_sub(chunk.bytes.len()))
    }

    /// Adds the bodies of a run, which `put` appends. They have `bytes` bytes.
    pub(super) fn add(&mut self, bytes: usize, put: impl FnOnce(&mut Vec<u8>)) -> BodyRange {
        if self.open_room() < bytes {
            self.open_chunk(bytes);
        }
        let mut range = BodyRange { chunk: self.open, from: 0, bytes: saturated(bytes, u32::MAX) };
        if let Some(chunk) = self.chunks.get_mut(to_usize(self.open)) {
            let from = chunk.bytes.len();
            put(&mut chunk.bytes);
            debug_assert_eq!(chunk.bytes.len(), from.saturating_add(bytes), "the bodies have another length");
            chunk.live_runs = chunk.live_runs.saturating_add(1);
            range.from = saturated(from, u32::MAX);
        }
        range
    }

    /// Opens a chunk with room for `bytes` bytes.
    fn open_chunk(&mut self, bytes: usize) {
        // The rest of the open chunk stays unused. Cutting a run for it would cost a frame.
        let closed = self.chunks.get(to_usize(self.open));
        if closed.is_some_and(|chunk| chunk.live_runs == 0) {
            self.free.push(self.open);
        }
        self.open = match self.free.pop() {
            Some(index) => index,
            None => {
                self.chunks.push(BodyChunk { bytes: Vec::new(), live_runs: 0 });
                saturated(self.chunks.len().saturating_sub(1), NOWHERE)
            }
        };
        if let Some(chunk) = self.chunks.get_mut(to_usize(self.open)) {
            // Large datagrams have longer runs than others.
            let before = chunk.bytes.capacity();
            chunk.bytes.reserve_exact(bytes.max(CHUNK_BYTES));
            let more = chunk.bytes.capacity().saturating_sub(before);
            self.capacity_bytes = self.capacity_bytes.saturating_add(more);
        }
    }

    /// Returns the bodies at this position.
    pub(super) fn bodies(&self, range: BodyRange) -> &[u8] {
        let from = to_usize(range.from);
        let bodies = self
            .chunks
            .get(to_usize(range.chunk))
            .and_then(|chunk| chunk.bytes.get(from..from.saturating_add(to_usize(range.bytes))));
        debug_assert!(bodies.is_some(), "no bodies are at {range:?}");
        bodies.unwrap_or_default()
    }

    /// Counts another run in this chunk, after a run was split.
    pub(super) fn retain(&mut self, range: BodyRange) {
        if let Some(chunk) = self.chunks.get_mut(to_usize(range.chunk)) {
            chunk.live_runs = chunk.live_runs.saturating_add(1);
        }
    }

    /// Releases the bodies of a run.
    pub(super) fn release(&mut self, range: BodyRange) {
        let Some(chunk) = self.chunks.get_mut(to_usize(range.chunk)) else { return };
        debug_assert!(chunk.live_runs > 0, "the bodies at {range:?} were released before");
        chunk.live_runs = chunk.live_runs.saturating_sub(1);
        // The memory stays, so that a connection in a steady state allocates nothing.
        if chunk.live_runs == 0 {
            chunk.bytes.clear();
            if range.chunk != self.open {
                self.free.push(range.chunk);
            }
        }
    }

    #[cfg(test)]
    pub(super) const fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Asserts what must hold between two calls. `live` are the positions of all runs.
    pub(super) fn check(&self, live: impl Iterator<Item = BodyRange>) {
        // Nothing is allocated here, because tests count the allocations of builds with assertions.
        let mut live_count = 0_usize;
        for range in live {
            debug_assert_eq!(self.bodies(range).len(), to_usize(range.bytes), "the bodies of a run are gone");
            live_count = live_count.saturating_add(1);
        }
        let counted = self.chunks.iter().map(|chunk| to_usize(chunk.live_runs)).sum::<usize>();
        debug_assert_eq!(counted, live_count, "the runs of the chunks were counted wrong");
        let empty_count = self.chunks.iter().filter(|chunk| chunk.live_runs == 0).count();
        let is_open_empty = self.chunks.get(to_usize(self.open)).is_some_and(|chunk| chunk.live_runs == 0);
        debug_assert_eq!(
            self.free.len(),
            empty_count.saturating_sub(is_open_empty.into()),
            "an empty chunk is not free"
        );
        let capacity_bytes = self.chunks.iter().map(|chunk| chunk.bytes.capacity()).sum::<usize>();
        debug_assert_eq!(self.capacity_bytes, capacity_bytes, "the chunks have another capacity");
    }
}
