//! A hash index that finds connections by keys that the connections store themselves. A slot takes 8 bytes: half a hash and
//! an index.
//!
//! The table uses linear probing. A lookup reads one cache line, rarely two, and then the most likely connection. The caller
//! compares the key. The table grows and never shrinks. An attacker cannot construct collisions without the secret of the
//! hash.

use std::hash::BuildHasher;

use crate::convert::to_usize;
use crate::ids::KeyedBuildHasher;

/// The number of slots of the smallest table that is not empty.
const SLOTS_MIN: usize = 8;

/// The maximum load factor, in sixteenths.
const FULL_SIXTEENTHS: usize = 13;

/// No index. Indices are below 2^31.
const NO_INDEX: u32 = u32::MAX;

/// Maps keys to indices of connections.
#[derive(Debug)]
pub(crate) struct HashIndex {
    /// The slots: none, or a power of two.
    slots: Vec<Slot>,
    used_count: usize,
    hash: KeyedBuildHasher,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    /// The hash of the key, which determines the preferred slot.
    hash: u32,
    index: u32,
}

const EMPTY: Slot = Slot { hash: 0, index: NO_INDEX };

impl HashIndex {
    pub(crate) const fn new(hash: KeyedBuildHasher) -> Self {
        Self { slots: Vec::new(), used_count: 0, hash }
    }

    /// Returns the first result of `find_match` for an index under this key. Rarely, `find_match` is called for an index with
    /// another key.
    #[inline]
    pub(crate) fn find<T>(&self, key: u64, mut find_match: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let hash = self.hash_of(key);
        let mut at = self.preferred(hash)?;
        loop {
            let slot = self.slots.get(at)?;
            if slot.index == NO_INDEX {
                return None;
            }
            if slot.hash == hash
                && let Some(found) = find_match(slot.index)
            {
                return Some(found);
            }
            at = self.next(at);
        }
    }

    /// Adds an index under a key.
    pub(crate) fn insert(&mut self, key: u64, index: u32) {
        let needed = self.used_count.saturating_add(1);
        if needed.saturating_mul(16) > self.slots.len().saturating_mul(FULL_SIXTEENTHS) {
            self.grow();
        }
        self.put(Slot { hash: self.hash_of(key), index });
        self.used_count = needed;
    }

    /// Removes an index from a key.
    pub(crate) fn remove(&mut self, key: u64, index: u32) {
        let removed = Slot { hash: self.hash_of(key), index };
        let Some(mut at) = self.preferred(removed.hash) else { return };
        while self.slots.get(at).is_some_and(|slot| *slot != removed) {
            if self.slots.get(at) == Some(&EMPTY) {
                return;
            }
            at = self.next(at);
        }
        self.used_count = self.used_count.saturating_sub(1);
        self.close_gap(at);
    }

    /// Empties a slot, and moves later slots that would otherwise not be found.
    fn close_gap(&mut self, mut gap: usize) {
        let mut at = gap;
        loop {
            at = self.next(at);
            let Some(slot) = self.slots.get(at).copied().filter(|slot| slot.index != NO_INDEX) else { break };
            let Some(preferred) = self.preferred(slot.hash) else { break };
            // A slot may stay if the path from its preferred slot does not cross the gap.
            if self.distance(preferred, at) >= self.distance(gap, at) {
                self.set(gap, slot);
                gap = at;
            }
        }
        self.set(gap, EMPTY);
    }

    fn grow(&mut self) {
        let count = self.slots.len().saturating_mul(2).max(SLOTS_MIN);
        let before = std::mem::replace(&mut self.slots, vec![EMPTY; count]);
        for slot in before.into_iter().filter(|slot| slot.index != NO_INDEX) {
            self.put(slot);
        }
    }

    /// Stores a slot in the first free place. The table is never full.
    fn put(&mut self, slot: Slot) {
        let Some(mut at) = self.preferred(slot.hash) else { return };
        while self.slots.get(at).is_some_and(|taken| taken.index != NO_INDEX) {
            at = self.next(at);
        }
        self.set(at, slot);
    }

    fn set(&mut self, at: usize, slot: Slot) {
        if let Some(entry) = self.slots.get_mut(at) {
            *entry = slot;
        }
    }

    /// The number of indices in the table.
    pub(crate) const fn count(&self) -> usize {
        self.used_count
    }

    /// Asserts what must hold between two calls. `has_key` is called with each index in the table, and returns whether
    /// what is there has a key for which the second argument returns true.
    pub(crate) fn assert_invariants(&self, mut has_key: impl FnMut(u32, &dyn Fn(u64) -> bool) -> bool) {
        let used = || self.slots.iter().enumerate().filter(|(_, slot)| slot.index != NO_INDEX);
        debug_assert_eq!(used().count(), self.used_count, "the used slots were counted wrong");
        // A lookup ends at the first free slot.
        debug_assert!(
            self.used_count == 0 || self.used_count < self.slots.len(),
            "a lookup in a full table would not end"
        );
        for (at, slot) in used() {
            let is_key = |key| self.hash_of(key) == slot.hash;
            debug_assert!(
                has_key(slot.index, &is_key),
                "the index leads to {}, which has another key",
                slot.index
            );
            let is_free = |step| self.slots.get(step) == Some(&EMPTY);
            let mut steps = std::iter::successors(self.preferred(slot.hash), |step| Some(self.next(*step)));
            debug_assert!(
                !steps.by_ref().take_while(|step| *step != at).any(is_free),
                "a lookup of {} ends at a free slot",
                slot.index
            );
        }
    }

