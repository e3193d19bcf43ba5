//! Opens a scenario's server, and connects clients to it, with tokens or without. Also connects clients with the token
//! of a session that is over: the server must refuse them, and its application must not receive events of them.

use std::collections::HashSet;
use std::net::SocketAddr;

use drumfire::testing::{self, World};
use drumfire::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{Access, ClientConfig, ConnectToken, PlayerId, ServerConfig, ServerKey, Workers};

use crate::checks::memories;
use crate::client::{Client, ConnectionState};
use crate::scenario::{Plan, Scenario};

/// Admits clients to the world of a scenario.
pub(crate) struct Admission {
    address: SocketAddr,
    /// The key that seals tokens, or `None` in open access.
    key: Option<TokenKey>,
    config: ClientConfig,
    next_player: u128,
    /// The token of the newest client at each index.
    tokens: Vec<ConnectToken>,
    /// The addresses of clients with an old token.
    pub(crate) returned: HashSet<SocketAddr>,
}

impl Admission {
    /// Returns the scenario's world without clients, and its admission.
    pub(crate) fn open(scenario: &Scenario) -> Result<(World, Self), String> {
        let address = testing::server_config().address;
        let (mut access, mut key) = (Access::Open, None);
        if scenario.has_tokens {
            let master = TokenMasterKey::from_bytes([7; 32]);
            let token_key = master.token_key(1, "sim").map_err(|error| error.to_string())?;
            access = Access::Token(TokenAccess::new(token_key.clone()));
            key = Some(token_key);
        }
        let (send, receive) = memories(scenario.memory_bytes);
        let server = ServerConfig::new(address, server_key(), access).cookie(scenario.cookie);
        let (server, config) =
            (server.memory_bytes(send, receive), ClientConfig::default().memory_bytes(send, receive));
        let world = match &scenario.workers {
            Some(plan) => {
                let server = server.workers(Workers::Count(plan.workers)).wait(plan.wait);
                World::with_sockets(server, plan.sockets, scenario.seed)
            }
            None => World::new(server, scenario.seed),
        };
        let world = world.map_err(|error| error.to_string())?;
        let (tokens, returned) = (Vec::new(), HashSet::new());
        Ok((world, Self { address, key, config, next_player: 0, tokens, returned }))
    }

    /// Connects a client at an index: a new one, or that of a client that has left.
    pub(crate) fn admit(&mut self, world: &mut World, at: usize, plan: &Plan) -> Result<(), String> {
        let token = self.token(world, plan)?;
        let is_new = at == world.clients.len();
        let end = match (&token, is_new) {
            (None, true) => world.join(&self.config).map(|_| ()),
            (Some(token), true) => world.join_with(token, &self.config).map(|_| ()),
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

    /// Returns a token for the next player, or that of the client before, if the plan shares it.
    fn token(&mut self, world: &mut World, plan: &Plan) -> Result<Option<ConnectToken>, String> {
        let Some(key) = &self.key else { return Ok(None) };
        if let Some(shared) = self.tokens.last().filter(|_| plan.shares_token) {
            return Ok(Some(shared.clone()));
        }
        let request = TokenRequest::new(PlayerId(self.next_player), self.address, server_key().public());
        self.next_player += 1;
        world.issue(&request, key).map(Some).map_err(|error| error.to_string())
    }

    /// Connects a client with the token of each session that is over, from a new address.
    pub(crate) fn reuse_tokens(&mut self, world: &mut World, clients: &[Client]) -> Result<(), String> {
        for (token, client) in self.tokens.iter().zip(clients) {
            if client.at_server == ConnectionState::Closed {
                let config = ClientConfig::default();
                let at = world.join_with(token, &config).map_err(|error| error.to_string())?;
                self.returned.insert(world.client_address(at));
            }
        }
        Ok(())
    }
}

/// Returns the key of every simulated server.
pub(crate) fn server_key() -> ServerKey {
    ServerKey::from_bytes([9; 32])
}
