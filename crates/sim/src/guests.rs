//! Clients that come once more when all is calm, with a token whose session is over: nobody may let them in.
//!
//! How they fare is seen at the server alone, which must never hear of them.

use std::collections::HashSet;
use std::net::SocketAddr;

use drumfire::testing::World;
use drumfire::{ClientConfig, ConnectToken};

use crate::client::{Client, Stage};

/// The tokens of one world, and who came a second time.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    /// By client.
    tokens: Vec<ConnectToken>,
    addresses: HashSet<SocketAddr>,
}

impl Guests {
    pub(crate) fn new(tokens: Vec<ConnectToken>) -> Self {
        Self { tokens, addresses: HashSet::new() }
    }

    /// All whose session is over come again, at addresses of their own.
    pub(crate) fn come(&mut self, world: &mut World, clients: &[Client]) -> Result<(), String> {
        for (token, client) in self.tokens.iter().zip(clients) {
            if client.at_server == Stage::Over {
                let config = ClientConfig::default();
                let at = world.join_with_token(token, &config).map_err(|error| error.to_string())?;
                self.addresses.insert(world.client_address(at));
            }
        }
        Ok(())
    }

    /// How many came.
    pub(crate) fn count(&self) -> u64 {
        self.addresses.len() as u64
    }

    /// Whether this is the address of one of them.
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        self.addresses.contains(&address)
    }
}
