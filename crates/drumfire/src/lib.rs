//! UDP networking for game servers: encrypted connections, reliable and unreliable messages, and any number of receiver threads on
//! one port.
//!
//! A [`Server`] and a [`Client`] have the same methods, for a loop that runs 30 to 128 times per second. `poll` receives, `next_event`
//! returns each event, `send` queues messages, and `flush` sends them.
//!
//! ```
//! use std::time::Duration;
//!
//! use drumfire::{Access, ChannelId, Client, ClientConfig, Event, Message, Server, ServerConfig, ServerKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
//! let mut server = Server::bind(config)?;
//! let mut client = Client::new(ClientConfig::default())?;
//! let peer = client.connect((server.local_addr(), ServerKey::dev().public()))?;
//! client.send(peer, Message::reliable_ordered(ChannelId(0), "hello"))?;
//!
//! let mut answer = None;
//! while answer.is_none() {
//!     server.poll(Duration::ZERO);
//!     while let Some(event) = server.next_event() {
//!         if let Event::Message { peer, channel, payload } = event {
//!             server.send(peer, Message::reliable_ordered(channel, payload))?;
//!         }
//!     }
//!     server.flush();
//!     client.poll(Duration::from_millis(1));
//!     while let Some(event) = client.next_event() {
//!         match event {
//!             Event::Message { payload, .. } => answer = Some(payload),
//!             Event::ConnectFailed { error, .. } => return Err(error.into()),
//!             _ => {}
//!         }
//!     }
//! }
//! assert_eq!(answer.as_deref(), Some(&b"hello"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! [The guide](guide) begins with this example as two programs, and continues with delivery modes, tokens, deployment, and tuning.
//!
//! For production, replace the development key with a [`ServerKey`] of your own. Admit players by [token](tokens), which gives their
//! clients the [public key](ServerKey::public) of the server.
//!
//! # Three interfaces
//!
//! - Tick: [`Server`] and [`Client`] as above, for a game loop.
//! - Handler: [`handler::Server`] calls a [`Handler`] of the game on the thread that received the message, for the lowest latency.
#![cfg_attr(
    feature = "tokio",
    doc = "- Async: [`asynchronous::Server`] and [`asynchronous::Client`], for tasks of any executor (feature `tokio`)."
)]
#![cfg_attr(not(feature = "tokio"), doc = "- Async: for tasks of any executor (feature `tokio`).")]
//!
//! # Guarantees
//!
//! - The events of a peer come in the order in which they happened: `Connected` first, and `Disconnected` last and exactly once. There
//!   is no order between peers of different workers.
//! - [`Server::send`] returns `Full` immediately if the peer does not keep up, also if another worker has its connection.
//! - The [`PeerId`] of a connection that has ended never names another peer.
//! - No reliable message is lost between a worker and the application. If the application does not poll, workers stop acknowledging the
//!   packets of peers, and [`event_queue_full`](stats::WorkerStats::event_queue_full) increases.
//! - The number of threads can change while clients play: [`Control::set_threads`] moves sockets with all their connections, no
//!   client reconnects, and no packet is forwarded.
//! - A server with [`Workers::Inline`] and a [`Client`] have no threads: `poll` and `flush` do the I/O.
//!
//! # Delivery modes
//!
//! Every message has a mode, and a connection can carry messages of all modes:
//!
//! | mode | guarantee | use |
//! | --- | --- | --- |
//! | [`Unreliable`](Mode::Unreliable) | at most once, any order | effects, voice |
//! | [`UnreliableSequenced`](Mode::UnreliableSequenced) | at most once, never an older one after a newer | snapshots |
//! | [`ReliableUnordered`](Mode::ReliableUnordered) | exactly once, any order | hits, pick-ups |
//! | [`ReliableOrdered`](Mode::ReliableOrdered) | exactly once, in order; channels do not block each other | chat, inputs |
//! | [`ReliableSequenced`](Mode::ReliableSequenced) | the newest always arrives, older ones may be skipped | one state |
//! | [`ReliableLatest`](Mode::ReliableLatest) | the newest of each key always arrives | the state of many things |
//!
//! ```
//! # use std::time::Duration;
//! # use drumfire::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
//! # let mut server = Server::bind(config.workers(Workers::Inline))?;
//! # let mut client = Client::new(ClientConfig::default())?;
//! # let peer = client.connect((server.local_addr(), ServerKey::dev().public()))?;
//! // The next packet repeats the input, so a lost packet costs no round trip.
//! let inputs = ChannelOptions::default().redundancy(Redundancy::One);
//! client.set_channel_options(peer, ChannelId(1), inputs);
//! client.send(peer, Message::reliable_ordered(ChannelId(1), "forward").priority(Priority::Urgent))?;
//!
//! // The message is given up after a quarter of a second. One event reports its outcome.
//! let bang = Message::reliable_unordered(ChannelId(2), "bang").lifetime(Duration::from_millis(250));
//! let shot = client.send_with_receipt(peer, bang)?;
//! let outcome = loop {
//!     # server.poll(Duration::from_millis(1));
//!     # server.events().count();
//!     client.poll(Duration::from_millis(1));
//!     let receipts = client.events().filter_map(|event| match event {
//!         Event::Receipt { receipt, outcome, .. } if receipt == shot => Some(outcome),
//!         _ => None,
//!     });
//!     if let Some(outcome) = receipts.last() {
//!         break outcome;
//!     }
//! };
//! assert_eq!(outcome, Outcome::Acknowledged);
//! # Ok(())
//! # }
//! ```
//!
//! Messages that are longer than a packet are fragmented. An unreliable message has up to 16 KiB, and a reliable one up to 64 KiB, or the
//! `message_max_bytes` of both peers. A value of a [`ReliableLatest`](Mode::ReliableLatest) key has up to 1 KiB. For longer data, see
//! [`transfer`].
//!
//! A [`Channel`] carries values of one type instead of bytes.
//!
//! # Backpressure
//!
//! A congestion controller measures how much a path can carry: [`Congestion::Delay`](config::Congestion::Delay), unless the
//! configuration selects another one. Messages beyond that wait in the memory of the connection. When it is full, `send` returns
//! [`SendError::Full`], or [`ChannelOptions::when_full`] drops the oldest message, the newest one, or the connection. After `Full`,
//! [`Event::Writable`] reports when there is room again. A slow receiver blocks its own sender; other peers are unaffected.
//! `request_stats` reports how long messages wait, so that a game can send less in time.
//!
//! ```
//! # use std::time::Duration;
//! # use drumfire::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
//! # let mut server = Server::bind(config.workers(Workers::Inline))?;
//! # let mut client = Client::new(ClientConfig::default())?;
//! # let peer = client.connect((server.local_addr(), ServerKey::dev().public()))?;
//! // Late voice is useless, so a new message replaces the oldest one if there is no room.
//! let voice = ChannelOptions::default().when_full(WhenFull::DropOldest);
//! client.set_channel_options(peer, ChannelId(5), voice);
//! for _ in 0..1_000 {
//!     client.send(peer, Message::unreliable(ChannelId(5), vec![0; 300]))?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Restarts
//!
//! A server that restarts with the same key and id sends a Reset for the first packet of each client that it does not know. So clients
//! learn of the restart within a round trip of their next packet; an idle client sends one every 7.5 s by default. A client with
//! [`ClientConfig::reconnect`] then connects again by itself, as it does after a timeout or when the server is full: see [`Reconnect`]. By
//! default it does not, and [`Client::resume_token`] returns a token for the next connection.
//!
//! - Receipts of messages in flight come first, as `Lost`. [`Event::Reconnecting`] comes in place of `Disconnected`, and
//!   `Connected` comes again, with the same [`PeerId`]. `Disconnected` is the last event, when the client gives up. No message is
//!   carried over. An async [`Connection`](asynchronous::Connection) stays the same handle.
//! - While there is no connection, `send` returns [`SendError::NotConnected`]. On every `Connected` event, send the messages that the
//!   server needs first. The [hello](ConnectOptions::hello) is sent by itself.
//! - At the server, the new connection is another peer with the same player. A new session of a player replaces the old one.
//! - A server accepts each token once, and forgets used tokens when it restarts. A restarted server refuses connect tokens that were
//!   issued before its start, and accepts resume tokens of up to ten minutes once more.
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use drumfire::{ChannelId, ClientConfig, Event, Message, Outcome, Reconnect, testing};
//!
//! let mut world = testing::World::new(testing::server_config(), 1)?;
//! let config = ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(60)));
//! world.join(&config)?;
//! world.advance(Duration::from_secs(1));
//!
//! world.restart_server();
//! let peer = world.clients[0].peers().next().ok_or("the connection is over")?;
//! world.clients[0].send_with_receipt(peer, Message::reliable_ordered(ChannelId(0), "hello?"))?;
//! world.advance(Duration::from_secs(1));
//!
//! world.clients[0].poll(Duration::ZERO);
//! let events: Vec<Event> = world.clients[0].events().collect();
//! assert!(matches!(
//!     events[..],
//!     [
//!         Event::Connected { .. },
//!         Event::FlightRecord { .. },
//!         Event::Receipt { outcome: Outcome::Lost, .. },
//!         Event::Reconnecting { attempt: 1, .. },
//!         Event::Connected { .. },
//!     ]
//! ));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```
//!
//! # Admission
//!
//! [`Access`] selects whether clients need a token. The [`admission`] settings limit the connections of the server and of one source, keep
//! new clients away from a busy worker, and call the [hook](ServerConfig::accept) of the game. [`Control::ban`] rejects players and
//! addresses for a time, and [`Control::close_gate`] rejects all new clients. A rejected client receives [`ConnectError::Refused`] after two
//! round trips and a second, with the reason, and with the time or the server for the next attempt. A refused token is reported without
//! the second. A rejection costs the server a datagram for each Hello.
//!
//! # Observability
//!
//! - [`Control::stats`] returns all counters. Each received datagram is in exactly one of them.
//! - Feature `metrics`: the same counters, once per second and worker, for the recorder that the program installs; see
//!   [`describe_metrics`](stats::describe_metrics).
//! - Feature `tracing`: connections, refusals, and caught panics, under the target `drumfire`. A worker writes at most one line per
//!   cause in ten seconds, with the number of omitted lines, so a log cannot be filled from outside. For clients, `worker` is -1.
//! - [`Event::FlightRecord`]: the last events of a connection that broke, as text or as qlog.
//! - [`Server::control`] shows an operator the worst connections, closes them, and bans peers. The crate
//!   [`drumfire-control`](https://docs.rs/drumfire-control) makes it available through a local socket.
//!
//! # Platforms
//!
//! drumfire is tested on Linux. It has not been run on macOS and Windows yet.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admission;
mod api;
mod base;
pub mod conditioner;
pub mod config;
mod credentials;
mod engine;
#[cfg(any(doc, doctest))]
pub mod guide;
mod message;
mod observe;
#[cfg(feature = "testing")]
pub mod testing;
#[doc(hidden)]
pub mod worker;

