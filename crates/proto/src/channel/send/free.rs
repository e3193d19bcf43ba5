//! A free list of indices, linked through the free entries themselves.
//!
//! When the last used index is released, indices are handed out from 0 again. A caller that uses them in turn then
//! walks through memory in order, and the memory in use stays small. A plain free list is shuffled a little by each
//! queue that is not empty when a message arrives, until every step of it is another cache line.

/// No index.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The free indices of an array.
#[derive(Debug)]
pub(super) struct Free {
    /// The first index of the list of released ones.
    first: u32,
    /// No index from here on is handed out, or waits in the list of released ones.
    fresh: u32,
    /// The number of indices that are handed out.
    taken: u32,
}

impl Free {
    pub(super) const fn new() -> Self {
        Self { first: NOWHERE, fresh: 0, taken: 0 }
    }

    /// The next index to be handed out. There may be no entry for it yet.
    #[inline]
    pub(super) const fn next(&self) -> u32 {
        if self.first == NOWHERE { self.fresh } else { self.first }
    }

    /// Hands out [`Self::next`]. `link` is the value that [`Self::release`] returned when this index was released.
    #[inline]
    pub(super) const fn take(&mut self, link: u32) {
        if self.first == NOWHERE {
            return self.take_fresh();
        }
        // The index that was released last comes first: its entry is likely still in the cache.
        self.taken = self.taken.wrapping_add(1);
        self.first = link;
    }

    /// Hands out [`Self::next`], for which there was no entry yet. Memory ends long before the indices do.
    #[inline]
    pub(super) const fn take_fresh(&mut self) {
        self.taken = self.taken.wrapping_add(1);
        self.fresh = self.fresh.wrapping_add(1);
    }

    /// The number of indices that are handed out.
    pub(super) const fn taken_count(&self) -> u32 {
        self.taken
    }

    /// Releases an index. Returns the link to store in its entry.
    #[inline]
    pub(super) const fn release(&mut self, place: u32) -> u32 {
        debug_assert!(self.taken > 0, "more indices are released than were handed out");
        self.taken = self.taken.wrapping_sub(1);
        // The links of the free entries are stale from now on, and `take` ignores them.
        if self.taken == 0 {
            (self.first, self.fresh) = (NOWHERE, 0);
            return NOWHERE;
        }
        std::mem::replace(&mut self.first, place)
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
        fn take(&mut self, free: &mut Free) -> u32 {
            let place = free.next();
            free.take(self.0.get(to_usize(place)).copied().unwrap_or(NOWHERE));
            if to_usize(place) == self.0.len() {
                self.0.push(NOWHERE);
            }
            assert!(to_usize(place) < self.0.len(), "a place without memory");
            place
        }

        fn release(&mut self, free: &mut Free, place: u32) {
            self.0[to_usize(place)] = free.release(place);
        }
    }

    #[test]
    fn an_emptied_list_reuses_indices_from_zero() {
        let (mut free, mut memory) = (Free::new(), Memory::default());
        let mut queue = std::collections::VecDeque::new();
        for turn in 0..50 {
            (0..7 + turn % 5).for_each(|_| queue.push_back(memory.take(&mut free)));
            for place in queue.drain(..6 + turn % 5) {
                memory.release(&mut free, place);
            }
        }
        assert!(!queue.iter().is_sorted(), "it is shuffled while something waits");
        let most = memory.0.len();
        for place in queue.drain(..) {
            memory.release(&mut free, place);
        }
        let places = (0..=most).map(|_| to_usize(memory.take(&mut free)));
        assert!(places.eq(0..=most), "in order again, all of them, and only then is there more memory");
    }

    #[test]
    fn the_last_released_index_is_reused_first() {
        let (mut free, mut memory) = (Free::new(), Memory::default());
        let places: Vec<u32> = (0..4).map(|_| memory.take(&mut free)).collect();
        memory.release(&mut free, places[1]);
        memory.release(&mut free, places[2]);
        assert_eq!([2, 1, 4].map(|_| memory.take(&mut free)), [2, 1, 4]);
    }
}
