//! A server and its clients in memory: the types that a game uses, over simulated links and a virtual clock. There are no
//! threads, sockets, or sleeps.
//!
//! All random values come from one seed: a test with the same seed sends the same datagrams. The workers are the production code. Only the
//! socket, the wait, and the clock are replaced. The keys are derived from the seed, so they protect nothing.
//!
//! ```
//! use std::time::Duration;
//!
//! use drumfire::conditioner::{Delay, LinkConfig, Loss};
//! use drumfire::{ChannelId, Event, Message, testing};
//!
//! let mut world = testing::pair(1);
//! let lossy = LinkConfig::default()
//!     .loss(Loss::Random(0.2))
//!     .delay(Delay::Constant(Duration::from_millis(40)));
//! world.set_links(&lossy)?;
//!
//! let peer = world.clients[0].peers().next().ok_or("connecting")?;
//! world.clients[0].send(peer, Message::reliable_ordered(ChannelId(0), "hello"))?;
//! world.advance(Duration::from_secs(3));
//! world.server.poll(Duration::ZERO);
//! let events: Vec<Event> = world.server.events().collect();
//! assert!(matches!(&events[..], [Event::Connected { .. }, Event::Message { .. }]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`World::serving`] creates a server with handlers. [`World::with_sockets`] sets the capabilities of the server's sockets, and
//! [`World::set_socket_faults`] makes them fail. Poll with [`Duration::ZERO`](std::time::Duration::ZERO), which does the I/O of the
//! present moment. Time passes only in [`World::advance`].

mod group;
mod memory;
mod memory_client;
mod memory_server;
mod network;
mod port;
mod rejoin;
mod served;
mod skewed_clock;
mod sockets;
mod steer;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{Moment, Secret};

use crate::api::client::Client;
use crate::api::server::Server;
use crate::base::error::Error;
use crate::conditioner::{LinkConfig, LinkCounts, Random};
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::config::server::{Access, ServerConfig};
use crate::config::threads::Workers;
use crate::credentials::connect_token::ConnectToken;
use crate::credentials::keys::ServerKey;
use crate::credentials::token_request::{IssueError, RandomTokenFields, TokenRequest};
use crate::credentials::tokens::TokenKey;
use memory::NetworkPort;
use network::{Network, SharedNetwork};
use served::MakeServer;
use skewed_clock::WALL_ORIGIN;

pub use served::WorldServer;
pub use skewed_clock::ClockConfig;
pub use sockets::{Fault, FaultCounts, SocketCounts, SocketFaults, Sockets};

/// The port of a server whose configuration has port 0.
const SERVER_PORT: u16 = 7_777;

/// The port of every client. Clients differ in their IP addresses.
const CLIENT_PORT: u16 = 50_000;

/// The number of rounds at one moment after which the world is considered stuck.
const TURNS_PER_MOMENT: u32 = 100_000;

/// A datagram in a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The source address.
    pub from: SocketAddr,
    /// The destination address.
    pub to: SocketAddr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// Creates a world with one client that begins to connect over perfect links.
///
/// # Panics
/// Never, because the default settings are valid.
#[must_use]
pub fn pair(seed: u64) -> World {
    world(1, seed)
}

/// Creates a world with this number of clients, which begin to connect over perfect links.
///
/// # Panics
/// Panics with more than 65,536 clients, the limit of the default settings.
#[must_use]
pub fn world(clients: usize, seed: u64) -> World {
    let config = server_config();
    assert!(clients <= config.connections as usize, "{clients} clients exceed the connections of the server");
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

/// Returns the settings of the server of [`world`], which accepts all clients.
#[must_use]
pub fn server_config() -> ServerConfig {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, SERVER_PORT));
    ServerConfig::new(address, ServerKey::dev(), Access::Open)
}

/// A server, its clients, and the network between them.
///
/// No time passes between two calls of [`World::advance`]. Do not reorder `clients`, because the index of a client selects its
/// links.
pub struct World<S = Server> {
    /// The server.
    pub server: S,
    /// The clients, in the order in which they joined. Methods of the world take the index of a client.
    pub clients: Vec<Client>,
    network: SharedNetwork,
    config: Arc<ServerConfig>,
    make: MakeServer<S>,
    random: Random,
    start: Moment,
}

/// Counters of the datagrams of a world outside its links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorldCounts {
    /// The number of datagrams that were dropped because the receive queue of their socket was full.
    pub inbox_full: u64,
    /// The number of datagrams that are in receive queues now.
    pub waiting: u64,
    /// The number of datagrams from the server to an address without a client, and datagrams to a server that is down.
    pub unreachable: u64,
    /// The number of datagrams that [`World::inject`] accepted.
    pub injected: u64,
}

/// Counters of the datagrams between the server and one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// The bytes of the datagrams from this address that the server read from its sockets.
    pub received_bytes: u64,
    /// The bytes of the datagrams that the server sent to this address.
    pub sent_bytes: u64,
}

