//! Clients with one connection, whose tests need not name the connection in each call.

use std::net::SocketAddr;

use drumfire::{Client, ClientConfig, ConnectOptions, Error, Message, PeerId, SendError, ServerKey};

/// Creates a client that connects to this server, and sends its first packet.
pub(crate) fn connect(to: impl Into<ConnectOptions>, config: &ClientConfig) -> Result<Client, Error> {
    let mut client = Client::new(config.clone())?;
    client.connect(to)?;
    client.flush();
    Ok(client)
}

/// Creates a client that connects to a server with the development key.
pub(crate) fn connect_dev(server: SocketAddr) -> Result<Client, Error> {
    connect((server, ServerKey::dev().public()), &ClientConfig::default())
}

/// The calls of a client with one connection.
pub(crate) trait Single {
    /// Returns the connection, or the attempt.
    fn server(&self) -> PeerId;

    /// Sends a message to the server.
    fn send_up(&mut self, message: Message) -> Result<(), SendError>;

    /// Whether the connection is open.
    fn is_up(&self) -> bool;

    /// Whether the connection is over for good.
    fn is_over(&self) -> bool;
}

impl Single for Client {
    fn server(&self) -> PeerId {
        self.peers().next().expect("the connection is over")
    }

    fn send_up(&mut self, message: Message) -> Result<(), SendError> {
        self.send(self.server(), message)
    }

    fn is_up(&self) -> bool {
        self.peers().any(|peer| self.is_connected(peer))
    }

    fn is_over(&self) -> bool {
        self.peers().len() == 0
    }
}
