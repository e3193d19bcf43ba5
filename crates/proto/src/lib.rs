//! The sans-IO core of drumfire: datagrams and time in, datagrams and events out.
//!
//! The core owns no socket, reads no clock, starts no thread, and draws all random numbers from its seed: the same
//! seed and the same inputs give the same bytes. A shell around it (a worker thread, a simulator, or a program with
//! another transport than UDP) feeds an [`Endpoint`] and sends what it returns.
//!
//! ```text
//! handle_datagrams ─┐                                 ┌─> poll_transmit   datagrams
//! handle_forwarded ─┤  parse ─> open ─> deliver       ├─> poll_forward    datagrams for another shard
//! handle_timeout   ─┤      connections, timers        ├─> poll_event      what happened
//! connect/send/close┘                                 └─> poll_timeout    when to come back
//! ```
//!
//! A datagram that is not authenticated and invalid is dropped and counted under a [`DropReason`]. An authenticated peer
//! that violates the protocol loses its connection with a [`CloseReason`]. A mistake of the caller is an error of the
//! function.
//!
//! # Example
//!
//! Two ends, with a network that is a variable:
//!
//! ```
//! use drumfire_proto::*;
//!
//! let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
//! let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
//! let server = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
//! let client_at: std::net::SocketAddr = "192.0.2.1:1".parse()?;
//! let server_at: std::net::SocketAddr = "192.0.2.2:2".parse()?;
//! // Seeds come from the system in a real program.
//! let mut server = Endpoint::server(Config::default(), server, SingleWorker::default(), Secret::new([4; 32]))?;
//! let mut client = Endpoint::client(Config::default(), ClientConfig::default(), Secret::new([5; 32]))?;
//!
//! let now = Now::default();
//! let peer = client.connect(now, server_at, &identity, None)?;
//! client.send(now, peer, Message::reliable_ordered(ChannelId(0), "hello"))?;
//! let mut memory = [0; 1200];
//! for _ in 0..3 {
//!     while let Some(sent) = client.poll_transmit(now, &mut memory) {
//!         server.handle_datagrams(now, [Inbound { from: client_at.into(), bytes: &mut memory[..sent.bytes] }]);
//!     }
//!     while let Some(sent) = server.poll_transmit(now, &mut memory) {
//!         client.handle_datagrams(now, [Inbound { from: server_at.into(), bytes: &mut memory[..sent.bytes] }]);
//!     }
//! }
//! assert!(matches!(server.poll_event(), Some(Event::Connected { .. })));
//! assert!(matches!(server.poll_event(), Some(Event::Message { payload: b"hello", .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod access;
mod acks;
mod channel;
mod config;
mod congestion;
mod connection;
mod control;
mod convert;
mod datagram;
mod endpoint;
mod epoch;
mod error;
mod event;
mod handshake;
mod hash_index;
mod identity;
mod ids;
mod limiter;
pub mod limits;
mod loss;
mod memory_budget;
mod meter;
mod mtu;
mod path;
mod peer_id;
mod peer_stats;
mod placement;
mod recorder;
mod resets;
mod route;
mod rtt;
mod session;
mod slab;
mod stats;
#[cfg(feature = "serde")]
mod text;
mod time;
mod timers;
mod used_tokens;
mod visits;

pub use access::{Access, TokenAccess};
pub use channel::block::{BlockOptions, MessageBlock};
pub use channel::message::{Message, SendOptions};
pub use channel::receipt::{Outcome, ReceiptId};
pub use channel::{ChannelOptions, IfFull, Mode, Priority, Redundancy, WhenFull, notify_below_bytes};
pub use config::{ClientConfig, Config, Cookie, ServerConfig, ServerIdentity};
pub use congestion::Congestion;
pub use datagram::{Forwarded, Inbound, Transmit};
pub use endpoint::live::LiveConfig;
pub use endpoint::{ConnectRequest, Endpoint};
pub use error::{CloseError, CloseReason, ConfigError, ConnectError, ProtocolError, SendError};
pub use event::{Event, EventBatch, MessageRun};
pub use ids::Shard;
pub use loss::AckError;
pub use meter::ClockOffset;
pub use peer_id::{PeerId, PeerIdTextError};
pub use peer_stats::{PeerStats, PeerSummary};
pub use placement::{
    Claim, ConfirmDecision, HelloHash, Placement, PlacementDecision, PlacementKey, Rejection,
    ReplacedConnection, SingleWorker,
};
pub use recorder::{FlightEntry, FlightEvent, FlightRecord};
pub use route::{LocalAddress, Route};
pub use stats::{DropReason, Stats};
pub use time::{Moment, Now};
pub use used_tokens::{ClaimError, TokenClaim, UsedTokens};

#[doc(hidden)]
pub use drumfire_crypto::{
    IssuedToken, PlayerId, Secret, ServerKeyPair, Token, TokenError, TokenId, TokenKey, TokenKind,
    TokenMasterKey,
};
pub use drumfire_wire::{ChannelId, Close, CloseCode, FrameKinds, Refusal, RefuseReason, SteeringSecret};
