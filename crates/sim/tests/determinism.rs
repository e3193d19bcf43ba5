//! A seed stands for one run, down to the last datagram.

use std::collections::HashSet;

use drumfire_sim::Outcome;

#[test]
fn the_same_seed_twice_gives_the_same_outcome() {
    for seed in 0..5 {
        let run = || drumfire_sim::run(seed).map(Outcome::of_the_seed);
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn other_seeds_give_other_traces() {
    let traces: HashSet<u64> = (0..10).map(|seed| drumfire_sim::run(seed).expect("it holds").trace).collect();
    assert_eq!(traces.len(), 10);
}
