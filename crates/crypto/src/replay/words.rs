//! The words of a wide replay window, by their index in the ring.
//!
//! Indices are `u32` on every platform. Only this file converts them to `usize`, so no arithmetic with packet numbers depends on
//! the width of an address.

// The conversion of an index to `usize` must not truncate.
const _: () = assert!(size_of::<usize>() >= size_of::<u32>());

/// A fixed number of words.
pub(super) struct BitRing(Box<[u64]>);

impl BitRing {
    pub(super) fn new(count: u32) -> Self {
        Self((0..count).map(|_| 0).collect())
    }

    pub(super) fn count(&self) -> u32 {
        let count = u32::try_from(self.0.len());
        debug_assert!(count.is_ok(), "`new` takes the count as a `u32`");
        count.unwrap_or(u32::MAX)
    }

    pub(super) fn get(&self, index: u32) -> Option<u64> {
        self.0.get(to_usize(index)).copied()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut u64> {
        self.0.get_mut(to_usize(index))
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }
}

impl Clone for BitRing {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }

    /// Reuses the memory if both have the same number of words.
    fn clone_from(&mut self, other: &Self) {
        self.0.clone_from(&other.0);
    }
}

const fn to_usize(index: u32) -> usize {
    index as usize
}
