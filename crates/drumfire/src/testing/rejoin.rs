//! Clients that replace earlier clients of a world.
//!
//! A new client continues with the IP address, the links, and the clocks of the client that it replaces.

use std::net::SocketAddr;

use super::memory::NetworkPort;
use super::served::WorldServer;
use super::{CLIENT_PORT, World};
use crate::api::client::Client;
use crate::base::error::Error;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::credentials::connect_token::ConnectToken;

impl<S: WorldServer> World<S> {
    /// Replaces a client by one that begins to connect, from the next port, over the same links and with the same clocks. The old client
    /// is dropped, which closes its connection. A token must name the address of this server.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drumfire::{ClientConfig, Event, testing};
    ///
    /// let mut world = testing::pair(1);
    /// world.advance(Duration::from_secs(1));
    /// let peer = world.clients[0].peers().next().ok_or("the connection is over")?;
    /// world.clients[0].close(peer, 0, "bye");
    /// world.advance(Duration::from_secs(1));
    /// world.rejoin(0, None, &ClientConfig::default())?;
    /// world.advance(Duration::from_secs(1));
    /// world.clients[0].poll(Duration::ZERO);
    /// assert!(world.clients[0].events().any(|event| matches!(event, Event::Connected { .. })));
    /// world.server.poll(Duration::ZERO);
    /// assert_eq!(world.server.events().count(), 3, "the events of two connects and one disconnect");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting. The client is then not replaced, but its port has changed.
    ///
    /// # Panics
    /// Panics if there is no such client.
    pub fn rejoin(
        &mut self,
        client: usize,
        token: Option<&ConnectToken>,
        config: &ClientConfig,
    ) -> Result<(), Error> {
        assert!(client < self.clients.len(), "there is no client {client}, there are {}", self.clients.len());
        let before = self.client_address(client);
        let port = before.port().checked_add(1).unwrap_or(CLIENT_PORT);
        self.rebind(client, SocketAddr::new(before.ip(), port));
        let options = token.map_or_else(|| self.options(), ConnectOptions::from);
        options.check(config.protocol_id)?;
        let port = self.network.lock().workers() + client;
        let port = NetworkPort::new(self.network.clone(), port);
        self.clients[client] = Client::in_memory(config, port, &mut self.random)?;
        self.clients[client].connect(options)?;
        Ok(())
    }
}
