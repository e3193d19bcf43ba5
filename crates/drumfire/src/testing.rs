//! A server and its clients in memory: the types a game uses, over simulated links and a virtual clock, without
//! threads, sockets or sleeps.
//!
//! Everything comes from one seed: run a test again with the same seed, and every datagram is the same. What runs
//! is the worker of production; only its socket, its wait and its clock are others. Keys are worthless here.
//!
//! ```
//! use std::time::Duration;
//!
//! use drumfire::conditioner::{Delay, LinkConfig, Loss};
//! use drumfire::{ChannelId, Event, Message, testing};
//!
//! let mut world = testing::pair(1);
//! let poor = LinkConfig::default()
//!     .loss(Loss::Even(0.2))
//!     .delay(Delay::Constant(Duration::from_millis(40)));
//! world.set_links(&poor)?;
//!
//! world.clients[0].send(Message::reliable_ordered(ChannelId(0), "hello"))?;
//! world.advance(Duration::from_secs(3));
//! world.server.poll(Duration::ZERO);
//! let events: Vec<Event> = world.server.events().collect();
//! assert!(matches!(&events[..], [Event::Connected { .. }, Event::Message { .. }]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A server with a handler lives in [`World::serving`]; one with several workers, and with sockets that fail, in
//! [`World::with_sockets`]. Poll with [`Duration::ZERO`](std::time::Duration::ZERO): it does the I/O of the present moment. Time
//! passes only in [`World::advance`].

mod comers;
mod group;
mod memory;
mod memory_client;
mod memory_server;
mod network;
mod port;
mod served;
mod skewed_clock;
mod sockets;
mod steer;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::Secret;

use crate::api::client::Client;
use crate::api::server::Server;
use crate::base::error::Error;
use crate::conditioner::{Datagram, LinkConfig, LinkConfigError, LinkCounts, Moment, Random};
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::config::server::{Access, ServerConfig};
use crate::config::threads::Workers;
use crate::credentials::connect_token::ConnectToken;
use crate::credentials::keys::ServerKey;
use crate::credentials::token_request::{Drawn, IssueError, TokenRequest};
use crate::credentials::tokens::TokenKey;
use memory::NetworkPort;
use network::{Network, SharedNetwork};
use served::Make;
use skewed_clock::WALL_ORIGIN;

pub use served::Served;
pub use skewed_clock::ClockConfig;
pub use sockets::{Fault, FaultCounts, SocketCounts, Sockets, Trouble};

/// The port of a server that asked for any.
const SERVER_PORT: u16 = 7_777;

/// The port of every client; their addresses tell them apart.
const CLIENT_PORT: u16 = 50_000;

/// Turns at one moment after which a world is taken to be stuck.
const TURNS_PER_MOMENT: u32 = 100_000;

/// One server and one client, which has begun to connect over a perfect link.
///
/// # Panics
/// Never: the default settings can be used.
#[must_use]
pub fn pair(seed: u64) -> World {
    world(1, seed)
}

/// One server and so many clients, which have begun to connect over perfect links.
///
/// # Panics
/// With more clients than 65,536, which the default settings do not allow.
#[must_use]
pub fn world(clients: usize, seed: u64) -> World {
    let config = server_config();
    assert!(clients <= config.connections as usize, "{clients} clients are more than the server takes");
    let mut world = match World::new(config, seed) {
        Ok(world) => world,
        Err(error) => panic!("the default settings: {error}"),
    };
    for _ in 0..clients {
        if let Err(error) = world.join(&ClientConfig::default()) {
            panic!("the default settings: {error}");
        }
    }
    world
}

/// The settings of the server of [`world`]: everybody may come in.
#[must_use]
pub fn server_config() -> ServerConfig {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, SERVER_PORT));
    ServerConfig::new(address, ServerKey::dev(), Access::Open)
}

