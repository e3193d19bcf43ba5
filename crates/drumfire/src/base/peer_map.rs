//! Values by peer: a table with the peer's place among its worker's connections as the index, so that looking one
//! up hashes nothing.
//!
//! A place is used again for a new peer, so every value stands there with its peer's whole name.

/// Values of the peers of one worker.
#[derive(Debug)]
pub(crate) struct Places<P, T> {
    places: Vec<Option<(P, T)>>,
}

/// The name of a peer, which knows its place.
pub(crate) trait Placed: Copy + PartialEq {
    /// The peer's place among its worker's connections.
    fn place(self) -> usize;
}

impl Placed for drumfire_proto::PeerId {
    fn place(self) -> usize {
        self.index() as usize
    }
}

impl Placed for crate::message::peer::PeerId {
    fn place(self) -> usize {
        self.id().place()
    }
}

impl<P, T> Default for Places<P, T> {
    fn default() -> Self {
        Self { places: Vec::new() }
    }
}

impl<P: Placed, T> Places<P, T> {
    pub(crate) fn get(&self, peer: P) -> Option<&T> {
        let (name, value) = self.places.get(peer.place())?.as_ref()?;
        (*name == peer).then_some(value)
    }

    pub(crate) fn get_mut(&mut self, peer: P) -> Option<&mut T> {
        let (name, value) = self.places.get_mut(peer.place())?.as_mut()?;
        (*name == peer).then_some(value)
    }

    /// Puts a value in, in place of whatever stood there.
    pub(crate) fn insert(&mut self, peer: P, value: T) {
        let place = peer.place();
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place] = Some((peer, value));
    }

    pub(crate) fn remove(&mut self, peer: P) -> Option<T> {
        self.places.get_mut(peer.place())?.take_if(|(name, _)| *name == peer).map(|(_, value)| value)
    }

    /// How many places there are, empty ones included.
    pub(crate) fn place_count(&self) -> usize {
        self.places.len()
    }

    /// Walks all places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(P, T)> {
        self.places.iter().flatten()
    }

    /// Looks at so many places from this one on, around the end; answers where to go on.
    pub(crate) fn walk(&mut self, from: usize, count: usize, mut look: impl FnMut(P, &mut T)) -> usize {
        let length = self.places.len();
        let start = if from < length { from } else { 0 };
        let (before, after) = self.places.split_at_mut(start);
        let mut at = start;
        for place in after.iter_mut().chain(before).take(count) {
            at += 1;
            if let Some((peer, value)) = place {
                look(*peer, value);
            }
        }
        if at < length { at } else { at - length }
    }

    /// Takes everything out; walks all places.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (P, T)> {
        std::mem::take(&mut self.places).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Name(usize, u32);

    impl Placed for Name {
        fn place(self) -> usize {
            self.0
        }
    }

    #[test]
    fn a_value_is_found_by_its_whole_name_only() {
        let mut places = Places::default();
        places.insert(Name(3, 1), 'a');
        assert_eq!((places.get(Name(3, 1)), places.get(Name(3, 2))), (Some(&'a'), None));
        assert_eq!((places.get(Name(2, 1)), places.get(Name(4, 1))), (None, None));
        assert_eq!((places.remove(Name(3, 2)), places.remove(Name(9, 1))), (None, None));
        places.insert(Name(3, 2), 'b');
        assert!(places.get_mut(Name(3, 1)).is_none() && places.get_mut(Name(3, 2)).is_some());
        assert_eq!((places.remove(Name(3, 2)), places.get(Name(3, 2))), (Some('b'), None));
    }

    #[test]
    fn a_walk_goes_on_where_the_last_one_ended_and_around() {
        let mut places = Places::default();
        assert_eq!(places.walk(7, 3, |_: Name, _: &mut char| panic!("nobody is there")), 0);
        for (place, value) in "abcde".chars().enumerate() {
            places.insert(Name(place, 0), value);
        }
        places.remove(Name(3, 0));
        let (mut seen, mut at) = (String::new(), 0);
        for (count, expected) in [(2, 2), (2, 4), (3, 2), (99, 2)] {
            at = places.walk(at, count, |_, value| seen.push(*value));
            assert_eq!(at, expected);
        }
        assert_eq!(seen, "abceabceab");
    }

    #[test]
    fn all_are_walked_and_taken_once() {
        let mut places = Places::default();
        places.insert(Name(5, 0), 'a');
        places.insert(Name(0, 0), 'b');
        assert_eq!(places.iter().map(|(name, _)| name.0).collect::<Vec<_>>(), [0, 5]);
        assert_eq!(places.take_all().map(|(_, value)| value).collect::<String>(), "ba");
        assert_eq!(places.iter().count(), 0);
    }
}
