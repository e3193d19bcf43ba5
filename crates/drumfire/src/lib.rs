//! UDP networking for game servers: encrypted connections, reliable and unreliable messages, as many receiver
//! threads on one port as the machine gives.
//!
//! A [`Server`] and a [`Client`] have the same methods, for a loop that runs 30 to 128 times per second: `poll` receives,
//! `next_event` returns each event, `send` queues messages, and `flush` sends them.
//!
//! ```
//! use std::time::Duration;
//!
//! use drumfire::{Access, ChannelId, Client, Event, Message, Server, ServerConfig, ServerKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
//! let mut server = Server::bind(config)?;
//! let mut client = Client::connect_dev(server.local_addr())?;
//! client.send(Message::reliable_ordered(ChannelId(0), "hello"))?;
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
//! [The guide](guide) begins with this as two programs, and goes on to delivery modes, tokens, deploying and tuning.
//!
//! For production take a [`ServerKey`] of your own instead of the development key, and let players in by
//! [token](tokens), which tells their clients the [public half](ServerKey::public).
//!
//! # Three ways
//!
//! - Tick: [`Server`] and [`Client`] as above, for a game loop.
//! - Handler: [`handler::Server`] calls a [`Handler`] of the game on the thread that received the message, for the lowest latency.
#![cfg_attr(
    feature = "tokio",
    doc = "- Async: [`asynchronous::Server`] and [`asynchronous::Client`], for tasks of any executor (feature `tokio`)."
)]
#![cfg_attr(not(feature = "tokio"), doc = "- Async: for tasks of any executor (feature `tokio`).")]
//!
//! # What is promised
//!
//! - Per peer, events come in the order in which they happened: `Connected` first, `Disconnected` last and
//!   exactly once. Between peers of different workers no order is promised.
//! - [`Server::send`] answers `Full` at once when a peer does not keep up, also when it lives on another worker.
//! - A [`PeerId`] whose connection is over names nobody, and never another peer.
//! - Nothing reliable is lost between a worker and the application: when the application does not poll, peers
//!   are not acknowledged, and [`events_held`](stats::WorkerStats::events_held) counts.
//! - The number of threads can change while clients play: [`Control::set_threads`] moves sockets with all their connections, no
//!   client reconnects, and no packet is forwarded.
//! - With [`Workers::Inline`], and in a [`Client`], there is no thread: `poll` and `flush` do the I/O.
//!
//! # How messages are delivered
//!
//! Every message is sent with a mode, and modes mix freely on a connection:
//!
//! | mode | promise | made for |
//! | --- | --- | --- |
//! | [`Unreliable`](Mode::Unreliable) | at most once, any order | effects, voice |
//! | [`UnreliableSequenced`](Mode::UnreliableSequenced) | at most once, never an older one after a newer | snapshots |
//! | [`ReliableUnordered`](Mode::ReliableUnordered) | exactly once, any order | hits, pick-ups |
//! | [`ReliableOrdered`](Mode::ReliableOrdered) | exactly once, in order; one channel never holds up another | chat, inputs |
//! | [`ReliableSequenced`](Mode::ReliableSequenced) | the newest always arrives, older ones may be left out | one state |
//! | [`ReliableLatest`](Mode::ReliableLatest) | of every key the newest always arrives | the state of many things |
//!
//! ```
//! # use std::time::Duration;
//! # use drumfire::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
//! # let mut server = Server::bind(config.workers(Workers::Inline))?;
//! # let mut client = Client::connect_dev(server.local_addr())?;
//! // A lost input is there with the next packet, and not a round trip later.
//! let inputs = ChannelOptions::default().redundancy(Redundancy::One);
//! client.set_channel_options(ChannelId(1), inputs);
//! client.send(Message::reliable_ordered(ChannelId(1), "forward").priority(Priority::Urgent))?;
//!
//! // The message is given up after a quarter of a second. One event reports its outcome.
//! let bang = Message::reliable_unordered(ChannelId(2), "bang").lifetime(Duration::from_millis(250));
//! let shot = client.send_with_receipt(bang)?;
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
//! Messages longer than a packet travel in pieces: unreliable ones of up to 16 KiB, reliable ones of up to 64 KiB, or as much
//! as [`ServerConfig::message_max_bytes`] says at both ends; values of keys fit a packet. For more there is [`transfer`].
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
//! # let mut client = Client::connect_dev(server.local_addr())?;
//! // Voice is of no use late: what does not fit takes the place of the oldest.
//! let voice = ChannelOptions::default().when_full(WhenFull::DropOldest);
//! client.set_channel_options(ChannelId(5), voice);
//! for _ in 0..1_000 {
//!     client.send(Message::unreliable(ChannelId(5), vec![0; 300]))?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # When the server is restarted
//!
//! A server that begins anew with the key and the id it had answers the first packet of each client that it does not know any
//! more, so that all learn of the restart within a round trip of their next packet; one that says nothing else says every 7.5 s
//! that it is there. A client with [`ClientConfig::reconnect`] then comes back by itself, as it does when nothing is heard for
//! long or the server is full: [`Reconnect`] tells from which ends, how, and how often. By default it does not, and
//! [`Client::resume_token`] is what to come back with.
//!
//! - Receipts of messages in flight come first, as `Lost`. [`Event::Reconnecting`] comes in place of `Disconnected`, and
//!   `Connected` comes again. `Disconnected` is the last event, when the client gives up. No message is carried over.
//! - While there is no connection, `send` returns [`SendError::NotConnected`] and takes nothing. Send on every `Connected` event
//!   what the server has to know first, such as a login.
//! - The server sees another peer, of the same player. Who comes back while the old session is there replaces it.
//! - A server with tokens takes a resume token once in its life. Which tokens were used, a restarted server does not
//!   know any more: connect tokens from before it began it refuses, resume tokens of up to ten minutes it takes once more.
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
//! world.clients[0].send_with_receipt(Message::reliable_ordered(ChannelId(0), "hello?"))?;
//! world.advance(Duration::from_secs(1));
//!
//! world.clients[0].poll(Duration::ZERO);
//! let heard: Vec<Event> = world.clients[0].events().collect();
//! assert!(matches!(
//!     heard[..],
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
//! # Who is let in
//!
//! [`Access`] decides whether clients need a token. The [`admission`] settings limit the connections of the server and of one
//! source, keep new clients away from a busy worker, and call the game's own [hook](ServerConfig::accept). [`Control::ban`] rejects
//! players and addresses for a time, and [`Control::close_gate`] rejects all new clients. A rejected client receives
//! [`ConnectError::Refused`] within two round trips, with the reason and when or where to try again. It costs the server one
//! datagram.
//!
//! # What it shows of itself
//!
//! - [`Control::stats`] counts everything, and every datagram under one name.
//! - Feature `metrics`: the same numbers once a second and worker, for the recorder that the program installs; see
//!   [`describe_metrics`](stats::describe_metrics).
//! - Feature `tracing`: connections that come and go, refusals and caught panics, under the target `drumfire`. Of one cause a
//!   worker says at most one line in ten seconds, with how many were left out: nobody fills a log from outside. For clients
//!   `worker` is -1.
//! - [`Event::FlightRecord`]: what happened last to a connection that broke, as text or as qlog.
//! - [`Server::control`] shows an operator the worst connections, closes them, and bans peers. The crate
//!   [`drumfire-control`](https://docs.rs/drumfire-control) makes it available through a local socket.
//!
//! # Platforms
//!
//! Linux is run and tested; macOS and Windows were not run yet.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admission;
mod api;
mod base;
#[cfg(feature = "conditioner")]
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

pub use api::client::{Client, ClientState};
pub use api::clients::Clients;
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
    pub use crate::api::asynchronous::client::{Client, Clients};
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

    pub use crate::observe::grants::SocketGrants;
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
