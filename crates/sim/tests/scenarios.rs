//! Many clients who come and go for an hour of virtual time.

use drumfire_sim::{Outcome, Scenario, run_scenario};

/// The same for two minutes, which is enough for every place to be taken several times.
fn two_minutes(seed: u64) -> Scenario {
    Scenario { chaos_ticks: 480, ..Scenario::of_an_hour(seed) }
}

#[test]
fn clients_come_and_go_and_what_must_hold_holds() {
    for seed in 0..2 {
        let scenario = two_minutes(seed);
        match run_scenario(&scenario) {
            Ok(outcome) => {
                let clients = scenario.clients.len() as u64;
                assert!(outcome.connected > clients + clients / 2, "{} of {clients}", outcome.connected);
                assert!(outcome.toll.handshakes >= outcome.connected + outcome.failed, "{:?}", outcome.toll);
                let again = run_scenario(&scenario).map(Outcome::of_the_seed);
                assert_eq!(again, Ok(outcome.of_the_seed()), "the same seed gives the same datagrams");
            }
            Err(failure) => panic!("{failure}"),
        }
    }
}
