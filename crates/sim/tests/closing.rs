//! Connections that end on purpose, from both sides, over the worst links of a scenario.

use drumfire_sim::{Closing, Scenario, Side, run_scenario};

#[test]
fn whoever_closes_both_ends_hear_of_it_once() {
    for by in [Side::Client, Side::Server] {
        for seed in 0..10 {
            let mut scenario = Scenario::from_seed(seed);
            let tick = scenario.chaos_ticks - 1;
            for plan in &mut scenario.clients {
                plan.closing = Some(Closing { tick, by });
            }
            match run_scenario(&scenario) {
                Ok(outcome) => assert_eq!(outcome.closed, outcome.connected, "seed {seed}, {by:?}"),
                Err(failure) => panic!("{by:?}: {failure}"),
            }
        }
    }
}