    fn hash_of(&self, key: u64) -> u32 {
        let [a, b, c, d, ..] = self.hash.hash_one(key).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// The preferred slot of this hash; `None` in an empty table.
    fn preferred(&self, hash: u32) -> Option<usize> {
        Some(to_usize(hash) & self.slots.len().checked_sub(1)?)
    }

    fn next(&self, at: usize) -> usize {
        at.wrapping_add(1) & self.slots.len().wrapping_sub(1)
    }

    /// The steps from one slot to another, with wraparound.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.slots.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_tries::tries;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn table() -> HashIndex {
        HashIndex::new(KeyedBuildHasher::new(0x1234_5678_9abc_def0))
    }

    #[test]
    fn an_empty_table_finds_nothing_and_takes_no_memory() {
        let mut table = table();
        assert_eq!(table.find(7, Some), None);
        table.remove(7, 7);
        assert_eq!(table.slots.capacity(), 0);
    }

    #[test]
    fn a_lookup_compares_every_candidate() {
        let mut table = table();
        table.insert(7, 1);
        table.insert(7, 2);
        assert_eq!(table.find(7, |index| (index == 2).then_some(index)), Some(2));
        assert_eq!(table.find(7, |_| None::<u32>), None);
        table.remove(7, 1);
        assert_eq!(table.find(7, Some), Some(2));
        table.remove(7, 2);
        assert_eq!(table.find(7, Some), None);
    }

    #[test]
    fn a_hundred_thousand_connections_take_21_bytes_each() {
        let mut table = table();
        for index in 0..100_000_u32 {
            table.insert(u64::from(index) << 20, index);
            table.insert(u64::from(index) << 20 | 1, index);
        }
        assert_eq!(table.slots.len() * size_of::<Slot>() / 100_000, 20);
        let steps = |key: u64| {
            let mut at = table.preferred(table.hash_of(key)).unwrap();
            let mut count = 1;
            while table.slots[at].index != u32::try_from(key >> 20).unwrap() {
                (at, count) = (table.next(at), count + 1);
            }
            count
        };
        let all: usize = (0..100_000_u64).map(|index| steps(index << 20)).sum();
        assert!(all < 400_000, "{all} steps to find each once");
    }

    /// The number of slots that are visited to find each of these keys once.
    fn steps(secret: u64, keys: impl Iterator<Item = u64>) -> usize {
        let mut table = HashIndex::new(KeyedBuildHasher::new(secret));
        for key in keys {
            table.insert(key, 1);
        }
        let used = table.slots.iter().enumerate().filter(|(_, slot)| **slot != EMPTY);
        used.map(|(at, slot)| 1 + table.distance(table.preferred(slot.hash).unwrap(), at)).sum()
    }

    #[test]
    fn keys_crafted_against_unkeyed_hashes_take_no_longer() {
        let keys = u64::from(tries(1_000_000));
        // The multipliers of FxHash, in rustc's old and present version, and of SplitMix, with their inverses.
        const FACTORS: [u64; 3] = [0x517c_c1b7_2722_0a95, 0xf135_7aea_2e62_a9c5, 0x9e37_79b9_7f4a_7c15];
        for secret in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let random =
                |number: u64| KeyedBuildHasher::new(!secret).hash_one(number) ^ number.rotate_left(40);
            let others = steps(secret, (0..keys).map(random));
            let check = |chosen: &str, crafted: usize| {
                assert!(crafted <= 2 * others, "{chosen}: {crafted} for {others}");
            };
            for shift in [0, 8, 20, 32, 44] {
                check("the same last bits", steps(secret, (0..keys).map(|number| number << shift | 1)));
            }
            for factor in FACTORS {
                // Newton's method: each round doubles the number of correct bits.
                let inverse = (0..5).fold(factor, |inverse, _| {
                    inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)))
                });
                assert_eq!(factor.wrapping_mul(inverse), 1);
                let crafted = |number: u64| (0x5a5 << 52 | number).wrapping_mul(inverse);
                check("one factor", steps(secret, (0..keys).map(crafted)));
            }
        }
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_a_hash_map(
            steps in prop::collection::vec((any::<bool>(), 0_u64..60), 0..400)
        ) {
            let (mut table, mut map) = (table(), HashMap::new());
            for (is_in, key) in steps {
                let index = u32::try_from(key).unwrap() + 1_000;
                if is_in {
                    if map.insert(key, index).is_none() {
                        table.insert(key, index);
                    }
                } else if map.remove(&key).is_some() {
                    table.remove(key, index);
                }
                prop_assert_eq!(table.used_count, map.len());
                table.assert_invariants(|index, is_key| is_key(u64::from(index) - 1_000));
            }
            for key in 0..60 {
                prop_assert_eq!(table.find(key, Some), map.get(&key).copied());
            }
            prop_assert!(table.slots.iter().filter(|slot| slot.index != NO_INDEX).count() == map.len());
        }

        #[test]
        fn removals_close_the_gaps_of_colliding_entries(
            hashes in prop::collection::vec(0_u32..16, 1..12), removed in any::<prop::sample::Index>()
        ) {
            let mut table = table();
            table.slots = vec![EMPTY; 16];
            let slots: Vec<_> = (0..).zip(&hashes).map(|(index, hash)| Slot { hash: *hash, index }).collect();
            for slot in &slots {
                table.put(*slot);
            }
            let removed = slots[removed.index(slots.len())];
            let at = table.slots.iter().position(|slot| *slot == removed).unwrap();
            table.close_gap(at);
            for slot in slots.iter().filter(|slot| **slot != removed) {
                let mut at = table.preferred(slot.hash).unwrap();
                while table.slots[at] != *slot {
                    prop_assert!(table.slots[at] != EMPTY, "{slot:?} is not found any more");
                    at = table.next(at);
                }
            }
        }
    }
}
