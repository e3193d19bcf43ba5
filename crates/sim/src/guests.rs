//! Clients that come once more when all is calm, with a token whose session is over: nobody may let them in.
//!
//! How they fare is seen at the server alone, which must never hear of them.

use std::collections::HashSet;
use std::net::SocketAddr;

use drumfire::testing::World;
use drumfire::{ClientConfig, ConnectToken};

use crate::client::{Client, Stage};

/// Who came a second time to one world.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    addresses: HashSet<SocketAddr>,
}

impl Guests {
    /// All whose session is over come again, at addresses of their own; `tokens` are by client.
    pub(crate) fn come(
        &mut self,
        world: &mut World,
        tokens: &[ConnectToken],
        clients: &[Client],
    ) -> Result<(), String> {
        for (token, client) in tokens.iter().zip(clients) {
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
