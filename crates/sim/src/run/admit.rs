//! The server of a run, and the clients that connect to it, with tokens or without. Clients with the token of a session that is over
//! also try to connect: the server must refuse them, and its application must not receive events of them.

use drumfire::testing::{self, World};
use drumfire::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{Access, ClientConfig, PlayerId, ServerConfig, Workers};

use super::ScenarioRun;
use crate::client::{Client, ConnectionState};
use crate::memory::memories;
use crate::scenario::{Plan, Scenario, server_key};

/// Returns the scenario's world without clients, and the key that seals tokens, unless access is open.
pub(super) fn open(scenario: &Scenario) -> Result<(World, Option<TokenKey>), String> {
    let (mut access, mut key) = (Access::Open, None);
    if scenario.has_tokens {
        let master = TokenMasterKey::from_bytes([7; 32]);
        let token_key = master.token_key(1, "sim").map_err(|error| error.to_string())?;
        access = Access::Token(TokenAccess::new(token_key.clone()));
        key = Some(token_key);
    }
    let (send, receive) = memories(scenario);
    let server = ServerConfig::new(testing::server_config().address, server_key(), access)
        .cookie(scenario.cookie)
        .memory_bytes(send, receive);
    let world = match &scenario.workers {
        Some(plan) => {
            let server = server.workers(Workers::Count(plan.workers)).wait(plan.wait);
            World::with_sockets(server, plan.sockets, scenario.seed)
        }
        None => World::new(server, scenario.seed),
    };
    Ok((world.map_err(|error| error.to_string())?, key))
}

impl ScenarioRun<'_> {
    /// Connects a client at an index: a new one, or that of a client that has left.
    pub(super) fn admit(&mut self, at: usize, plan: Plan) -> Result<(), String> {
        let shared = self.clients.last().and_then(|last| last.token.clone()).filter(|_| plan.shares_token);
        let token = match &self.token_key {
            Some(key) if shared.is_none() => {
                let (player, to) = (PlayerId(self.next_player), self.world.server.local_addr());
                self.next_player += 1;
                let request = TokenRequest::new(player, to, server_key().public());
                Some(self.world.issue(&request, key).map_err(|error| error.to_string())?)
            }
            _ => shared,
        };
        let (send, receive) = memories(self.scenario);
        let config = ClientConfig::default().memory_bytes(send, receive);
        let end = match &token {
            token if at < self.clients.len() => self.world.rejoin(at, token.as_ref(), &config),
            None => self.world.join(&config).map(drop),
            Some(token) => self.world.join_with(token, &config).map(drop),
        };
        end.map_err(|error| error.to_string())?;
        // The workers of a server move events into their channels, and have memory for all of them.
        let buffers_events = self.scenario.workers.is_some() && self.scenario.memory_bytes.is_none();
        let client = Client::new(plan, token, buffers_events);
        match self.clients.get_mut(at) {
            Some(place) => *place = client,
            None => self.clients.push(client),
        }
        Ok(())
    }

    /// Connects a client with the token of each session that is over, from a new address.
    pub(super) fn reuse_tokens(&mut self) -> Result<(), String> {
        for client in self.clients.iter().filter(|client| client.at_server == ConnectionState::Closed) {
            if let Some(token) = &client.token {
                let at = self.world.join_with(token, &ClientConfig::default());
                let at = at.map_err(|error| error.to_string())?;
                self.returned.insert(self.world.client_address(at));
            }
        }
        Ok(())
    }
}
