//! The common part of the tests of the async interface. Nothing here sleeps: a test waits for events until a deadline.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::asynchronous::Connection;
use drumfire::{
    Access, Bytes, ChannelId, ClientConfig, ConnectOptions, Error, ServerConfig, ServerKey, Workers,
    asynchronous,
};

/// The time after which an awaited event counts as missing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const CHANNEL: ChannelId = ChannelId(0);

pub(crate) fn config() -> ServerConfig {
    let address = "127.0.0.1:0".parse().expect("an address");
    ServerConfig::new(address, ServerKey::dev(), Access::Open)
        .workers(Workers::Count(1))
        .memory_bytes(MEMORY_BYTES, MEMORY_BYTES)
}

/// The memory of a connection for sending, and for receiving, in bytes. It is less than the default, so that tests fill it faster.
const MEMORY_BYTES: usize = 256 * 1_024;

/// Returns the settings of most clients.
pub(crate) fn client_config() -> ClientConfig {
    ClientConfig::default().memory_bytes(MEMORY_BYTES, MEMORY_BYTES)
}

/// Returns the output of a future, which must complete before the deadline.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// Connects with a client of its own.
pub(crate) async fn open(to: impl Into<ConnectOptions>, config: &ClientConfig) -> Result<Connection, Error> {
    asynchronous::Client::new(config.clone())?.connect(to).await
}

/// Connects to a server with the development key.
pub(crate) async fn open_dev(server: SocketAddr) -> Result<Connection, Error> {
    open((server, ServerKey::dev().public()), &ClientConfig::default()).await
}

pub(crate) async fn connect(server: &asynchronous::Server) -> Connection {
    let to = (server.local_addr(), ServerKey::dev().public());
    soon("connect", open(to, &client_config())).await.expect("a connection")
}

pub(crate) async fn accept(server: &asynchronous::Server) -> Connection {
    soon("accept", server.accept()).await.expect("a connection")
}

/// A server, and both ends of its only connection.
pub(crate) struct Pair {
    pub(crate) server: asynchronous::Server,
    pub(crate) client: Connection,
    pub(crate) at_server: Connection,
}

impl Pair {
    pub(crate) async fn new(config: ServerConfig) -> Self {
        Self::with(config, &client_config()).await
    }

    pub(crate) async fn with(config: ServerConfig, client: &ClientConfig) -> Self {
        let server = asynchronous::Server::bind(config).expect("a free port on the loopback");
        let key = ServerKey::dev().public();
        let connecting = open((server.local_addr(), key), client);
        let client = soon("connect", connecting).await.expect("a connection");
        let at_server = accept(&server).await;
        Self { server, client, at_server }
    }
}

/// Returns the payload of the next message. Panics if another event or the end comes first.
pub(crate) async fn message(connection: &Connection) -> Bytes {
    match soon("a message", connection.recv()).await {
        Ok((_, payload)) => payload,
        other => panic!("{other:?}"),
    }
}

/// Returns a payload of this length that begins with a number.
pub(crate) fn numbered(number: u32, bytes: usize) -> Vec<u8> {
    let mut message = number.to_be_bytes().to_vec();
    message.resize(bytes.max(4), 7);
    message
}

pub(crate) fn number_of(message: &[u8]) -> u32 {
    u32::from_be_bytes(*message.first_chunk().expect("a number"))
}