/// A server, its clients, and the network between them.
///
/// Between two calls of [`World::advance`] no time passes. Leave `clients` in their places: the place names the
/// links.
pub struct World<S = Server> {
    /// The server.
    pub server: S,
    /// The clients, in the order in which they joined.
    pub clients: Vec<Client>,
    network: SharedNetwork,
    config: Arc<ServerConfig>,
    make: Make<S>,
    random: Random,
    start: Moment,
}

/// What happened to the datagrams of one world beside its links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorldCounts {
    /// Datagrams that found the receive queue of their socket full.
    pub inbox_full: u64,
    /// Datagrams in receive queues.
    pub waiting: u64,
    /// Datagrams to an address that nobody has.
    pub unreachable: u64,
    /// Datagrams of [`World::inject`].
    pub injected: u64,
}

/// What the server exchanged with one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes of the datagrams that it took from there.
    pub received_bytes: u64,
    /// Bytes of the datagrams that it sent there.
    pub sent_bytes: u64,
}

impl<S: Served> World<S> {
    fn made(mut config: ServerConfig, sockets: Sockets, seed: u64, mut make: Make<S>) -> Result<Self, Error> {
        config.check()?;
        let workers = match config.workers {
            Workers::Inline => 1,
            Workers::Count(count) => usize::from(count),
            _ => {
                let problem = "must be Inline or Count in a world";
                return Err(Error::setting("workers", problem));
            }
        };
        if config.address.port() == 0 {
            config.address.set_port(SERVER_PORT);
        }
        let mut random = Random::new(seed);
        let network = SharedNetwork::new(Network::new(config.address, workers, sockets, random.bits()));
        let (config, start) = (Arc::new(config), network.now());
        let ports = (0..workers).map(|worker| NetworkPort::new(network.clone(), worker)).collect();
        let server = make(&config, WALL_ORIGIN, ports, &mut random)?;
        Ok(Self { server, clients: Vec::new(), network, config, make, random, start })
    }

    /// One more client, which begins to connect over perfect links; answers its place in `clients`.
    ///
    /// # Errors
    /// [`Error`] naming the setting that cannot be used.
    pub fn join(&mut self, config: &ClientConfig) -> Result<usize, Error> {
        self.join_with(self.options(), config)
    }

    /// Adds a client that begins to connect to this server with these options: a token of [`World::issue`], or a hello. Returns its
    /// index in `clients`.
    ///
    /// # Errors
    /// [`Error`], which names the setting that cannot be used.
    pub fn join_with(
        &mut self,
        options: impl Into<ConnectOptions>,
        config: &ClientConfig,
    ) -> Result<usize, Error> {
        let options = options.into();
        options.check(config.protocol_id)?;
        self.add(&options, config)
    }

    /// Returns the address and the key of this server.
    #[must_use]
    pub fn options(&self) -> ConnectOptions {
        ConnectOptions::new(self.server.address(), self.config.key.public())
    }

    /// Issues a token at the time of this world; what is random in it comes from the world's seed.
    ///
    /// # Errors
    /// [`IssueError`] naming what cannot be.
    pub fn issue(&mut self, request: &TokenRequest, key: &TokenKey) -> Result<ConnectToken, IssueError> {
        let [id, nonce] = [self.random.bytes(), self.random.bytes()];
        let drawn = Drawn {
            id: std::array::from_fn(|at| id[at]),
            psk: secret(&mut self.random),
            nonce: std::array::from_fn(|at| nonce[at]),
        };
        request.issue_drawn(key, self.wall(), drawn)
    }

    /// What a wall clock shows that is right, since 1970.
    #[must_use]
    pub fn wall(&self) -> Duration {
        WALL_ORIGIN + Duration::from_nanos(self.network.now().as_nanos())
    }

