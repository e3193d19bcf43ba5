//! Connections by index and generation, so that a stale id never refers to a new connection.
//!
//! There is deliberately no iteration: nothing visits all connections, except code that ends them all.

/// Identifies a peer of one endpoint as long as its connection exists. The id of a removed connection stays stale,
/// however often its slot is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    index: u32,
    generation: u32,
}

impl PeerId {
    /// The slot among the endpoint's connections, below [`Config::connections`](crate::Config::connections). Slots
    /// are reused: store the whole id with data that is kept per slot.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Returns the id as a number, for logs and for maps of the application.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }

    /// Returns the id from the number of [`PeerId::to_bits`]. Any other number gives a stale id, or by chance that of
    /// another peer.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "each half of the number is one field")]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// The slots of a block, as a power of two, for slabs with many values: few allocations, and one step to a value.
const BLOCK_BITS: u32 = 5;

/// Values in reusable slots, most recently freed first. A value stays in place until it is dropped.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    /// Blocks of `1 << block_bits` slots each, so that no value ever moves.
    blocks: Vec<Box<[SlabSlot<T>]>>,
    block_bits: u32,
    /// The number of slots that were ever used. All values are in lower slots.
    used_count: u32,
    free: Vec<u32>,
    limit: u32,
    /// The id of the value that was last borrowed mutably.
    current: Option<PeerId>,
}

#[derive(Debug)]
struct SlabSlot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// Creates an empty slab for at most `limit` values.
    pub(crate) const fn new(limit: u32) -> Self {
        let block_bits = if limit == 1 { 0 } else { BLOCK_BITS };
        Self { blocks: Vec::new(), block_bits, used_count: 0, free: Vec::new(), limit, current: None }
    }

    /// Stores a value. Returns `None` when the slab is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<PeerId> {
        if self.is_full() {
            return None;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = self.used_count;
                if self.place(index).is_none() {
                    let places = 0..1_usize.checked_shl(self.block_bits)?;
                    self.blocks.push(places.map(|_| SlabSlot { generation: 0, value: None }).collect());
                }
                self.used_count = index.checked_add(1)?;
                index
            }
        };
        let place = self.place_mut(index)?;
        place.value = Some(value);
        Some(PeerId { index, generation: place.generation })
    }

    /// Sets the limit. Existing values beyond it stay, and no new ones fit.
    pub(crate) const fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.used_count).unwrap_or(usize::MAX).saturating_sub(self.free.len())
    }

    /// Returns the value of this id, if the id is not stale.
    pub(crate) fn get(&self, id: PeerId) -> Option<&T> {
        let place = self.place(id.index)?;
        if place.generation == id.generation { place.value.as_ref() } else { None }
    }

    /// Returns the value of this id, if the id is not stale, and remembers the id as current.
    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut T> {
        self.current = Some(id);
        let place = self.place_mut(id.index)?;
        if place.generation == id.generation { place.value.as_mut() } else { None }
    }

    /// Clears the current id, and returns it.
    pub(crate) fn clear_current(&mut self) -> Option<PeerId> {
        self.current.take()
    }

    /// The number of slots that were ever used. All values are in lower slots.
    pub(crate) const fn places(&self) -> u32 {
        self.used_count
    }

    /// Returns the id of the value in this slot.
    pub(crate) fn id_at(&self, index: u32) -> Option<PeerId> {
        let place = self.place(index)?;
        place.value.as_ref().map(|_| PeerId { index, generation: place.generation })
    }

    /// Drops the value in place, including its secrets. Its id is stale from now on. Returns false for a stale id.
    pub(crate) fn remove(&mut self, id: PeerId) -> bool {
        let Some(place) = self.place_mut(id.index).filter(|place| place.generation == id.generation) else {
            return false;
        };
        if place.value.is_none() {
            return false;
        }
        place.value = None;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.index);
        true
    }

    #[inline]
    fn place(&self, index: u32) -> Option<&SlabSlot<T>> {
        let (block, at) = self.split(index)?;
        self.blocks.get(block)?.get(at)
    }

    #[inline]
    fn place_mut(&mut self, index: u32) -> Option<&mut SlabSlot<T>> {
        let (block, at) = self.split(index)?;
        self.blocks.get_mut(block)?.get_mut(at)
    }

    /// The block and the position of a slot.
    #[inline]
    fn split(&self, index: u32) -> Option<(usize, usize)> {
        let block = index.checked_shr(self.block_bits)?;
        let at = index ^ block.checked_shl(self.block_bits)?;
        Some((usize::try_from(block).ok()?, usize::try_from(at).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_stays_stale_when_its_slot_is_reused() {
        let mut slab = Slab::new(10);
        let first = slab.insert('a').unwrap();
        assert_eq!((slab.get(first), slab.len()), (Some(&'a'), 1));
        assert!(slab.remove(first));
        let second = slab.insert('b').unwrap();
        assert_eq!(first.index(), second.index());
        assert_ne!(first, second);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert!(!slab.remove(first));
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!(slab.id_at(0), Some(second));
        assert_eq!(slab.id_at(1), None);
    }

    #[test]
    fn a_lower_limit_removes_nothing_and_admits_nothing() {
        let mut slab = Slab::new(3);
        let ids: Vec<_> = (0..3).map(|n| slab.insert(n).unwrap()).collect();
        slab.set_limit(2);
        assert!(slab.is_full() && ids.iter().all(|id| slab.get(*id).is_some()));
        slab.remove(ids[0]);
        assert!(slab.is_full() && slab.insert(9).is_none(), "a free place is no room");
        slab.remove(ids[1]);
        assert!(slab.insert(9).is_some() && slab.is_full());
        slab.set_limit(4);
        assert!(slab.insert(9).is_some() && slab.insert(9).is_some());
        assert!(slab.is_full() && slab.insert(9).is_none());
    }

    #[test]
    fn values_stay_where_they_are_and_are_found_in_whatever_block() {
        for limit in [1, 1_000] {
            let mut slab = Slab::new(limit);
            slab.set_limit(100);
            let ids: Vec<_> = (0..100).map(|n| slab.insert(n).unwrap()).collect();
            let first: *const i32 = slab.get(ids[0]).unwrap();
            for (n, id) in (0..).zip(&ids) {
                assert_eq!((slab.get(*id), slab.id_at(id.index())), (Some(&n), Some(*id)));
            }
            assert!(slab.remove(ids[33]) && slab.get(ids[33]).is_none() && slab.get(ids[34]) == Some(&34));
            assert_eq!(slab.insert(7).map(PeerId::index), Some(33));
            assert_eq!((slab.len(), slab.id_at(100)), (100, None));
            assert!(std::ptr::eq(first, slab.get(ids[0]).unwrap()));
        }
    }

    #[test]
    fn what_is_removed_is_dropped_at_once() {
        let value = std::rc::Rc::new(());
        let mut slab = Slab::new(10);
        let id = slab.insert(std::rc::Rc::clone(&value)).unwrap();
        assert!(slab.remove(id));
        assert_eq!(std::rc::Rc::strong_count(&value), 1);
    }

    #[test]
    fn a_slab_is_full_at_its_limit() {
        let mut slab = Slab::new(2);
        let ids: Vec<_> = (0..3).map(|n| slab.insert(n)).collect();
        assert!(ids[0].is_some() && ids[1].is_some() && ids[2].is_none() && slab.is_full());
        slab.remove(ids[0].unwrap());
        assert!(!slab.is_full());
        assert!(slab.insert(2).is_some());
        assert_eq!(slab.len(), 2);
    }
}
