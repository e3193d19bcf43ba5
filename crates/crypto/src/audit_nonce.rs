//! For tests only: remembers every (key, packet number) that any [`crate::Sealer`] of this process sealed,
//! and panics on a repeat.
//!
//! The panic happens while the books are locked, so every later seal panics too: a caller that catches panics
//! per connection cannot hide it. Keys are known by a fingerprint, never by their bytes. The books cost
//! memory for each run of consecutive numbers, not for each number. It deliberately does not cover the
//! handshake's own encryption.

#![expect(clippy::panic, clippy::expect_used, reason = "this module exists to stop a test run")]

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

type Fingerprint = [u8; 16];
type World = u64;

static BOOKS: LazyLock<Mutex<HashMap<World, HashMap<Fingerprint, Runs>>>> = LazyLock::new(Mutex::default);
static WORLD_COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static WORLD: Cell<World> = const { Cell::new(0) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Begins empty books for what the calling thread seals from now on, and forgets those of its previous world.
///
/// A simulator that replays a seed makes the same keys again on purpose; each replay is a world. Threads that
/// never call this share one.
///
/// # Panics
/// If a repeat was found before, in any world.
pub fn start_world() {
    let new = WORLD_COUNT.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    let old = WORLD.replace(new);
    COUNT.set(0);
    if old != 0 {
        BOOKS.lock().expect("a nonce was repeated earlier").remove(&old);
    }
}

/// Packets that the calling thread sealed since its world began.
#[must_use]
pub fn count() -> u64 {
    COUNT.get()
}

/// Notes that packet `number` is sealed with the key of this fingerprint.
///
/// # Panics
/// If that happened before, or if any repeat was found before.
pub(crate) fn record(key: Fingerprint, number: u64) {
    COUNT.set(COUNT.get().saturating_add(1));
    let mut books = BOOKS.lock().expect("a nonce was repeated earlier");
    let runs = books.entry(WORLD.get()).or_default().entry(key).or_default();
    if !runs.insert(number) {
        panic!("packet number {number} was sealed twice under one key");
    }
}

/// A set of numbers as runs: first number of a run to its last.
#[derive(Default)]
struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Whether `number` was new.
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
    fn a_new_world_begins_with_empty_books() {
        start_world();
        record([1; 16], 5);
        assert_eq!(count(), 1);
        start_world();
        assert_eq!(count(), 0);
        record([1; 16], 5);
    }
}