pub use api::client::Client;
pub use api::handler::Handler;
pub use api::handler::context::Context;
pub use api::server::Server;
pub use base::error::Error;
pub use config::client::{ClientConfig, Reconnect};
pub use config::connect::ConnectOptions;
pub use config::server::{Access, ServerConfig};
pub use config::threads::Workers;
pub use credentials::connect_token::ConnectToken;
pub use credentials::keys::{ServerKey, ServerPublicKey};
pub use credentials::tokens;
pub use engine::control::Control;
pub use message::event::{Closed, Event, PeerInfo, ReconnectReason};
pub use message::group::{Audience, GroupId};
pub use message::transfer;
pub use message::typed::Channel;

pub use bytes::Bytes;
pub use drumfire_proto::{
    ChannelId, ChannelOptions, CloseReason, ConnectError, Message, Mode, Moment, Outcome, PeerId, PeerStats,
    PlayerId, Priority, ReceiptId, Redundancy, SendError, SendOptions, WhenFull,
};

/// Servers and clients for tasks of any async executor.
#[cfg(feature = "tokio")]
pub mod asynchronous {
    pub use crate::api::asynchronous::client::Client;
    pub use crate::api::asynchronous::connection::Connection;
    pub use crate::api::asynchronous::receipt::Receipt;
    pub use crate::api::asynchronous::server::Server;
}

