//! Scenarios of each kind pass, and a seed determines their whole outcome.

use std::collections::HashSet;

use drumfire_sim::{Closing, Counts, Outcome, Scenario, Side, run};

/// Runs a scenario that must pass.
fn hold(scenario: &Scenario) -> Outcome {
    run(scenario).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn sixty_seeds_of_chaos_and_calm_hold() {
    let delivered: u64 =
        (1_000..1_060).map(|seed| hold(&Scenario::from_seed(seed)).counts.of(Counts::DELIVERED)).sum();
    assert!(delivered > 10_000, "{delivered}");
}

#[test]
fn the_same_seed_twice_gives_the_same_outcome() {
    let short = (0..5).map(Scenario::from_seed);
    for scenario in short.chain((100..103).map(Scenario::with_workers)) {
        let run = || run(&scenario).map(Outcome::of_the_seed);
        assert_eq!(run(), run(), "seed {}", scenario.seed);
    }
}

#[test]
fn other_seeds_give_other_traces() {
    let traces: HashSet<u64> = (0..10).map(|seed| hold(&Scenario::from_seed(seed)).trace).collect();
    assert_eq!(traces.len(), 10);
}

#[test]
fn both_ends_are_notified_once_of_a_close() {
    for by in [Side::Client, Side::Server] {
        for seed in 0..10 {
            let mut scenario = Scenario::from_seed(seed);
            let tick = scenario.chaos_ticks - 1;
            for plan in &mut scenario.clients {
                plan.closing = Some(Closing { tick, by });
            }
            let counts = hold(&scenario).counts;
            assert_eq!(counts.of(Counts::CLOSED), counts.of(Counts::CONNECTED), "seed {seed}, {by:?}");
        }
    }
}

/// The minimum number of hostile ends that connect, of about 80 on each side. Many links are too bad for a handshake.
const CONNECTED_MIN: u64 = 40;

#[test]
fn hostile_ends_of_both_sides_connect_and_harm_no_other() {
    for side in [Side::Client, Side::Server] {
        let (mut planned, mut connected) = (0, 0);
        for seed in 0..24 {
            let mut scenario = Scenario::from_seed(seed);
            // Puppets have no token, and no clean link carries what they send.
            if scenario.has_tokens || scenario.is_clean {
                continue;
            }
            for plan in scenario.clients.iter_mut().step_by(2) {
                (plan.hostile, plan.outage, plan.vanishes) = (Some(side), None, None);
                planned += 1;
            }
            connected += hold(&scenario).counts.of(Counts::HOSTILE);
        }
        assert!(connected >= CONNECTED_MIN, "{side:?}: {connected} of {planned}");
    }
}

/// Seeds in which each fault of workers happens. `cargo xtask sim --worker` runs more.
const WORKER_SEEDS: std::ops::Range<u64> = 420..460;

#[test]
fn scenarios_with_workers_hold_and_every_fault_happens() {
    let mut counts = Counts::default();
    for seed in WORKER_SEEDS {
        counts += &hold(&Scenario::with_workers(seed)).counts;
    }
    let kinds = counts.kinds().into_iter();
    let never: Vec<_> = kinds.filter(|(_, count)| *count == 0).map(|(kind, _)| kind).collect();
    assert!(never.is_empty(), "these never happened: {never:?}");
    assert_eq!(counts.of(Counts::STRANDED), 0);
}

#[test]
fn clients_come_and_go_in_an_hour() {
    for seed in 0..2 {
        // Two minutes are enough to fill every place several times.
        let scenario = Scenario { chaos_ticks: 480, ..Scenario::of_an_hour(seed) };
        let outcome = hold(&scenario).of_the_seed();
        let clients = scenario.clients.len() as u64;
        let counted = [Counts::CONNECTED, Counts::FAILED, Counts::HANDSHAKES];
        let [connected, failed, handshakes] = counted.map(|kind| outcome.counts.of(kind));
        assert!(connected > clients + clients / 2, "{connected} of {clients}");
        assert!(handshakes >= connected + failed, "{handshakes} for {connected} and {failed}");
        assert_eq!(hold(&scenario).of_the_seed(), outcome, "the seed decides everything");
    }
}
