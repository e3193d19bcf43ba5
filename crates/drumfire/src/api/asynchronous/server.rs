//! The server for tasks. It accepts connections and sends to groups. Connections have all other methods.

use std::net::SocketAddr;
use std::sync::Arc;

use drumfire_proto::{Message, Moment, SendError};

use super::accept_queue::AcceptQueue;
use super::connection::Connection;
use super::sink::{AcceptTarget, TaskSink};
use super::task_queues::TaskQueues;
use crate::base::error::Error;
use crate::config::server::ServerConfig;
use crate::engine::control::Control;
use crate::engine::server_core::ServerCore;
use crate::message::group::{Audience, GroupId};
use crate::worker::channel::WorkerChannel;
use crate::worker::command::{Broadcast, Command};
use crate::worker::sink::Sink;

/// A UDP server for game clients, for tasks of any executor.
///
/// Its own threads do the I/O. It always has at least one: [`Workers::Inline`](crate::Workers::Inline) is one thread here, and so is
/// [`Workers::Auto`](crate::Workers::Auto) on one core, because a task that did the I/O would delay other tasks.
///
/// Dropping it closes all connections with [`CloseCode::Shutdown`](crate::error::CloseCode::Shutdown), and returns when its threads have
/// informed the peers.
///
/// ```
/// use std::error::Error;
/// use std::net::SocketAddr;
/// use std::time::Duration;
///
/// use drumfire::asynchronous::{self, Connection};
/// use drumfire::{Access, Bytes, ChannelId, ClientConfig, Message, ServerConfig, ServerKey};
///
/// async fn echo(connection: Connection) {
///     while let Ok((channel, payload)) = connection.recv().await {
///         if connection.send(Message::reliable_ordered(channel, payload)).await.is_err() {
///             break;
///         }
///     }
/// }
///
/// async fn ask(address: SocketAddr) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
///     let client = asynchronous::Client::new(ClientConfig::default())?;
///     let connection = client.connect((address, ServerKey::dev().public())).await?;
///     connection.send(Message::reliable_ordered(ChannelId(0), "hello")).await?;
///     Ok(connection.recv().await?.1)
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
///     let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
///     let server = asynchronous::Server::bind(config)?;
///     let mut client = tokio::spawn(ask(server.local_addr()));
///     loop {
///         tokio::select! {
///             Some(connection) = server.accept() => {
///                 tokio::spawn(echo(connection));
///             }
///             // In a game, this branch waits for `tokio::signal::ctrl_c()`.
///             answer = &mut client => {
///                 assert_eq!(answer??, "hello");
///                 break;
///             }
///         }
///     }
///     let undelivered = server.control().shut_down(Duration::from_secs(5)).await;
///     assert!(undelivered.is_empty());
///     Ok(())
/// }
/// ```
pub struct Server {
    control: Control,
    links: Arc<[Arc<WorkerChannel>]>,
    address: SocketAddr,
    accept_queue: Arc<AcceptQueue>,
}

impl Server {
    /// Binds the address and starts the workers.
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting, or contains the error of the operating system.
    pub fn bind(config: ServerConfig) -> Result<Self, Error> {
        let receive_memory_bytes = config.receive_memory_bytes;
        let accept_queue = Arc::new(AcceptQueue::default());
        let core = ServerCore::bind(config, true, |links, _| {
            let sinks = links.iter().map(|link| {
                let queues = Arc::new(TaskQueues::new(link, receive_memory_bytes));
                let sink = TaskSink::new(queues, AcceptTarget::Server(Arc::clone(&accept_queue)));
                Box::new(sink) as Box<dyn Sink<_>>
            });
            sinks.collect()
        })?;
        let ServerCore { control, links, address, .. } = core;
        Ok(Self { control, links, address, accept_queue })
    }

    /// Returns the address to which clients connect, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next connection, in the order in which they were established. Returns `None` when the server has ended.
    ///
    /// A connection that ended before it was accepted is returned too, with its messages and its end. The server keeps at most 256 such
    /// connections. Beyond that, it drops the oldest one, and counts it in
    /// [`connections_unaccepted`](crate::stats::WorkerStats::connections_unaccepted).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a future that is dropped takes no connection.
    pub async fn accept(&self) -> Option<Connection> {
        self.accept_queue.accept().await
    }

