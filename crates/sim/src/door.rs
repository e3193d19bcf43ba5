//! Who gets in: opens a scenario's server, and sends its clients there, with tokens or without.

use drumfire::testing::{self, World};
use drumfire::{
    Access, ClientConfig, ConnectToken, PlayerId, ServerConfig, ServerKey, TokenAccess, TokenMasterKey,
    TokenRequest, Workers,
};

use crate::scenario::Scenario;

/// The world of this scenario, with all clients on their way, and their tokens where they have some.
pub(crate) fn open(scenario: &Scenario) -> Result<(World, Vec<ConnectToken>), String> {
    if !scenario.has_tokens {
        let config = testing::server_config().cookie(scenario.cookie);
        let mut world = build(config, scenario)?;
        for _ in &scenario.clients {
            world.join(&ClientConfig::default()).map_err(|error| error.to_string())?;
        }
        return Ok((world, Vec::new()));
    }
    let master = TokenMasterKey::from_bytes([7; 32]);
    let token_key = master.token_key(1, "sim").map_err(|error| error.to_string())?;
    let (server_key, access) = (ServerKey::from_bytes([9; 32]), TokenAccess::new(token_key.clone()));
    let (address, public) = (testing::server_config().address, server_key.public());
    let config = ServerConfig::new(address, server_key, Access::Token(access)).cookie(scenario.cookie);
    let mut world = build(config, scenario)?;
    let mut tokens: Vec<ConnectToken> = Vec::new();
    for (player, plan) in (0..).zip(&scenario.clients) {
        let mine = match tokens.last().filter(|_| plan.shares_token) {
            Some(shared) => shared.clone(),
            None => {
                let request = TokenRequest::new(PlayerId(player), address, public);
                world.issue(&request, &token_key).map_err(|error| error.to_string())?
            }
        };
        world.join_with_token(&mine, &ClientConfig::default()).map_err(|error| error.to_string())?;
        tokens.push(mine);
    }
    Ok((world, tokens))
}

/// The world of a server with these settings, and with as many workers as the scenario has.
fn build(config: ServerConfig, scenario: &Scenario) -> Result<World, String> {
    let world = match &scenario.swarm {
        Some(swarm) => {
            let config = config.workers(Workers::Count(swarm.workers)).wait(swarm.wait);
            World::with_sockets(config, swarm.sockets, scenario.seed)
        }
        None => World::new(config, scenario.seed),
    };
    world.map_err(|error| error.to_string())
}
