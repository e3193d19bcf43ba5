//! Simulated links. A [`Link`] is one direction of a network path: it loses, delays, duplicates, reorders, and corrupts datagrams, and
//! counts what it did.
//!
//! It has no socket and reads no clock. The caller passes datagrams and times, and takes out datagrams and the time of the next one. The
//! same seed, configuration, and inputs give the same outputs.
//!
//! ```
//! use drumfire::conditioner::{Link, LinkConfig, Loss, Moment};
//!
//! let mut link = Link::new(LinkConfig::default().loss(Loss::Even(0.25)), 7)?;
//! let (from, to) = ("192.0.2.1:1".parse()?, "192.0.2.2:2".parse()?);
//! for _ in 0..1_000 {
//!     link.push(Moment::ORIGIN, from, to, b"input");
//! }
//! while link.poll(Moment::ORIGIN).is_some() {}
//! let counts = link.counts();
//! assert_eq!(counts.pushed, counts.delivered + counts.lost);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Real sockets
//!
//! [`ServerConfig::conditioner`](crate::ServerConfig::conditioner) and
//! [`ClientConfig::conditioner`](crate::ClientConfig::conditioner) put two links between a worker and its socket, one for each
//! direction. A game can then be played on a bad network. `set_conditioner` of the client or of
//! [`Control`](crate::Control::set_conditioner) changes them while the game runs.
//!
//! ```
//! use std::time::Duration;
//!
//! use drumfire::conditioner::LinkConfig;
//! use drumfire::{Client, ClientConfig, ConnectOptions, Event, Reconnect};
//!
//! # use drumfire::{Access, Server, ServerConfig, ServerKey, Workers};
//! # struct Game { is_running: bool }
//! # impl Game {
//! #     fn is_running(&self) -> bool { self.is_running }
//! #     fn show(&self, text: String) { println!("{text}"); }
//! #     fn handle(&mut self, event: Event) { self.is_running = !matches!(event, Event::Connected { .. }); }
//! # }
//! # let mut game = Game { is_running: true };
//! # let key = ServerKey::dev();
//! # let (public, config) = (key.public(), ServerConfig::new("127.0.0.1:0".parse()?, key, Access::Open));
//! # let mut remote = Server::bind(config.workers(Workers::Count(1)))?;
//! # let (address, key) = (remote.local_addr(), public);
//! let config = ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(60)));
//! let mut client = Client::new(config.conditioner(LinkConfig::bad_wifi()))?;
//! // The server sees the name in `Connected`, also after each reconnect.
//! client.connect(ConnectOptions::new(address, key).hello("zed"))?;
//! while game.is_running() {
//!     client.poll(Duration::from_millis(16));
//!     while let Some(event) = client.next_event() {
//!         match event {
//!             Event::Reconnecting { reason, attempt, .. } => game.show(format!("attempt {attempt}: {reason}")),
//!             Event::ConnectFailed { error, .. } => return Err(error.into()),
//!             Event::Disconnected { closed, .. } => return Err(closed.into()),
//!             event => game.handle(event),
//!         }
//!     }
//! }
//! // A perfect link again:
//! client.set_conditioner(&LinkConfig::default())?;
//! # let mut names = Vec::new();
//! # while names.is_empty() {
//! #     client.poll(Duration::from_millis(1));
//! #     client.events().for_each(drop);
//! #     remote.poll(Duration::from_millis(1));
//! #     names.extend(remote.events().filter_map(|event| match event {
//! #         Event::Connected { info, .. } => Some(info.hello),
//! #         _ => None,
//! #     }));
//! # }
//! # assert_eq!(names, ["zed"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - All connections of a socket share its links. A [`Rate`] is the rate of the socket, and not of each peer. A server has two links for
//!   each worker.
//! - The delay of an inbound datagram begins when the worker reads it. The wait of a worker ends when a datagram is due, with the
//!   precision of the system's wait: datagrams arrive up to about a millisecond late. A client or inline server moves its datagrams
//!   only while it is polled.
//! - The seeds come from the system, so each run is different. For runs that can be repeated, use [`testing`](crate::testing).
//! - A socket that ends sends its last datagrams without their delay, at most 1,024 of them. A client that replaces its socket loses the
//!   datagrams in flight, in both directions.
//! - A link takes memory for each datagram in flight, up to [`LinkConfig::memory_bytes`] for each direction.
//!
//! [`WorkerStats`](crate::stats::WorkerStats) counts at both ends of the links: the protocol counts at its end, and the socket at the
//! other end. A datagram that the outbound link drops was sent by the protocol, and not by the socket. A datagram that the inbound link
//! drops was received by the socket, and not by the protocol. The counters of the links explain the difference:
//!
//! | counter | equals |
//! | --- | --- |
//! | `outbound_link.pushed` | `protocol.datagrams_sent` |
//! | `outbound_link.delivered` | `sent.datagrams`, and the datagrams that the system refused |
//! | `inbound_link.pushed` | `received.datagrams` |
//! | `inbound_link.delivered` and `forwarded_in` | `protocol.datagrams_received` |

mod config;
mod pipe;
mod presets;
mod random;

use std::net::SocketAddr;

pub use config::{Delay, LinkConfig, LinkConfigError, Loss, Rate};
pub use drumfire_proto::Moment;
pub use pipe::LinkCounts;
pub(crate) use pipe::Pipe;
pub use random::Random;

/// One direction of a simulated path.
#[derive(Debug)]
pub struct Link {
    pipe: Pipe<(SocketAddr, SocketAddr)>,
    source: Option<SocketAddr>,
}

/// A datagram that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The source address, which [`Link::rebind`] can replace.
    pub from: SocketAddr,
    /// The destination address.
    pub to: SocketAddr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

impl Link {
    /// Makes an empty link.
    ///
    /// # Errors
    ///
    /// The first field of the configuration that is out of range.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, LinkConfigError> {
        Ok(Self { pipe: Pipe::new(config, seed)?, source: None })
    }

    /// Replaces the configuration for datagrams that are sent from now on.
    ///
    /// # Errors
    ///
    /// The first field that is out of range. The link keeps its configuration.
    pub fn set_config(&mut self, config: LinkConfig) -> Result<(), LinkConfigError> {
        self.pipe.set_config(config)
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &LinkConfig {
        self.pipe.config()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counts(&self) -> &LinkCounts {
        self.pipe.counts()
    }

    /// Returns the number of datagrams in flight.
    #[must_use]
    pub fn flying_count(&self) -> usize {
        self.pipe.flying_count()
    }

    /// Replaces the source address of datagrams that are sent from now on, as a NAT does after it lost a mapping. `None` restores the
    /// real address. Datagrams in flight keep their address.
    pub fn rebind(&mut self, source: Option<SocketAddr>) {
        self.source = source;
    }

    /// Sends a datagram.
    pub fn push(&mut self, now: Moment, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        self.pipe.push(now, (self.source.unwrap_or(from), to), datagram);
    }

    /// Takes out the next datagram that has arrived by now.
    pub fn poll(&mut self, now: Moment) -> Option<Datagram> {
        self.pipe.poll(now).map(|((from, to), bytes)| Datagram { from, to, bytes })
    }

    /// Returns when the next datagram arrives, or `None` if none is in flight.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        self.pipe.next_at()
    }
}

#[cfg(test)]
mod tests;
