//! The words of a wide replay window, each by its place in the ring.
//!
//! Places are `u32` on every platform: how wide an address is stays in here. What the bits mean, and where the ring begins, is
//! the window's business.

/// Words in a ring, as many as it was made with.
pub(super) struct Words(Box<[u64]>);

impl Words {
    pub(super) fn new(count: u32) -> Self {
        Self((0..count).map(|_| 0).collect())
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn get(&self, place: u32) -> Option<u64> {
        self.0.get(at(place)).copied()
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut u64> {
        self.0.get_mut(at(place))
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }
}

impl Clone for Words {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }

    /// Into the memory that is there, where it is as much.
    fn clone_from(&mut self, other: &Self) {
        self.0.clone_from(&other.0);
    }
}

fn at(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}
