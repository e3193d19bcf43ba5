//! Servers of several workers whose sockets, threads and code fail, in virtual time.

use drumfire_sim::{Covered, Outcome, run_swarm};

/// Few enough for every run of the tests, and such that each fault happens; `cargo xtask sim --worker` has more.
const SEEDS: std::ops::Range<u64> = 420..460;

#[test]
fn whatever_happens_to_workers_what_must_hold_holds_and_everything_happens() {
    let mut covered = Covered::default();
    for seed in SEEDS {
        match run_swarm(seed) {
            Ok(outcome) => covered += &outcome.covered,
            Err(failure) => panic!("{failure}"),
        }
    }
    let never: Vec<_> = covered.kinds().filter(|(_, count)| *count == 0).map(|(kind, _)| kind).collect();
    assert!(never.is_empty(), "what never happened proves nothing: {never:?}");
    assert_eq!(covered.stranded, 0);
}

#[test]
fn the_same_seed_twice_gives_the_same_datagrams() {
    for seed in 100..103 {
        let run = || run_swarm(seed).map(Outcome::of_the_seed);
        assert_eq!(run(), run(), "seed {seed}");
    }
}
