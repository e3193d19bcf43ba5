//! The memory of blocks. A worker uses a block again when no connection needs it any more.
//!
//! A slow connection keeps the blocks that it has not acknowledged, and with them the messages of all others. A limit bounds this
//! memory. Beyond it there are no new blocks, and each receiver queues its own messages.

use std::collections::VecDeque;
use std::sync::Arc;

use drumfire_proto::MessageBlock;

/// The largest memory of the blocks of one worker that connections need.
const BLOCK_MEMORY_BYTES: usize = 64 * 1_024 * 1_024;

/// The maximum number of blocks that wait to be used again.
const SPARE_MAX: usize = 64;

/// The number of blocks that one step of [`BlockPool::reclaim`] examines.
const RECLAIM_STEP: usize = 8;

/// The blocks of one worker.
#[derive(Debug)]
pub(crate) struct BlockPool {
    /// Blocks that were sent, and that connections may still need.
    sent: VecDeque<Arc<MessageBlock>>,
    /// Empty blocks. They do not count against the limit.
    spare: Vec<Arc<MessageBlock>>,
    /// The memory of the sent blocks. An open block counts as if it were full.
    held_bytes: usize,
    limit_bytes: usize,
}

impl Default for BlockPool {
    fn default() -> Self {
        Self::new(BLOCK_MEMORY_BYTES)
    }
}

impl BlockPool {
    pub(in crate::worker) const fn new(limit_bytes: usize) -> Self {
        Self { sent: VecDeque::new(), spare: Vec::new(), held_bytes: 0, limit_bytes }
    }

    /// Returns a block with two messages, which fit. `None` if the limit is reached.
    pub(super) fn open(&mut self, messages: [&[u8]; 2]) -> Option<Arc<MessageBlock>> {
        let held_bytes = self.held_bytes.saturating_add(MessageBlock::MEMORY_MAX_BYTES);
        if self.spare.is_empty() || held_bytes > self.limit_bytes {
            self.reclaim();
        }
        // The memory that the block may take counts from now on, so that no block exceeds the limit while it grows.
        let held_bytes = self.held_bytes.saturating_add(MessageBlock::MEMORY_MAX_BYTES);
        if held_bytes > self.limit_bytes {
            return None;
        }
        let mut block = self.spare.pop().unwrap_or_default();
        let open = Arc::get_mut(&mut block)?;
        let is_pushed = messages.into_iter().all(|payload| open.push(payload));
        debug_assert!(is_pushed, "a block has room for two messages");
        self.held_bytes = held_bytes;
        Some(block)
    }

    /// Takes a block that was sent to all receivers.
    pub(super) fn close(&mut self, block: Arc<MessageBlock>) {
        self.held_bytes = self
            .held_bytes
            .saturating_sub(MessageBlock::MEMORY_MAX_BYTES)
            .saturating_add(block.memory_bytes());
        self.sent.push_back(block);
    }

    /// Looks for blocks that no connection needs, among the next few.
    pub(crate) fn reclaim(&mut self) {
        for _ in 0..self.sent.len().min(RECLAIM_STEP) {
            let Some(mut block) = self.sent.pop_front() else { return };
            let Some(unused) = Arc::get_mut(&mut block) else {
                // A slow connection must not hide the blocks behind this one.
                self.sent.push_back(block);
                continue;
            };
            self.held_bytes = self.held_bytes.saturating_sub(unused.memory_bytes());
            if self.spare.len() < SPARE_MAX {
                unused.clear();
                self.spare.push(block);
            }
        }
        let is_open_only = self.held_bytes.is_multiple_of(MessageBlock::MEMORY_MAX_BYTES);
        debug_assert!(
            !self.sent.is_empty() || is_open_only,
            "without sent blocks, only the open one takes memory"
        );
    }

    /// Returns the memory of the blocks that connections may still need, in bytes.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again_and_end_at_the_limit() {
        let full = MessageBlock::MEMORY_MAX_BYTES;
        let mut pool = BlockPool::new(3 * full);
        let mut open: Vec<_> = std::iter::from_fn(|| pool.open([b"one", b""])).collect();
        assert_eq!((open.len(), pool.held_bytes()), (3, 3 * full));
        // A connection needs the second one.
        let kept = Arc::clone(&open[1]);
        let pointers: Vec<_> = open.iter().map(Arc::as_ptr).collect();
        open.drain(..).for_each(|block| pool.close(block));
        assert!(pool.held_bytes() < full, "they have two messages each");
        pool.reclaim();
        assert_eq!((pool.sent.len(), pool.spare.len()), (1, 2));
        assert_eq!(pool.held_bytes(), kept.memory_bytes());
        for _ in 0..100 {
            let block = pool.open([b"two", b"three"]).unwrap();
            assert_eq!((block.len(), block.payload(1)), (2, &b"three"[..]));
            assert!(pointers.contains(&Arc::as_ptr(&block)) && !Arc::ptr_eq(&block, &kept));
            pool.close(block);
        }
        assert_eq!((kept.len(), kept.payload(0)), (2, &b"one"[..]), "a block in use does not change");
        drop(kept);
        pool.reclaim();
        assert_eq!((pool.sent.len(), pool.spare.len(), pool.held_bytes()), (0, 3, 0));
    }
}
