//! Values by peer, in a table with the peer's slot as the index. A lookup hashes nothing.
//!
//! Slots are reused, so each value is stored with the id of its peer.

use drumfire_proto::PeerId;

/// Values of the peers of one worker.
#[derive(Debug)]
pub(crate) struct PeerMap<T> {
    slots: Vec<Option<(PeerId, T)>>,
    /// The number of values.
    length: usize,
}

impl<T> Default for PeerMap<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), length: 0 }
    }
}

impl<T> PeerMap<T> {
    pub(crate) fn get(&self, peer: PeerId) -> Option<&T> {
        let (id, value) = self.slots.get(index(peer))?.as_ref()?;
        (*id == peer).then_some(value)
    }

    pub(crate) fn get_mut(&mut self, peer: PeerId) -> Option<&mut T> {
        let (id, value) = self.slots.get_mut(index(peer))?.as_mut()?;
        (*id == peer).then_some(value)
    }

    /// Stores a value in the slot of the peer, and drops any other value there.
    pub(crate) fn insert(&mut self, peer: PeerId, value: T) {
        let index = index(peer);
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        let before = self.slots[index].replace((peer, value));
        self.length += usize::from(before.is_none());
    }

    pub(crate) fn remove(&mut self, peer: PeerId) -> Option<T> {
        let (_, value) = self.slots.get_mut(index(peer))?.take_if(|(id, _)| *id == peer)?;
        self.length -= 1;
        Some(value)
    }

    /// The number of values.
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    /// The number of slots, including empty ones.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Visits all slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(PeerId, T)> {
        self.slots.iter().flatten()
    }

    /// Visits the slots from this one on, and returns each value's slot and id.
    pub(crate) fn iter_from(&self, slot: usize) -> impl Iterator<Item = (usize, PeerId)> {
        let slots = self.slots.get(slot..).unwrap_or_default();
        slots.iter().zip(slot..).filter_map(|(entry, at)| entry.as_ref().map(|(id, _)| (at, *id)))
    }

    /// Visits `count` slots from `from` on.
    pub(crate) fn range(&self, from: usize, count: usize) -> impl Iterator<Item = &(PeerId, T)> {
        self.slots.iter().skip(from).take(count).flatten()
    }

    /// Removes and returns all values.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (PeerId, T)> {
        self.length = 0;
        std::mem::take(&mut self.slots).into_iter().flatten()
    }
}

const fn index(peer: PeerId) -> usize {
    peer.slot() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u32, number: u32) -> PeerId {
        format!("2.{slot}.{number}").parse().unwrap()
    }

    #[test]
    fn a_value_is_found_by_the_whole_id_only() {
        let mut map = PeerMap::default();
        map.insert(id(3, 1), 'a');
        assert_eq!((map.get(id(3, 1)), map.get(id(3, 2))), (Some(&'a'), None));
        assert_eq!((map.get(id(2, 1)), map.get(id(4, 1))), (None, None));
        assert_eq!((map.remove(id(3, 2)), map.remove(id(9, 1))), (None, None));
        map.insert(id(3, 2), 'b');
        assert_eq!(map.len(), 1, "a new value removes the stale one");
        assert!(map.get_mut(id(3, 1)).is_none() && map.get_mut(id(3, 2)).is_some());
        assert_eq!((map.remove(id(3, 2)), map.get(id(3, 2))), (Some('b'), None));
    }

    #[test]
    fn ranges_of_slots_visit_each_value_once() {
        let mut map = PeerMap::default();
        assert_eq!(map.range(7, 3).count(), 0);
        for (slot, value) in (0..).zip("abcde".chars()) {
            map.insert(id(slot, 0), value);
        }
        map.remove(id(3, 0));
        let ranges = [(0, 2), (2, 2), (4, 99), (5, 1)]
            .map(|(from, count)| map.range(from, count).map(|(_, value)| value).collect::<String>());
        assert_eq!(ranges, ["ab", "c", "e", ""]);
    }

    #[test]
    fn all_values_are_visited_and_taken_once() {
        let mut map = PeerMap::default();
        map.insert(id(5, 0), 'a');
        map.insert(id(0, 0), 'b');
        assert_eq!(map.iter().map(|(peer, _)| peer.slot()).collect::<Vec<_>>(), [0, 5]);
        assert_eq!(map.iter_from(1).collect::<Vec<_>>(), [(5, id(5, 0))]);
        assert_eq!(map.iter_from(6).count(), 0);
        assert_eq!(map.take_all().map(|(_, value)| value).collect::<String>(), "ba");
        assert_eq!((map.iter().count(), map.len()), (0, 0));
    }
}