impl<S: WorldServer> World<S> {
    fn create(
        mut config: ServerConfig,
        sockets: Sockets,
        seed: u64,
        mut make: MakeServer<S>,
    ) -> Result<Self, Error> {
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

    /// Adds a client that begins to connect over perfect links. Returns its index in `clients`.
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting.
    pub fn join(&mut self, config: &ClientConfig) -> Result<usize, Error> {
        self.join_with(self.options(), config)
    }

    /// Adds a client that begins to connect with these options, for example with a token of [`World::issue`]. Returns its index
    /// in `clients`.
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting.
    pub fn join_with(
        &mut self,
        options: impl Into<ConnectOptions>,
        config: &ClientConfig,
    ) -> Result<usize, Error> {
        let place = self.clients.len();
        // Clients have consecutive addresses in 10.0.0.0/8.
        let number = u32::try_from(place).unwrap_or(u32::MAX);
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() | (number & 0x00ff_ffff));
        let options = options.into();
        options.check(config.protocol_id)?;
        let port = self.network.lock().join(SocketAddr::from((address, CLIENT_PORT)));
        let port = NetworkPort::new(self.network.clone(), port);
        let mut client = Client::in_memory(config, port, &mut self.random)?;
        client.connect(options)?;
        self.clients.push(client);
        Ok(place)
    }

    /// Returns options with the address and the public key of this server.
    #[must_use]
    pub fn options(&self) -> ConnectOptions {
        ConnectOptions::new(self.server.address(), self.config.key.public())
    }

    /// Issues a token at the current time of this world. Its random parts come from the world's seed.
    ///
    /// # Errors
    /// [`IssueError`] if the request is invalid.
    pub fn issue(&mut self, request: &TokenRequest, key: &TokenKey) -> Result<ConnectToken, IssueError> {
        let [id, nonce] = [self.random.bytes(), self.random.bytes()];
        let random_fields = RandomTokenFields {
            id: std::array::from_fn(|at| id[at]),
            psk: secret(&mut self.random),
            nonce: std::array::from_fn(|at| nonce[at]),
        };
        request.issue_with(key, self.wall(), random_fields)
    }

    /// Returns the time since 1970 by a correct wall clock.
    #[must_use]
    pub fn wall(&self) -> Duration {
        WALL_ORIGIN + Duration::from_nanos(self.network.now().as_nanos())
    }

    /// Configures both links of all present clients. Datagrams in flight are unaffected.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] with the first field that is out of range.
    pub fn set_links(&mut self, config: &LinkConfig) -> Result<(), Error> {
        for client in 0..self.clients.len() {
            self.set_uplink(client, config)?;
            self.set_downlink(client, config)?;
        }
        Ok(())
    }

    /// Configures the link from this client to the server. Datagrams in flight are unaffected.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] with the first field that is out of range.
    ///
    /// # Panics
    /// Panics if there is no such client.
    pub fn set_uplink(&mut self, client: usize, config: &LinkConfig) -> Result<(), Error> {
        Ok(self.network.lock().path(client).up.set_config(config.clone())?)
    }

    /// Configures the link from the server to this client. Datagrams in flight are unaffected.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] with the first field that is out of range.
    ///
    /// # Panics
    /// Panics if there is no such client.
    pub fn set_downlink(&mut self, client: usize, config: &LinkConfig) -> Result<(), Error> {
        Ok(self.network.lock().path(client).down.set_config(config.clone())?)
    }

    /// Configures the clocks of this client from now on.
    ///
    /// # Panics
    /// Panics if there is no such client.
    pub fn set_client_clock(&mut self, client: usize, config: &ClockConfig) {
        assert!(client < self.clients.len(), "there is no client {client}, there are {}", self.clients.len());
        let mut network = self.network.lock();
        let port = network.workers() + client;
        network.set_clock(port, config);
    }

    /// Configures the clocks of all workers of the server from now on.
    pub fn set_server_clock(&mut self, config: &ClockConfig) {
        let mut network = self.network.lock();
        (0..network.workers()).for_each(|worker| network.set_clock(worker, config));
    }

    /// Crashes the server without closing its connections, as `kill -9` does. Datagrams that arrive before a
    /// [restart](World::restart_server) are lost, like all datagrams that the crashed server sends. Queued events can still be
    /// polled.
    pub fn crash_server(&mut self) {
        self.network.lock().set_server_dead(true);
    }

    /// Crashes the server, and replaces it by one with the same settings, including the key and the server id. The new server has
    /// no connections. It may assign peer ids that the old server assigned to other peers.
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
    /// // The client notices the restart with its next packet. An idle client sends a keep-alive every few seconds.
    /// world.advance(Duration::from_secs(10));
    /// let is_reconnecting = |event| matches!(event, Event::Reconnecting { attempt: 1, .. });
    /// world.clients[0].poll(Duration::ZERO);
    /// assert!(world.clients[0].events().any(is_reconnecting));
    /// assert!(world.clients[0].peers().all(|peer| world.clients[0].is_connected(peer)));
    /// # Ok::<(), drumfire::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never, because these settings already created a server.
    pub fn restart_server(&mut self) {
        self.crash_server();
        // The old server closes its connections when it is dropped. The network still discards those packets.
        drop(self.replace_server());
        self.network.lock().set_server_dead(false);
    }

