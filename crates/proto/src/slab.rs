//! Connections by number, with a generation, so that an old number never means a new connection.
//!
//! Deliberately no iteration: nothing walks all connections.

/// Names a peer of one endpoint for as long as its connection exists. The id of a connection that is gone
/// names nobody, however often its place was used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    index: u32,
    generation: u32,
}

impl PeerId {
    /// The place among the endpoint's connections, below [`Config::connections`](crate::Config::connections).
    /// Places are used again: keep the whole id beside whatever is kept by place.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// The id as one number, for logs and for maps of the application.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }
}

/// Values in places that are used again, last freed first.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    limit: u32,
    /// Which value was asked for last, to be changed.
    in_hand: Option<PeerId>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<Box<T>>,
}

impl<T> Slab<T> {
    /// An empty slab for at most `limit` values.
    pub(crate) const fn new(limit: u32) -> Self {
        Self { places: Vec::new(), free: Vec::new(), limit, in_hand: None }
    }

    /// Puts a value in, made with its id. `None` when the slab is full.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(PeerId) -> T) -> Option<PeerId> {
        if self.is_full() {
            return None;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).ok()?;
                self.places.push(Place { generation: 0, value: None });
                index
            }
        };
        let place = self.places.get_mut(usize::try_from(index).ok()?)?;
        let id = PeerId { index, generation: place.generation };
        place.value = Some(Box::new(make(id)));
        Some(id)
    }

    /// With more values than that none is taken out, and none fits.
    pub(crate) const fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len().saturating_sub(self.free.len())
    }

    /// The value of this id, if it still lives.
    pub(crate) fn get(&self, id: PeerId) -> Option<&T> {
        let place = self.places.get(usize::try_from(id.index).ok()?)?;
        if place.generation == id.generation { place.value.as_deref() } else { None }
    }

    /// The value of this id, if it still lives.
    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut T> {
        self.in_hand = Some(id);
        let place = self.places.get_mut(usize::try_from(id.index).ok()?)?;
        if place.generation == id.generation { place.value.as_deref_mut() } else { None }
    }

    /// Nothing is in anybody's hand from now on; answers whose value was.
    pub(crate) fn put_down(&mut self) -> Option<PeerId> {
        self.in_hand.take()
    }

    /// The id of what is in this place now.
    pub(crate) fn id_at(&self, index: u32) -> Option<PeerId> {
        let place = self.places.get(usize::try_from(index).ok()?)?;
        place.value.as_ref().map(|_| PeerId { index, generation: place.generation })
    }

    /// Takes the value out; its id is stale from now on.
    pub(crate) fn remove(&mut self, id: PeerId) -> Option<Box<T>> {
        let place = self.places.get_mut(usize::try_from(id.index).ok()?)?;
        if place.generation != id.generation {
            return None;
        }
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_names_nobody_even_when_its_place_is_taken_again() {
        let mut slab = Slab::new(10);
        let first = slab.insert_with(|_| 'a').unwrap();
        assert_eq!((slab.get(first), slab.len()), (Some(&'a'), 1));
        assert_eq!(slab.remove(first).as_deref(), Some(&'a'));
        let second = slab.insert_with(|_| 'b').unwrap();
        assert_eq!(first.index(), second.index());
        assert_ne!(first, second);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!(slab.id_at(0), Some(second));
        assert_eq!(slab.id_at(1), None);
    }

    #[test]
    fn a_lower_limit_takes_nothing_out_and_lets_nothing_in_until_there_is_room_below_it() {
        let mut slab = Slab::new(3);
        let ids: Vec<_> = (0..3).map(|n| slab.insert_with(|_| n).unwrap()).collect();
        slab.set_limit(2);
        assert!(slab.is_full() && ids.iter().all(|id| slab.get(*id).is_some()));
        slab.remove(ids[0]);
        assert!(slab.is_full() && slab.insert_with(|_| 9).is_none(), "a free place is no room");
        slab.remove(ids[1]);
        assert!(slab.insert_with(|_| 9).is_some() && slab.is_full());
        slab.set_limit(4);
        assert!(slab.insert_with(|_| 9).is_some() && slab.insert_with(|_| 9).is_some());
        assert!(slab.is_full() && slab.insert_with(|_| 9).is_none());
    }

    #[test]
    fn a_slab_is_full_at_its_limit() {
        let mut slab = Slab::new(2);
        let ids: Vec<_> = (0..3).map(|n| slab.insert_with(|_| n)).collect();
        assert!(ids[0].is_some() && ids[1].is_some() && ids[2].is_none() && slab.is_full());
        slab.remove(ids[0].unwrap());
        assert!(!slab.is_full());
        assert!(slab.insert_with(|id| i32::try_from(id.index()).unwrap()).is_some());
        assert_eq!(slab.len(), 2);
    }
}
