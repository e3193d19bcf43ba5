//! Simulated links: loss, delay, duplicates, reordering, and corruption, at the sockets of servers and clients, or alone as
//! [`Link`].
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
//! - A socket that is closed sends its last datagrams without their delay, at most 1,024 of them. A client that replaces its socket loses
//!   the datagrams in flight, in both directions.
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

pub use drumfire_socket::conditioner::{Delay, Link, LinkConfig, LinkCounts, Loss, Random, Rate};