    /// Adds the peer of a connection to a group. A group exists as long as it has members. A peer leaves its groups when it disconnects.
    /// Returns whether the peer is a member now: `false` if it has disconnected, or is in
    /// [`GROUPS_PER_PEER_MAX`](crate::config::GROUPS_PER_PEER_MAX) groups.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config.workers(Workers::Shards { sockets: 2, threads: 2 }))?;
    /// # let mut clients = Vec::new();
    /// const RED: GroupId = GroupId(1);
    /// # let mut at_server = Vec::new();
    /// for _ in 0..2 {
    ///     # let client = asynchronous::Client::new(ClientConfig::default())?;
    ///     # clients.push(client.connect((server.local_addr(), ServerKey::dev().public())).await?);
    ///     let connection = server.accept().await.ok_or("the server is over")?;
    ///     server.join(&connection, RED);
    ///     # at_server.push(connection);
    /// }
    /// server.broadcast(RED, Message::reliable_ordered(ChannelId(0), "red team, go"))?;
    /// for client in &clients {
    ///     assert_eq!(client.recv().await?, (ChannelId(0), "red team, go".into()));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn join(&self, connection: &Connection, group: GroupId) -> bool {
        self.is_ours(connection) && connection.shared().join(group)
    }

    /// Removes the peer of a connection from a group. Does nothing if the peer is not a member.
    pub fn leave(&self, connection: &Connection, group: GroupId) {
        if self.is_ours(connection) {
            connection.shared().act(Command::Leave { peer: connection.peer(), group });
        }
    }

    /// Sends a message to many peers: all of them ([`Audience::ALL`]), or the members of a group. A peer without room for the
    /// message misses it, and [`Event::Missed`](crate::Event::Missed) reports that, unless the channel's
    /// [`when_full`](crate::ChannelOptions::when_full) drops another message instead. A slow peer never delays the
    /// others. Consecutive broadcasts with the same options cost least, as [`Server::broadcast`](crate::Server::broadcast) says.
    ///
    /// # Errors
    ///
    /// `TooLarge`, or `Full` when the workers have not processed earlier broadcasts yet. In both cases, no peer receives the message.
    pub fn broadcast(&self, to: impl Into<Audience>, message: Message) -> Result<(), SendError> {
        let broadcast = Broadcast { audience: to.into(), message };
        WorkerChannel::broadcast_elsewhere(&self.links, usize::MAX, &broadcast)
    }

    /// Returns the operator's interface, for any thread: statistics, bans, settings, threads, and shutdown.
    ///
    /// [`Server::accept`](crate::asynchronous::Server::accept) returns `None` after a shutdown:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let client = asynchronous::Client::new(ClientConfig::default())?;
    /// # let client = client.connect((server.local_addr(), ServerKey::dev().public())).await?;
    /// # let connection = server.accept().await.ok_or("the server has ended")?;
    /// connection.send(Message::reliable_ordered(ChannelId(0), vec![1; 60_000])).await?;
    /// let undelivered = server.control().shut_down(Duration::from_secs(5)).await;
    /// assert!(undelivered.is_empty() && server.accept().await.is_none());
    /// assert!(matches!(client.recv().await, Ok((_, payload)) if payload.len() == 60_000));
    /// client.recv().await.unwrap_err();
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    fn is_ours(&self, connection: &Connection) -> bool {
        let link = self.links.get(connection.peer().worker());
        link.is_some_and(|link| Arc::ptr_eq(link, &connection.shared().queues.link))
    }

    /// Returns the time of the server's clock. Clients know its offset: see [`PeerStats::clock_offset`](crate::PeerStats::clock_offset).
    #[must_use]
    pub fn now(&self) -> Moment {
        self.control.now()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control.stop_threads();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("asynchronous::Server").field("address", &self.address).finish_non_exhaustive()
    }
}
