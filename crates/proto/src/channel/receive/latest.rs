//! The version of the newest value of each key, so that no older one is delivered after a newer.
//!
//! When there are too many keys, all of them are forgotten. The caller then ignores values from earlier packets (PROTOCOL 8.5,
//! "Values"). The newest value may therefore be delivered twice, but never an older one. Another module decides how long an
//! idle connection remembers keys.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use drumfire_wire::ChannelId;

use crate::ids::KeyedBuildHasher;
use crate::limits::{ITEM_CHARGE_BYTES, KEYS_REMEMBERED};
use crate::time::Moment;

/// The known keys of one connection and their versions.
#[derive(Debug)]
pub(super) struct LatestKeys {
    /// The newest version of each key, as the peer numbers them.
    versions: HashMap<(ChannelId, u64), u64, KeyedBuildHasher>,
    /// The time at which a value last arrived, new or repeated.
    last_value_at: Moment,
}

impl LatestKeys {
    /// Creates an empty table. The peer controls the keys, but does not know the secret of `hash`.
    pub(super) fn new(hash: KeyedBuildHasher) -> Self {
        Self { versions: HashMap::with_hasher(hash), last_value_at: Moment::ORIGIN }
    }

    /// Whether the version of this key is known.
    pub(super) fn is_known(&self, channel: ChannelId, key: u64) -> bool {
        self.versions.contains_key(&(channel, key))
    }

    /// Returns the time at which a value last arrived, while any key is known.
    pub(super) fn last_value_at(&self) -> Option<Moment> {
        (!self.versions.is_empty()).then_some(self.last_value_at)
    }

    /// Bytes in use, including charges.
    pub(super) fn used_bytes(&self) -> usize {
        // In a large table, the charge covers an entry even right after the table has doubled.
        self.versions.len().saturating_mul(ITEM_CHARGE_BYTES)
    }

    /// Whether `new_count` more keys can be remembered.
    pub(super) fn has_room(&self, new_count: usize) -> bool {
        self.versions.len().saturating_add(new_count) <= KEYS_REMEMBERED
    }

    /// Allocates memory for `new_count` more keys in one step.
    pub(super) fn reserve(&mut self, new_count: usize) {
        self.versions.reserve(new_count);
    }

    /// Records a value that arrived. Returns whether it is the newest of its key; the caller must then deliver it.
    pub(super) fn accept(&mut self, now: Moment, channel: ChannelId, key: u64, version: u64) -> bool {
        // A repeated value counts too: the peer repeats it because its ack was lost, and may repeat it again.
        self.last_value_at = now;
        match self.versions.entry((channel, key)) {
            Entry::Occupied(newest) if version <= *newest.get() => false,
            Entry::Occupied(mut newest) => {
                newest.insert(version);
                true
            }
            Entry::Vacant(none) => {
                none.insert(version);
                true
            }
        }
    }

    /// Forgets one key. Returns whether it was known.
    pub(super) fn forget_one(&mut self, channel: ChannelId, key: u64) -> bool {
        self.versions.remove(&(channel, key)).is_some()
    }

    /// Forgets all keys. Returns whether there were any.
    pub(super) fn forget(&mut self) -> bool {
        // A new table, so that the memory of the old one is released.
        let had_any = !self.versions.is_empty();
        *self = Self::new(*self.versions.hasher());
        had_any
    }

    /// Asserts what must hold between two calls.
    pub(super) fn assert_invariants(&self) {
        debug_assert!(self.versions.len() <= KEYS_REMEMBERED, "{} keys are remembered", self.versions.len());
    }

    /// Releases unused memory.
    pub(super) fn shrink(&mut self) {
        self.versions.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: ChannelId = ChannelId(1);
    const NOW: Moment = Moment::from_nanos(7);

    #[test]
    fn a_value_is_delivered_once_and_never_after_a_newer_one() {
        let mut keys = LatestKeys::new(KeyedBuildHasher::new(7));
        for (key, version, is_new) in
            [(1, 5, true), (1, 5, false), (1, 4, false), (2, 4, true), (1, 6, true), (1, 5, false)]
        {
            assert_eq!(keys.accept(NOW, CHANNEL, key, version), is_new, "{key} {version}");
        }
        assert!(keys.accept(NOW, ChannelId(2), 1, 1), "of another channel");
        assert_eq!(keys.used_bytes(), 3 * 64);
        assert!(keys.forget_one(CHANNEL, 1) && !keys.forget_one(CHANNEL, 1));
        assert!(keys.forget() && !keys.forget());
    }

    #[test]
    fn duplicate_values_refresh_their_key() {
        let mut keys = LatestKeys::new(KeyedBuildHasher::new(7));
        assert_eq!(keys.last_value_at(), None);
        for nanos in [5, 9] {
            keys.accept(Moment::from_nanos(nanos), CHANNEL, 1, 5);
            assert_eq!(keys.last_value_at(), Some(Moment::from_nanos(nanos)));
        }
        keys.forget_one(CHANNEL, 1);
        assert_eq!(keys.last_value_at(), None);
    }

    #[test]
    fn the_2049th_key_has_no_room() {
        let mut keys = LatestKeys::new(KeyedBuildHasher::new(7));
        assert!(keys.has_room(2_048) && !keys.has_room(2_049));
        for key in 0..2_048 {
            assert!(keys.has_room(1));
            keys.accept(NOW, CHANNEL, key, 1);
        }
        assert!(keys.has_room(0) && !keys.has_room(1));
    }
}
