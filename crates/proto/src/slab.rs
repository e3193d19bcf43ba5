//! Connections in slots, found by their ids.
//!
//! There is deliberately no iteration: nothing visits all connections, except code that ends them all.

use crate::convert::to_usize;
use crate::peer_id::{PeerId, PeerIds};

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
    /// The number of vacated places.
    vacated_count: u32,
    limit: u32,
    ids: PeerIds,
    /// The id of the value that was last borrowed mutably.
    current: Option<PeerId>,
}

/// A value, with the number of its id. The worker and the slot of the id are those of the place.
type SlabSlot<T> = Option<(u32, T)>;

impl<T> Slab<T> {
    /// Creates an empty slab of a worker, for at most `limit` values.
    pub(crate) fn new(worker: u16, limit: u32) -> Self {
        let block_bits = if limit == 1 { 0 } else { BLOCK_BITS };
        Self {
            blocks: Vec::new(),
            block_bits,
            used_count: 0,
            free: Vec::new(),
            vacated_count: 0,
            limit,
            ids: PeerIds::new(worker),
            current: None,
        }
    }

    /// Continues the numbering of ids of `earlier`, so that its ids are stale here.
    pub(crate) const fn continue_ids(&mut self, earlier: &Self) {
        self.ids.continue_after(&earlier.ids);
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
                    self.blocks.push(places.map(|_| None).collect());
                }
                self.used_count = index.checked_add(1)?;
                index
            }
        };
        let id = self.ids.draw(index);
        *self.place_mut(index)? = Some((id.number(), value));
        Some(id)
    }

    /// Sets the limit. Existing values beyond it stay, and no new ones fit.
    pub(crate) const fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= to_usize(self.limit)
    }

    pub(crate) fn len(&self) -> usize {
        to_usize(self.used_count).saturating_sub(self.free.len())
    }

    /// Returns the value of this id, if the id is not stale.
    // A datagram needs several lookups, and the compiler does not inline them by itself.
    #[inline]
    pub(crate) fn get(&self, id: PeerId) -> Option<&T> {
        let (number, value) = self.place(self.ids.slot(id))?.as_ref()?;
        if *number == id.number() { Some(value) } else { None }
    }

    /// Returns the value of this id, if the id is not stale, and remembers the id as current.
    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut T> {
        self.current = Some(id);
        let (number, value) = self.place_mut(self.ids.slot(id))?.as_mut()?;
        if *number == id.number() { Some(value) } else { None }
    }

    /// Clears the current id, and returns it.
    pub(crate) fn clear_current(&mut self) -> Option<PeerId> {
        self.current.take()
    }

    /// The number of slots that were ever used. All values are in lower slots.
    pub(crate) const fn slot_count(&self) -> u32 {
        self.used_count
    }

    /// Returns the id of the value in this slot.
    #[inline]
    pub(crate) fn id_at(&self, index: u32) -> Option<PeerId> {
        self.place(index)?.as_ref().map(|(number, _)| self.ids.id(index, *number))
    }

    /// Drops the value in place, including its secrets. Its id is stale from now on. Returns false for a stale id.
    pub(crate) fn remove(&mut self, id: PeerId) -> bool {
        let slot = self.ids.slot(id);
        let Some(place) = self.place_mut(slot).filter(|place| holds(place, id)) else { return false };
        *place = None;
        self.free.push(slot);
        true
    }

    /// Drops the value as [`Slab::remove`] does, but keeps the place for [`Slab::refill`]. Until then its id has no value.
    pub(crate) fn vacate(&mut self, id: PeerId) {
        let slot = self.ids.slot(id);
        if let Some(place) = self.place_mut(slot).filter(|place| holds(place, id)) {
            *place = None;
            self.vacated_count = self.vacated_count.saturating_add(1);
        }
    }

    /// Stores a value in the vacated place of this id.
    pub(crate) fn refill(&mut self, id: PeerId, value: T) {
        let place = self.place_mut(self.ids.slot(id));
        debug_assert!(place.as_ref().is_some_and(|place| place.is_none()), "the place of {id} is not vacant");
        if let Some(place) = place {
            *place = Some((id.number(), value));
            self.vacated_count = self.vacated_count.saturating_sub(1);
        }
    }

    /// Gives up the vacated place of this id. The id is stale from now on.
    pub(crate) fn release(&mut self, id: PeerId) {
        let slot = self.ids.slot(id);
        debug_assert!(self.place(slot).is_some_and(Option::is_none), "the place of {id} is not vacant");
        self.free.push(slot);
        self.vacated_count = self.vacated_count.saturating_sub(1);
    }

    /// The number of vacated places.
    pub(crate) fn vacated_count(&self) -> usize {
        to_usize(self.vacated_count)
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        let is_free = |index: u32| self.place(index).is_some_and(Option::is_none);
        debug_assert!(
            self.free.iter().all(|index| is_free(*index)),
            "a slot with a value is to be used again"
        );
        // Each free slot is listed once, or it would be lost, or used twice. A vacated one is kept for its id.
        let free_count = (0..self.used_count).filter(|index| is_free(*index)).count();
        let counted = self.free.len().saturating_add(self.vacated_count());
        debug_assert_eq!(counted, free_count, "the free slots were counted wrong");
    }

    #[inline]
    fn place(&self, index: u32) -> Option<&SlabSlot<T>> {
        let (block, at) = self.split(index);
        self.blocks.get(block)?.get(at)
    }

    #[inline]
    fn place_mut(&mut self, index: u32) -> Option<&mut SlabSlot<T>> {
        let (block, at) = self.split(index);
        self.blocks.get_mut(block)?.get_mut(at)
    }

    /// The block and the position of a slot.
    #[inline]
    fn split(&self, index: u32) -> (usize, usize) {
        // `block_bits` is 0 or `BLOCK_BITS`, so that the shifts are never too long.
        let block = index.wrapping_shr(self.block_bits);
        let at = index ^ block.wrapping_shl(self.block_bits);
        (to_usize(block), to_usize(at))
    }
}

