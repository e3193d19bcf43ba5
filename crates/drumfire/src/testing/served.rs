//! The servers that can live in a world, with events that are polled or with a handler, and the worlds of each.

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

/// A server that can live in a [`World`](super::World): [`Server`] or [`handler::Server`](crate::handler::Server).
pub trait Served: driven::Driven {}

impl Served for Server {}

impl<N> Served for handler::Server<N> {}

/// What a world asks of its server; nobody else has to know it.
pub(super) mod driven {
    use super::SocketAddr;

    pub trait Driven {
        /// Where it is.
        fn address(&self) -> SocketAddr;

        /// Hands over what was sent but not flushed.
        fn flush_front(&mut self);

        /// One pass of this worker, and a wait that only says when the next is due.
        fn run(&mut self, worker: usize);
    }
}

impl driven::Driven for Server {
    fn address(&self) -> SocketAddr {
        self.local_addr()
    }

    fn flush_front(&mut self) {
        self.parts().0.flush();
    }

    fn run(&mut self, worker: usize) {
        self.parts().1.run(worker);
    }
}

impl<N> driven::Driven for handler::Server<N> {
    fn address(&self) -> SocketAddr {
        self.local_addr()
    }

    fn flush_front(&mut self) {}

    fn run(&mut self, worker: usize) {
        self.core_mut().run(worker);
    }
}

impl World {
    /// A server with these settings and no clients. It binds nothing: port 0 becomes 7777.
    ///
    /// # Errors
    /// [`Error`] naming the setting that cannot be used; `workers` must be inline or a count.
    pub fn new(config: ServerConfig, seed: u64) -> Result<Self, Error> {
        Self::with_sockets(config, Sockets::default(), seed)
    }

    /// [`World::new`] with these sockets. A server of several workers does its I/O in [`World::advance`] alone, as one with
    /// threads does it without its application.
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
    /// As [`World::new`].
    pub fn with_sockets(config: ServerConfig, sockets: Sockets, seed: u64) -> Result<Self, Error> {
        let make = |config: &Arc<ServerConfig>, since, ports, random: &mut Random| {
            ServerCore::in_memory(config, since, ports, random, Server::sinks).map(Server::on)
        };
        Self::made(config, sockets, seed, Box::new(make))
    }
}

impl<N: Send + 'static> World<handler::Server<N>> {
    /// A server whose worker calls the handler that `make` makes, and no clients; after a restart it makes another.
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
    /// world.clients[client].send(Message::reliable_ordered(ChannelId(0), "hello"))?;
    /// world.advance(Duration::from_secs(1));
    /// let heard = |event| matches!(event, Event::Message { payload, .. } if payload == "HELLO");
    /// world.clients[client].poll(Duration::ZERO);
    /// assert!(world.clients[client].events().any(heard));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error`] naming the setting that cannot be used; `workers` must be inline or a count.
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
        Self::made(config, Sockets::default(), seed, Box::new(make))
    }
}

/// Makes a world's server, and makes it anew: from its settings, the time since 1970, its places in the network, and what is
/// random in it.
pub(super) type Make<S> =
    Box<dyn FnMut(&Arc<ServerConfig>, Duration, Vec<NetworkPort>, &mut Random) -> Result<S, Error>>;