    /// Replaces the server as [`World::restart_server`] does, but without the crash. Returns the old server, which can still
    /// close its connections. Drop it, or [shut it down for a restart](crate::Control::shut_down_for_restart) and poll it.
    ///
    /// # Panics
    /// Never, because these settings already created a server.
    pub fn replace_server(&mut self) -> S {
        let workers = self.network.lock().workers();
        let ports = (0..workers).map(|worker| NetworkPort::new(self.network.clone(), worker)).collect();
        let since = self.wall();
        match (self.make)(&self.config, since, ports, &mut self.random) {
            Ok(server) => std::mem::replace(&mut self.server, server),
            Err(error) => panic!("these settings already created a server: {error}"),
        }
    }

    /// Replaces the address of a client, as a NAT does after it lost a mapping. Datagrams that the server then sends to the old
    /// address are unreachable. Datagrams in flight still arrive.
    ///
    /// # Panics
    /// Panics if there is no such client.
    pub fn rebind(&mut self, client: usize, address: SocketAddr) {
        self.network.lock().rebind(client, address);
    }

    /// Swaps the addresses of two clients, as a NAT that confuses two mappings does. Datagrams in flight keep their source
    /// address, and arrive at the end of the link that they are on.
    ///
    /// # Panics
    /// Panics if there is no such client.
    pub fn swap_addresses(&mut self, one: usize, other: usize) {
        self.network.lock().swap_addresses(one, other);
    }

    /// Returns the present address of this client.
    ///
    /// # Panics
    /// Panics if there is no such client.
    #[must_use]
    pub fn client_address(&self, client: usize) -> SocketAddr {
        self.network.lock().client_address(client)
    }

    /// Returns the counters of the link from this client and of the link to it, each with its number of datagrams in flight.
    ///
    /// # Panics
    /// Panics if there is no such client.
    #[must_use]
    pub fn link_counts(&self, client: usize) -> [(LinkCounts, u64); 2] {
        let mut network = self.network.lock();
        let path = network.path(client);
        [&path.up, &path.down].map(|link| (*link.counts(), link.in_flight_count() as u64))
    }

    /// Puts a datagram into the receive queue of the end at `to` without a link, like an attacker with a forged source address.
    /// Returns whether an end has this address. A full queue, or a server that is down, still discards the datagram.
    pub fn inject(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) -> bool {
        self.network.lock().inject(Datagram { from, to, bytes })
    }

    /// Returns all datagrams that were sent since the last call, as captured at the sender, before any loss. The first call
    /// starts the capture and returns nothing.
    pub fn take_captured(&mut self) -> Vec<Datagram> {
        self.network.lock().take_captured()
    }

    /// Returns the counters of the server for each address so far, in no particular order.
    #[must_use]
    pub fn traffic(&self) -> Vec<(SocketAddr, Traffic)> {
        self.network.lock().traffic().collect()
    }

    /// Returns the counters of datagrams outside the links.
    #[must_use]
    pub fn counts(&self) -> WorldCounts {
        self.network.lock().counts()
    }

    /// Returns a hash over all datagrams sent so far: the time, the sender, and the bytes of each.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.network.lock().trace()
    }

    /// Returns the virtual time since the world was created.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.network.now().since(self.start)
    }

    /// Advances the virtual time by `duration`, from one wake-up to the next, and does all I/O that is due. Messages queued
    /// before this call are sent first, even if they were not flushed.
    ///
    /// # Panics
    ///
    /// Panics if the world does not become idle at some moment, because an endpoint wakes up again and again while no time passes.
    pub fn advance(&mut self, duration: Duration) {
        let end = self.network.now().after(duration);
        self.server.flush_app();
        self.network.lock().wake_all();
        self.run_until_idle();
        loop {
            let next = self.network.lock().next_at().filter(|next| *next <= end);
            let Some(next) = next else { break };
            self.network.lock().set_now(next);
            self.run_until_idle();
        }
        self.network.lock().set_now(end);
    }

    /// Runs the ends that are due at the present moment until no end is due.
    fn run_until_idle(&mut self) {
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
                        // The application removed this client. Without a turn, its port would stay due at this moment.
                        None => _ = self.network.lock().begin_turn(port),
                    },
                }
            }
        }
        panic!("after {:?} the world does not become idle", self.elapsed());
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

/// Returns a reproducible key for tests, which protects nothing.
pub(crate) fn secret(random: &mut Random) -> Secret<32> {
    Secret::new(random.bytes())
}