/// Whether the value in this place has this id.
fn holds<T>(place: &SlabSlot<T>, id: PeerId) -> bool {
    place.as_ref().is_some_and(|(number, _)| *number == id.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_stays_stale_when_its_slot_is_reused() {
        let mut slab = Slab::new(0, 10);
        let first = slab.insert('a').unwrap();
        assert_eq!((slab.get(first), slab.len()), (Some(&'a'), 1));
        assert!(slab.remove(first));
        let second = slab.insert('b').unwrap();
        assert_eq!(first.slot(), second.slot());
        assert_ne!(first, second);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert!(!slab.remove(first));
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!(slab.id_at(0), Some(second));
        assert_eq!(slab.id_at(1), None);
    }

    #[test]
    fn ids_of_another_worker_and_of_an_earlier_slab_are_refused() {
        let mut slab = Slab::new(3, 10);
        let own = slab.insert('a').unwrap();
        let mut other = Slab::new(4, 10);
        let id = other.insert('b').unwrap();
        assert_eq!((own.worker(), id.worker(), own.slot()), (3, 4, id.slot()));
        assert!(slab.get(id).is_none() && slab.get_mut(id).is_none() && !slab.remove(id));
        let mut later = Slab::new(3, 10);
        later.continue_ids(&slab);
        let newest = later.insert('c').unwrap();
        assert_eq!((own.worker(), own.slot()), (newest.worker(), newest.slot()));
        assert!(later.get(own).is_none() && later.get_mut(own).is_none() && !later.remove(own));
        assert_eq!(later.get(newest), Some(&'c'));
    }

    #[test]
    fn a_lower_limit_removes_nothing_and_admits_nothing() {
        let mut slab = Slab::new(0, 3);
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
    fn values_never_move_and_are_found_in_any_block() {
        for limit in [1, 1_000] {
            let mut slab = Slab::new(0, limit);
            slab.set_limit(100);
            let ids: Vec<_> = (0..100).map(|n| slab.insert(n).unwrap()).collect();
            let first: *const i32 = slab.get(ids[0]).unwrap();
            for (n, id) in (0..).zip(&ids) {
                assert_eq!((slab.get(*id), slab.id_at(id.slot())), (Some(&n), Some(*id)));
            }
            assert!(slab.remove(ids[33]) && slab.get(ids[33]).is_none() && slab.get(ids[34]) == Some(&34));
            assert_eq!(slab.insert(7).map(PeerId::slot), Some(33));
            assert_eq!((slab.len(), slab.id_at(100)), (100, None));
            assert!(std::ptr::eq(first, slab.get(ids[0]).unwrap()));
        }
    }

    #[test]
    fn removed_values_are_dropped_immediately() {
        let value = std::rc::Rc::new(());
        let mut slab = Slab::new(0, 10);
        let id = slab.insert(std::rc::Rc::clone(&value)).unwrap();
        assert!(slab.remove(id));
        assert_eq!(std::rc::Rc::strong_count(&value), 1);
    }

    #[test]
    fn a_vacated_slot_is_kept_for_its_id() {
        let mut slab = Slab::new(0, 2);
        let (first, second) = (slab.insert('a').unwrap(), slab.insert('b').unwrap());
        slab.vacate(first);
        assert_eq!((slab.get(first), slab.len(), slab.id_at(0)), (None, 2, None));
        assert!(slab.insert('c').is_none(), "the place is reserved");
        slab.refill(first, 'd');
        assert_eq!((slab.get(first), slab.get(second)), (Some(&'d'), Some(&'b')));
        slab.vacate(first);
        slab.release(first);
        let third = slab.insert('e').unwrap();
        assert_eq!((third.slot(), slab.get(first), slab.get(third)), (0, None, Some(&'e')));
    }

    #[test]
    fn a_slab_is_full_at_its_limit() {
        let mut slab = Slab::new(0, 2);
        let ids: Vec<_> = (0..3).map(|n| slab.insert(n)).collect();
        assert!(ids[0].is_some() && ids[1].is_some() && ids[2].is_none() && slab.is_full());
        slab.remove(ids[0].unwrap());
        assert!(!slab.is_full());
        assert!(slab.insert(2).is_some());
        assert_eq!(slab.len(), 2);
    }
}
