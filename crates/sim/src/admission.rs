//! Opens a scenario's server, and connects clients to it, with tokens or without. Also connects clients with the token
//! of a session that is over: the server must refuse them, and its application must not receive events of them.

use std::collections::HashSet;
use std::net::SocketAddr;

use drumfire::testing::{self, World};
use drumfire::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{Access, ClientConfig, PlayerId, ServerConfig, Workers};

use crate::checks::memories;
use crate::client::{Client, ConnectionState};
use crate::scenario::{Plan, Scenario, server_key};

/// Admits clients to the world of a scenario.
pub(crate) struct Admission {
    address: SocketAddr,
    /// The key that seals tokens, or `None` in open access.
    key: Option<TokenKey>,
    config: ClientConfig,
    next_player: u128,
    /// Whether the workers of the server move events into their channels, and have memory for all of them.
    buffers_events: bool,
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
        let buffers_events = scenario.workers.is_some() && scenario.memory_bytes.is_none();
        let returned = HashSet::new();
        Ok((world, Self { address, key, config, next_player: 0, buffers_events, returned }))
    }

    /// Connects a client at an index: a new one, or that of a client that has left.
    pub(crate) fn admit(
        &mut self,
        world: &mut World,
        clients: &[Client],
        at: usize,
        plan: Plan,
    ) -> Result<Client, String> {
        let shared = clients.last().and_then(|last| last.token.clone()).filter(|_| plan.shares_token);
        let token = match &self.key {
            Some(key) if shared.is_none() => {
                let player = PlayerId(self.next_player);
                self.next_player += 1;
                let request = TokenRequest::new(player, self.address, server_key().public());
                Some(world.issue(&request, key).map_err(|error| error.to_string())?)
            }
            _ => shared,
        };
        let is_new = at == world.clients.len();
        let end = match (&token, is_new) {
            (None, true) => world.join(&self.config).map(|_| ()),
            (Some(token), true) => world.join_with(token, &self.config).map(|_| ()),
            (token, false) => world.rejoin(at, token.as_ref(), &self.config),
        };
        end.map_err(|error| error.to_string())?;
        Ok(Client::new(plan, token, self.buffers_events))
    }

    /// Connects a client with the token of each session that is over, from a new address.
    pub(crate) fn reuse_tokens(&mut self, world: &mut World, clients: &[Client]) -> Result<(), String> {
        for client in clients.iter().filter(|client| client.at_server == ConnectionState::Closed) {
            if let Some(token) = &client.token {
                let config = ClientConfig::default();
                let at = world.join_with(token, &config).map_err(|error| error.to_string())?;
                self.returned.insert(world.client_address(at));
            }
        }
        Ok(())
    }
}
