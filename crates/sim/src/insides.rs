//! Lets some ends break the rules, with the feature `hostile`.
//!
//! Other modules judge how the other ends take it.

use drumfire::testing::{Claims, Tamper, World};

use crate::client::{Client, Stage};
use crate::scenario::{Lie, Plan, Side};

/// Ends that are to break the rules begin to, once they are connected.
pub(crate) fn turn_hostile(world: &mut World, seed: u64, plans: &[Plan], clients: &mut [Client]) {
    for (at, (client, plan)) in clients.iter_mut().zip(plans).enumerate() {
        let is_connected = client.at_client == Stage::Connected && client.at_server == Stage::Connected;
        let (Some(side), Some(peer), true) = (plan.hostile, client.peer, is_connected && !client.is_hostile)
        else {
            continue;
        };
        let tamper = match plan.lie {
            Some(Lie::Everything) => Tamper::Claim(Claims::Everything),
            Some(Lie::Unsent) => Tamper::Claim(Claims::Unsent),
            None => Tamper::BreakRules(seed ^ ((at as u64) << 48)),
        };
        match side {
            Side::Client => world.tamper_with_client(at, tamper),
            Side::Server => world.tamper_with_server(peer, tamper),
        };
        client.is_hostile = true;
    }
}
