//! Remembers every (key, packet number) pair that any [`crate::Sealer`] of this process sealed, and panics when one repeats.
//!
//! The panic happens while the record is locked, so every later seal panics too: a caller that catches panics per connection cannot
//! hide it. The record has a fingerprint of each key, never its bytes. It takes memory for each run of consecutive numbers, not for
//! each number, and no test counts that memory. The encryption inside a handshake is not covered.

#![expect(clippy::panic, clippy::expect_used, reason = "this module exists to stop a test run")]

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

type Fingerprint = [u8; 16];
type World = u64;

static RECORD: LazyLock<Mutex<HashMap<World, HashMap<Fingerprint, Runs>>>> = LazyLock::new(Mutex::default);
static WORLD_COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static WORLD: Cell<World> = const { Cell::new(0) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Starts an empty record for the packets that the calling thread seals from now on, and drops that of its previous world.
///
/// A simulator that replays a seed makes the same keys again on purpose, so each replay is a world. Threads that never call this
/// share one world.
///
/// # Panics
/// If a repeat was found before, in any world.
pub fn start_world() {
    let new = WORLD_COUNT.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    let old = WORLD.replace(new);
    COUNT.set(0);
    if old != 0 {
        allocation_counter::opt_out(|| {
            RECORD.lock().expect("a nonce was repeated earlier").remove(&old);
        });
    }
}

/// Returns how many packets the calling thread sealed since its world began.
#[must_use]
pub fn count() -> u64 {
    COUNT.get()
}

/// Records that packet `number` is sealed with the key of this fingerprint.
///
/// # Panics
/// If that happened before, or if any repeat was found before.
pub(crate) fn record(key: Fingerprint, number: u64) {
    COUNT.set(COUNT.get().saturating_add(1));
    allocation_counter::opt_out(|| {
        let mut record = RECORD.lock().expect("a nonce was repeated earlier");
        let runs = record.entry(WORLD.get()).or_default().entry(key).or_default();
        if !runs.insert(number) {
            panic!("packet number {number} was sealed twice under one key");
        }
    });
}

/// A set of numbers, as runs: the first number of a run leads to its last.
#[derive(Default)]
struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Adds a number. Returns whether it was new.
    fn insert(&mut self, number: u64) -> bool {
        if let Some((_, last)) = self.0.range_mut(..=number).next_back() {
            if number <= *last {
                return false;
            }
            if last.checked_add(1) == Some(number) {
                *last = number;
                return true;
            }
        }
        self.0.insert(number, number);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::TestRandom;
    use std::collections::HashSet;

    #[test]
    fn runs_agree_with_a_set() {
        let (mut runs, mut set, mut random) = (Runs::default(), HashSet::new(), TestRandom(1));
        for _ in 0..20_000 {
            let number = random.below(5_000);
            assert_eq!(runs.insert(number), set.insert(number), "{number}");
        }
        assert!(runs.insert(u64::MAX));
        assert!(!runs.insert(u64::MAX));
    }

    #[test]
    fn consecutive_numbers_cost_one_run() {
        let mut runs = Runs::default();
        assert!((0..10_000).all(|number| runs.insert(number)));
        assert_eq!(runs.0.len(), 1);
    }

    #[test]
    fn a_new_world_starts_an_empty_record() {
        start_world();
        record([1; 16], 5);
        assert_eq!(count(), 1);
        start_world();
        assert_eq!(count(), 0);
        record([1; 16], 5);
    }
}
