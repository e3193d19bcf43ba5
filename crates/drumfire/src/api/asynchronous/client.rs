//! The clients for tasks. They connect; everything else is up to the connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::connection::Connection;
use super::driver::ClientDriver;
use crate::base::error::Error;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::credentials::keys::ServerKey;
use crate::engine::client_socket::{ClientSocket, ReceiveBuffer};
use crate::observe::grants::SocketGrants;
use crate::observe::stats::WorkerStats;

/// Connects to one server. A thread of its own does the I/O, and ends with the last handle of the connection.
///
/// With [`ClientConfig::reconnect`], the connection outlives the loss of its path or a restart of the server: see [`Connection`]. If a
/// copy of this process may exist, call [`Connection::invalidate_keys`] and drop the attempts in progress.
///
/// For many connections in one process, use [`Clients`].
#[derive(Debug)]
pub enum Client {}

impl Client {
    /// Connects to a server: `(address, key)`, a [`ConnectToken`](crate::ConnectToken), or [`ConnectOptions`]. Returns when the server
    /// has proved that it has the key.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config.protocol_id(2))?;
    /// let key = ServerKey::dev().public();
    /// let config = ClientConfig::default().protocol_id(1);
    /// let failed = asynchronous::Client::connect((server.local_addr(), key), &config).await;
    /// let error = failed.err().ok_or("it is of another build")?;
    /// assert!(matches!(error, Error::Connect(ConnectError::Refused(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the attempt ends when the future is dropped. A token may be used up then.
    ///
    /// # Errors
    ///
    /// [`Error`]: a setting that cannot be used, an error of the system, or after at most 5 s [`Error::Connect`] with the reason why
    /// there is no connection. A client that reconnects returns only the error of its last attempt.
    pub async fn connect(to: impl Into<ConnectOptions>, config: &ClientConfig) -> Result<Connection, Error> {
        let options = to.into();
        options.check(config.protocol_id)?;
        config.check()?;
        let socket =
            ClientSocket::connect(options.server, ReceiveBuffer::new(config, 1)).map_err(Error::from)?;
        let host = ClientDriver::start(socket, config, 1)?;
        Ok(host.connect(options).await?)
    }

    /// Connects to a server with [`ServerKey::dev`] on this host, with the default settings, for first steps and tests.
    /// Any program on this host can impersonate that server.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the attempt ends when the future is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::DevelopmentServer`] for an address that is not a loopback address, else the errors of [`Client::connect`](crate::asynchronous::Client::connect).
    pub async fn connect_dev(server: SocketAddr) -> Result<Connection, Error> {
        Self::connect((server, ServerKey::dev().public()), &ClientConfig::default()).await
    }
}

/// Many connections over one socket, to one or several servers, for bots and gateways. One thread does the I/O of all.
///
/// Packets to it carry a connection id of 8 bytes, which packets to a [`Client`] do not need. Connections stay open when it is
/// dropped. The thread ends with the last of both.
///
/// ```
/// # use drumfire::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let server = asynchronous::Server::bind(config)?;
/// # let (address, key) = (server.local_addr(), ServerKey::dev().public());
/// let clients = asynchronous::Clients::bind("127.0.0.1:0".parse()?, 50, &ClientConfig::default())?;
/// let mut bots = Vec::new();
/// for _ in 0..50 {
///     bots.push(clients.connect((address, key)).await?);
/// }
/// let one_more = clients.connect((address, key)).await;
/// assert!(matches!(one_more, Err(Error::Connect(ConnectError::TooManyConnections))));
/// # Ok(())
/// # }
/// ```
pub struct Clients {
    host: Arc<ClientDriver>,
    address: SocketAddr,
    protocol_id: u64,
}

impl Clients {
    /// Binds a socket to `address` for at most `connections` connections. Port 0 selects a free port. The servers must be reachable
    /// from the address: use `0.0.0.0:0` for servers with IPv4 addresses, and `[::]:0` for all where the system allows it.
    ///
    /// # Errors
    ///
    /// [`Error`], which names the setting that cannot be used, or has the error of the system.
    pub fn bind(address: SocketAddr, connections: u32, config: &ClientConfig) -> Result<Self, Error> {
        config.check()?;
        let bound = ClientSocket::bind(address, ReceiveBuffer::new(config, connections));
        let (socket, address) = bound.map_err(|error| Error::of_address(error, address))?;
        let host = ClientDriver::start(socket, config, connections)?;
        Ok(Self { host, address, protocol_id: config.protocol_id })
    }

    /// Returns the bound address, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Connects to a server: `(address, key)`, a [`ConnectToken`](crate::ConnectToken), or [`ConnectOptions`]. Returns when the server
    /// has proved that it has the key.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: if the future is dropped, the connection is closed as soon as it is established, after at most 5 s. A token may
    /// be used up then.
    ///
    /// # Errors
    ///
    /// [`Error`]: options that cannot be used here, or after at most 5 s [`Error::Connect`] with the reason why there is no connection.
    pub async fn connect(&self, to: impl Into<ConnectOptions>) -> Result<Connection, Error> {
        let options = to.into();
        options.check(self.protocol_id)?;
        Ok(self.host.connect(options).await?)
    }

    /// Ends all sessions over this socket, because a copy of this process may exist: see
    /// [`Control::invalidate_keys`](crate::Control::invalidate_keys). Connections and attempts end with `KeysInvalidated`, and the
    /// servers are not informed. Later connections have new keys.
    ///
    /// It blocks until the thread has ended its present pass. Tasks are notified of the end of their connections after that. A
    /// [`Waker`](std::task::Waker) must not call it, because the thread may be the one that wakes.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let (address, key) = (server.local_addr(), ServerKey::dev().public());
    /// let clients = asynchronous::Clients::bind("127.0.0.1:0".parse()?, 50, &ClientConfig::default())?;
    /// let connection = clients.connect((address, key)).await?;
    /// // The orchestrator reports that this machine is about to be copied.
    /// clients.invalidate_keys()?;
    /// assert_eq!(connection.closed().await.reason, CloseReason::KeysInvalidated);
    /// let connection = clients.connect((address, key)).await?;
    /// # drop(connection);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`] if the system has no randomness. Nothing has changed then, and this copy must not continue.
    pub fn invalidate_keys(&self) -> Result<(), Error> {
        self.host.invalidate_keys()
    }

    /// Changes the simulated links of the socket in both directions, as
    /// [`Client::set_conditioner`](crate::Client::set_conditioner) does. The thread does it before its next pass.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a configuration that cannot be used, or without [`ClientConfig::conditioner`]. Nothing has changed then.
    #[cfg(feature = "conditioner")]
    pub fn set_conditioner(&self, link: &crate::conditioner::LinkConfig) -> Result<(), Error> {
        self.host.set_conditioner(link)
    }

    /// Returns the options that the system granted the socket.
    #[must_use]
    pub fn granted(&self) -> SocketGrants {
        self.host.granted
    }

    /// Returns the counters of all connections together.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.host.stats()
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("asynchronous::Clients").field("address", &self.address).finish_non_exhaustive()
    }
}