    fn add(&mut self, options: &ConnectOptions, config: &ClientConfig) -> Result<usize, Error> {
        let place = self.clients.len();
        let number = u32::try_from(place).unwrap_or(u32::MAX);
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() | (number & 0x00ff_ffff));
        let port = self.network.lock().join(SocketAddr::from((address, CLIENT_PORT)));
        let port = NetworkPort::new(self.network.clone(), port);
        self.clients.push(Client::in_memory(options, config, port, &mut self.random)?);
        Ok(place)
    }

    /// What both links of every client do from now on.
    ///
    /// # Errors
    /// The first field that is not what it must be.
    pub fn set_links(&mut self, config: &LinkConfig) -> Result<(), LinkConfigError> {
        for client in 0..self.clients.len() {
            self.set_up(client, config)?;
            self.set_down(client, config)?;
        }
        Ok(())
    }

    /// What the link from this client to the server does from now on.
    ///
    /// # Errors
    /// The first field that is not what it must be.
    ///
    /// # Panics
    /// When there is no such client.
    pub fn set_up(&mut self, client: usize, config: &LinkConfig) -> Result<(), LinkConfigError> {
        self.network.lock().path(client).up.set_config(config.clone())
    }

    /// What the link from the server to this client does from now on.
    ///
    /// # Errors
    /// The first field that is not what it must be.
    ///
    /// # Panics
    /// When there is no such client.
    pub fn set_down(&mut self, client: usize, config: &LinkConfig) -> Result<(), LinkConfigError> {
        self.network.lock().path(client).down.set_config(config.clone())
    }

    /// How this client's clocks go from now on.
    ///
    /// # Panics
    /// When there is no such client.
    pub fn set_client_clock(&mut self, client: usize, config: &ClockConfig) {
        assert!(client < self.clients.len(), "there is no client {client}, there are {}", self.clients.len());
        let mut network = self.network.lock();
        let port = network.workers() + client;
        network.set_clock(port, config);
    }

    /// How the server's clocks go from now on.
    pub fn set_server_clock(&mut self, config: &ClockConfig) {
        let mut network = self.network.lock();
        (0..network.workers()).for_each(|worker| network.set_clock(worker, config));
    }

    /// The server dies without a word, as by `kill -9`: what is sent to it reaches nobody until it is
    /// [restarted](World::restart_server). Its last events can still be polled, and nothing comes of what it is told.
    pub fn crash_server(&mut self) {
        self.network.lock().set_server_dead(true);
    }

    /// A server with the same settings, and so the same key and server id, takes the place of the one there was, which dies without a
    /// word. It knows nobody, and its peers may get ids that peers had before.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drumfire::{ClientConfig, Event, Reconnect, testing};
    ///
    /// let mut world = testing::World::new(testing::server_config(), 1)?;
    /// let minute = Reconnect::Within(Duration::from_secs(60));
    /// world.join(&ClientConfig::default().reconnect(minute))?;
    /// world.advance(Duration::from_secs(1));
    /// world.restart_server();
    /// // It learns of it with its next packet: a client that says nothing else says once in some seconds that it is there.
    /// world.advance(Duration::from_secs(10));
    /// let is_coming_back = |event| matches!(event, Event::Reconnecting { attempt: 1, .. });
    /// world.clients[0].poll(Duration::ZERO);
    /// assert!(world.clients[0].events().any(is_coming_back));
    /// assert_eq!(world.clients[0].state(), drumfire::ClientState::Connected);
    /// # Ok::<(), drumfire::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never: the settings made a server before.
    pub fn restart_server(&mut self) {
        self.crash_server();
        // Its last words go nowhere.
        drop(self.replace_server());
        self.network.lock().set_server_dead(false);
    }

    /// Replaces the server as [`World::restart_server`] does, and returns the old one, which can still close its connections: drop it,
    /// or [shut it down for a restart](crate::Control::shut_down_for_restart) and poll it.
    ///
    /// # Panics
    /// Never: the settings made a server before.
    pub fn replace_server(&mut self) -> S {
        let workers = self.network.lock().workers();
        let ports = (0..workers).map(|worker| NetworkPort::new(self.network.clone(), worker)).collect();
        let since = self.wall();
        match (self.make)(&self.config, since, ports, &mut self.random) {
            Ok(server) => std::mem::replace(&mut self.server, server),
            Err(error) => panic!("settings that made a server before: {error}"),
        }
    }

    /// Gives a client another address, as a NAT does that forgot it: what it sends comes from there, and what is
    /// sent to the address before reaches nobody.
    ///
    /// # Panics
    /// When there is no such client.
    pub fn rebind(&mut self, client: usize, address: SocketAddr) {
        self.network.lock().rebind(client, address);
    }

    /// From now on each of two clients has the other's address, as behind a translator that mixed them up. What is under way to
    /// an address comes to who has it then.
    ///
    /// # Panics
    /// When there is no such client.
    pub fn swap_addresses(&mut self, one: usize, other: usize) {
        self.network.lock().swap_addresses(one, other);
    }

    /// Where this client is.
    ///
    /// # Panics
    /// When there is no such client.
    #[must_use]
    pub fn client_address(&self, client: usize) -> SocketAddr {
        self.network.lock().client_address(client)
    }

    /// What the links from and to this client did, and how many datagrams are on each.
    ///
    /// # Panics
    /// When there is no such client.
    #[must_use]
    pub fn link_counts(&self, client: usize) -> [(LinkCounts, u64); 2] {
        let mut network = self.network.lock();
        let path = network.path(client);
        [&path.up, &path.down].map(|link| (*link.counts(), link.flying_count() as u64))
    }

    /// Puts a datagram into the receive queue of the end at `to`, past all links, as somebody does who can write any
    /// source address. Answers whether somebody is there.
    pub fn inject(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) -> bool {
        self.network.lock().inject(Datagram { from, to, bytes })
    }

    /// Every datagram that was sent since the last call, as somebody sees it who listens next to each sender. The first
    /// call begins to listen.
    pub fn take_seen(&mut self) -> Vec<Datagram> {
        self.network.lock().take_seen()
    }

    /// What the server exchanged with each address so far, in no order.
    #[must_use]
    pub fn traffic(&self) -> Vec<(SocketAddr, Traffic)> {
        self.network.lock().traffic().collect()
    }

    /// What happened to the datagrams beside the links.
    #[must_use]
    pub fn counts(&self) -> WorldCounts {
        self.network.lock().counts()
    }

    /// A hash over every datagram that was sent so far: when, by whom, and what.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.network.lock().trace()
    }

    /// The time that has passed.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.network.now().since(self.start)
    }

    /// Lets this much time pass, from wake-up to wake-up, and does all the I/O that is due meanwhile. What was
    /// sent before leaves first, flushed or not.
    ///
    /// # Panics
    /// When the world does not come to rest at some moment: then an end wakes up for ever without time passing.
    pub fn advance(&mut self, duration: Duration) {
        let end = self.network.now().after(duration);
        self.server.flush_front();
        self.clients.iter_mut().for_each(Client::flush_front);
        self.network.lock().wake_all();
        self.settle();
        loop {
            let next = self.network.lock().next_at().filter(|next| *next <= end);
            let Some(next) = next else { break };
            self.network.lock().set_now(next);
            self.settle();
        }
        self.network.lock().set_now(end);
    }

    /// Runs every end that is due until none is.
    fn settle(&mut self) {
        for _ in 0..TURNS_PER_MOMENT {
            let due = self.network.lock().take_due();
            if due.is_empty() {
                return;
            }
            for port in due {
                let client = self.network.lock().client_of(port);
                match client {
                    None => self.server.run(port),
                    Some(client) => match self.clients.get_mut(client) {
                        Some(client) => client.run(),
                        // A client that was taken out of its place lets its turn pass.
                        None => _ = self.network.lock().begin_turn(port),
                    },
                }
            }
        }
        panic!("after {:?} the world does not come to rest", self.elapsed());
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for World<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("server", &self.server)
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}

/// A key that protects nothing.
pub(crate) fn secret(random: &mut Random) -> Secret<32> {
    Secret::new(random.bytes())
}
