//! Puppets that break the rules in the place of every other client, or of the server towards it.

use drumfire_sim::{Scenario, Side, run_scenario};

/// Hostile ends that must get as far as a connection, of about 80 on each side. Many links are too bad for a handshake.
const CONNECTED_MIN: u64 = 40;

#[test]
fn hostile_ends_of_both_sides_connect_and_harm_no_other() {
    for side in [Side::Client, Side::Server] {
        let (mut planned, mut connected) = (0, 0);
        for seed in 0..24 {
            let mut scenario = Scenario::from_seed(seed);
            // Puppets have no token, and send what comes over no clean link.
            if scenario.has_tokens || scenario.is_clean {
                continue;
            }
            for plan in scenario.clients.iter_mut().step_by(2) {
                (plan.hostile, plan.hole, plan.vanishes) = (Some(side), None, None);
                planned += 1;
            }
            match run_scenario(&scenario) {
                Ok(outcome) => connected += outcome.hostile,
                Err(failure) => panic!("{side:?}: {failure}"),
            }
        }
        assert!(connected >= CONNECTED_MIN, "{side:?}: {connected} of {planned}");
    }
}
