//! Who gets in: opens a scenario's server, and sends its clients there, with tokens or without.

use std::net::SocketAddr;

use drumfire::testing::{self, World};
use drumfire::{
    Access, ClientConfig, ConnectToken, PlayerId, ServerConfig, ServerKey, TokenAccess, TokenKey,
    TokenMasterKey, TokenRequest, Workers,
};

use crate::scenario::{Plan, Scenario};

/// The way in: clients come to it for the first time, and in place of others.
pub(crate) struct Door {
    address: SocketAddr,
    /// What seals tokens, where there are any.
    key: Option<TokenKey>,
    config: ClientConfig,
    next_player: u128,
    /// The token with which the last client came to each place.
    tokens: Vec<ConnectToken>,
}

impl Door {
    /// The world of this scenario with nobody in it, and the way in.
    pub(crate) fn open(scenario: &Scenario) -> Result<(World, Self), String> {
        let address = testing::server_config().address;
        let (mut access, mut key) = (Access::Open, None);
        if scenario.has_tokens {
            let master = TokenMasterKey::from_bytes([7; 32]);
            let token_key = master.token_key(1, "sim").map_err(|error| error.to_string())?;
            access = Access::Token(TokenAccess::new(token_key.clone()));
            key = Some(token_key);
        }
        let mut config = ServerConfig::new(address, server_key(), access).cookie(scenario.cookie);
        let mut of_client = ClientConfig::default();
        if let Some(bytes) = scenario.memory_bytes {
            config = config.memory_bytes(bytes, bytes);
            of_client = of_client.memory_bytes(bytes, bytes);
        }
        let world = build(config, scenario)?;
        Ok((world, Self { address, key, config: of_client, next_player: 0, tokens: Vec::new() }))
    }

    /// A client comes to this place: a new one, or that of one that has gone.
    pub(crate) fn admit(&mut self, world: &mut World, at: usize, plan: &Plan) -> Result<(), String> {
        let token = self.token(world, plan)?;
        let is_new = at == world.clients.len();
        let end = match (&token, is_new) {
            (None, true) => world.join(&self.config).map(|_| ()),
            (Some(token), true) => world.join_with_token(token, &self.config).map(|_| ()),
            (token, false) => world.rejoin(at, token.as_ref(), &self.config),
        };
        end.map_err(|error| error.to_string())?;
        if let Some(token) = token {
            match self.tokens.get_mut(at) {
                Some(place) => *place = token,
                None => self.tokens.push(token),
            }
        }
        Ok(())
    }

    /// A token for one more player, or that of the client that came to the last place.
    fn token(&mut self, world: &mut World, plan: &Plan) -> Result<Option<ConnectToken>, String> {
        let Some(key) = &self.key else { return Ok(None) };
        if let Some(shared) = self.tokens.last().filter(|_| plan.shares_token) {
            return Ok(Some(shared.clone()));
        }
        let request = TokenRequest::new(PlayerId(self.next_player), self.address, server_key().public());
        self.next_player += 1;
        world.issue(&request, key).map(Some).map_err(|error| error.to_string())
    }

    /// The token with which the last client came to each place; none where there are no tokens.
    pub(crate) fn tokens(&self) -> &[ConnectToken] {
        &self.tokens
    }
}

/// Returns the key of every simulated server.
pub(crate) fn server_key() -> ServerKey {
    ServerKey::from_bytes([9; 32])
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
