//! A free list of indices, linked through the free entries themselves.
//!
//! When the last used index is released, indices are handed out from 0 again. A caller that uses them in turn then
//! walks through memory in order, and the memory in use stays small. In a plain free list, each
//! queue that is not empty when a message arrives changes the order a little, until every step reads another cache line.

/// No index.
pub(super) const NO_INDEX: u32 = u32::MAX;

/// The free indices of an array.
#[derive(Debug)]
pub(super) struct FreeList {
    /// The first index in the list of released indices.
    first: u32,
    /// No index from here on is in use or in the list of released indices.
    unused_from: u32,
    /// The number of indices that are handed out.
    used: u32,
}

impl FreeList {
    pub(super) const fn new() -> Self {
        Self { first: NO_INDEX, unused_from: 0, used: 0 }
    }

    /// The next index to be handed out. There may be no entry for it yet.
    #[inline]
    pub(super) const fn next(&self) -> u32 {
        if self.first == NO_INDEX { self.unused_from } else { self.first }
    }

    /// Hands out [`Self::next`]. `link` is the value that [`Self::release`] returned when this index was released.
    #[inline]
    pub(super) const fn take(&mut self, link: u32) {
        if self.first == NO_INDEX {
            return self.take_new();
        }
        // The index that was released last comes first: its entry is likely still in the cache.
        self.used = self.used.wrapping_add(1);
        self.first = link;
    }

    /// Hands out [`Self::next`], for which there was no entry yet. Memory ends long before the indices do.
    #[inline]
    pub(super) const fn take_new(&mut self) {
        self.used = self.used.wrapping_add(1);
        self.unused_from = self.unused_from.wrapping_add(1);
    }

    /// The number of indices that are handed out.
    pub(super) const fn used_count(&self) -> u32 {
        self.used
    }

    /// Releases an index. Returns the link to store in its entry.
    #[inline]
    pub(super) const fn release(&mut self, index: u32) -> u32 {
        debug_assert!(self.used > 0, "more indices are released than were handed out");
        self.used = self.used.wrapping_sub(1);
        // The links of the free entries are stale from now on, and `take` ignores them.
        if self.used == 0 {
            (self.first, self.unused_from) = (NO_INDEX, 0);
            return NO_INDEX;
        }
        std::mem::replace(&mut self.first, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::to_usize;

    /// The links, stored as the users of the list store them.
    #[derive(Default)]
    struct Memory(Vec<u32>);

    impl Memory {
        fn take(&mut self, free: &mut FreeList) -> u32 {
            let index = free.next();
            free.take(self.0.get(to_usize(index)).copied().unwrap_or(NO_INDEX));
            if to_usize(index) == self.0.len() {
                self.0.push(NO_INDEX);
            }
            assert!(to_usize(index) < self.0.len(), "a place without memory");
            index
        }

        fn release(&mut self, free: &mut FreeList, index: u32) {
            self.0[to_usize(index)] = free.release(index);
        }
    }

    #[test]
    fn an_emptied_list_reuses_indices_from_zero() {
        let (mut free, mut memory) = (FreeList::new(), Memory::default());
        let mut queue = std::collections::VecDeque::new();
        for turn in 0..50 {
            (0..7 + turn % 5).for_each(|_| queue.push_back(memory.take(&mut free)));
            for index in queue.drain(..6 + turn % 5) {
                memory.release(&mut free, index);
            }
        }
        assert!(!queue.iter().is_sorted(), "it is shuffled while something waits");
        let most = memory.0.len();
        for index in queue.drain(..) {
            memory.release(&mut free, index);
        }
        let places = (0..=most).map(|_| to_usize(memory.take(&mut free)));
        assert!(places.eq(0..=most), "in order again, all of them, and only then is there more memory");
    }

    #[test]
    fn the_last_released_index_is_reused_first() {
        let (mut free, mut memory) = (FreeList::new(), Memory::default());
        let places: Vec<u32> = (0..4).map(|_| memory.take(&mut free)).collect();
        memory.release(&mut free, places[1]);
        memory.release(&mut free, places[2]);
        assert_eq!([2, 1, 4].map(|_| memory.take(&mut free)), [2, 1, 4]);
    }
}