/// Servers and clients whose workers call a [`Handler`].
pub mod handler {
    pub use crate::api::handler::client::Client;
    pub use crate::api::handler::remote::Remote;
    pub use crate::api::handler::server::Server;
}

/// The results of [`Control`].
pub mod control {
    pub use crate::base::sync::Pending;
    pub use crate::observe::survey::{PeerSample, Survey, SurveyOrder, WorkerSample};
    pub use crate::worker::shutdown::Undelivered;
}

/// The parts of errors: why a server refused a client, how a peer broke the protocol, and what is wrong with a text.
pub mod error {
    pub use drumfire_proto::{AckError, CloseCode, PeerIdTextError, ProtocolError, Refusal, RefuseReason};

    pub use crate::credentials::key_text::KeyTextError;
}

/// Statistics of servers, workers, and connections.
pub mod stats {
    pub use drumfire_proto::{ClockOffset, DropReason, FlightEntry, FlightEvent, FlightRecord, FrameKinds};
    pub use drumfire_socket::SocketGrants;

    pub use crate::observe::metrics::describe_metrics;
    pub use crate::observe::stats::{Stats, WorkerStats};
}

/// The codecs and errors of [`Channel`].
pub mod typed {
    pub use crate::message::typed::postcard::Postcard;
    #[cfg(feature = "postcard")]
    pub use crate::message::typed::postcard::codec::PostcardError;
    pub use crate::message::typed::{ChannelError, Codec};
}
