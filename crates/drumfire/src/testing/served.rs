//! The servers that a world can run, with polled events or with a handler, and the constructors of their worlds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::World;
use super::memory::NetworkPort;
use super::sockets::Sockets;
use crate::api::handler::Handler;
use crate::api::server::Server;
use crate::base::error::Error;
use crate::conditioner::Random;
use crate::config::server::ServerConfig;
use crate::engine::server_core::ServerCore;
use crate::handler;

/// A server that a [`World`](super::World) can run: [`Server`] or [`handler::Server`](crate::handler::Server).
pub trait WorldServer: driven::Driven {}

impl WorldServer for Server {}

impl<N> WorldServer for handler::Server<N> {}

/// The calls of a world to its server. The module is private, so that other crates cannot implement [`WorldServer`].
pub(super) mod driven {
    use super::SocketAddr;

    pub trait Driven {
        /// Returns the address to which clients connect.
        fn address(&self) -> SocketAddr;

        /// Passes messages that were not flushed to the workers.
        fn flush_app(&mut self);

        /// Runs one pass of this worker, and registers when the next pass is due.
        fn run(&mut self, worker: usize);
    }
}

impl driven::Driven for Server {
    fn address(&self) -> SocketAddr {
        self.local_addr()
    }

    fn flush_app(&mut self) {
        self.app.flush();
    }

    fn run(&mut self, worker: usize) {
        self.core.run(worker);
    }
}

impl<N> driven::Driven for handler::Server<N> {
    fn address(&self) -> SocketAddr {
        self.local_addr()
    }

    fn flush_app(&mut self) {}

    fn run(&mut self, worker: usize) {
        self.core.run(worker);
    }
}

impl World {
    /// Creates a world with a server with these settings and no clients. The server binds no socket, and port 0 becomes 7777.
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting. `workers` must be `Inline` or `Count`.
    pub fn new(config: ServerConfig, seed: u64) -> Result<Self, Error> {
        Self::with_sockets(config, Sockets::default(), seed)
    }

    /// Creates a world like [`World::new`], with these sockets. A server with several workers does I/O only in
    /// [`World::advance`], because its workers stand for threads that run independently of the application.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drumfire::testing::{self, Sockets, World};
    /// use drumfire::{ClientConfig, Workers};
    ///
    /// let unsteered = Sockets::default().is_steered(false);
    /// let mut world = World::with_sockets(testing::server_config().workers(Workers::Count(4)), unsteered, 1)?;
    /// for _ in 0..8 {
    ///     world.join(&ClientConfig::default())?;
    /// }
    /// world.advance(Duration::from_secs(1));
    /// world.server.poll(Duration::ZERO);
    /// assert_eq!(world.server.events().count(), 8);
    /// assert!(world.server.control().stats().forwarded() > 0, "packets came to other workers than theirs");
    /// # Ok::<(), drumfire::Error>(())
    /// ```
    ///
    /// # Errors
    /// The same as for [`World::new`].
    pub fn with_sockets(config: ServerConfig, sockets: Sockets, seed: u64) -> Result<Self, Error> {
        let make = |config: &Arc<ServerConfig>, since, ports: Vec<NetworkPort>, random: &mut Random| {
            let is_inline = ports.len() == 1;
            let sinks = |links: &_| Server::sinks(links, is_inline);
            ServerCore::in_memory(config, since, ports, random, sinks).map(Server::from_core)
        };
        Self::create(config, sockets, seed, Box::new(make))
    }
}

impl<N: Send + 'static> World<handler::Server<N>> {
    /// Creates a world with a server with handlers and no clients. `make` creates the handler of each worker. A restart of the
    /// server calls `make` again.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drumfire::testing::{self, World};
    /// use drumfire::{ChannelId, ClientConfig, Event, Context, Handler, Message, PeerId};
    ///
    /// struct Shout;
    ///
    /// impl Handler for Shout {
    ///     type Note = ();
    ///
    ///     fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
    ///         let _ = context.send(peer, Message::reliable_ordered(channel, bytes.to_ascii_uppercase()));
    ///     }
    /// }
    ///
    /// let mut world = World::serving(testing::server_config(), 1, |_worker| Shout)?;
    /// let client = world.join(&ClientConfig::default())?;
    /// let server = world.clients[client].peers().next().ok_or("the connection is over")?;
    /// world.clients[client].send(server, Message::reliable_ordered(ChannelId(0), "hello"))?;
    /// world.advance(Duration::from_secs(1));
    /// let is_reply = |event| matches!(event, Event::Message { payload, .. } if payload == "HELLO");
    /// world.clients[client].poll(Duration::ZERO);
    /// assert!(world.clients[client].events().any(is_reply));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting. `workers` must be `Inline` or `Count`.
    pub fn serving<H: Handler<Note = N>>(
        config: ServerConfig,
        seed: u64,
        mut make: impl FnMut(usize) -> H + 'static,
    ) -> Result<Self, Error> {
        let make = move |config: &Arc<ServerConfig>, since, ports, random: &mut Random| {
            handler::Server::with(&mut make, |sinks| {
                ServerCore::in_memory(config, since, ports, random, sinks)
            })
        };
        Self::create(config, Sockets::default(), seed, Box::new(make))
    }
}

/// A function that creates the server of a world, initially and after each restart. Its arguments are the settings, the start
/// of the server as time since 1970, the ports of the workers, and the source of all secrets.
pub(super) type MakeServer<S> =
    Box<dyn FnMut(&Arc<ServerConfig>, Duration, Vec<NetworkPort>, &mut Random) -> Result<S, Error>>;
