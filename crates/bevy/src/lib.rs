//! drumfire in Bevy: the server and the client are resources, and their events are Bevy messages.
//!
//! A game adds [`DrumfireServerPlugin`], [`DrumfireClientPlugin`], or both. It inserts the resource [`DrumfireServer`]
//! or [`DrumfireClient`] to start, and removes the resource to close the connections. Without the resource, the systems
//! do nothing.
//!
//! ```
//! use bevy_app::prelude::*;
//! use bevy_drumfire::drumfire::{Access, Event, Message, ServerConfig, ServerKey, Workers};
//! use bevy_drumfire::{DrumfireServer, DrumfireServerEvent, DrumfireServerPlugin, ToPeer};
//! use bevy_ecs::prelude::*;
//!
//! fn echo(mut events: MessageReader<DrumfireServerEvent>, mut messages: MessageWriter<ToPeer>) {
//!     for DrumfireServerEvent(event) in events.read() {
//!         if let Event::Message { peer, channel, payload } = event {
//!             messages.write(ToPeer { peer: *peer, message: Message::reliable_ordered(*channel, payload.clone()) });
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
//! let server = DrumfireServer::bind(config.workers(Workers::Inline))?;
//! let mut app = App::new();
//! app.add_plugins(DrumfireServerPlugin).insert_resource(server).add_systems(Update, echo);
//! app.update();
//! # Ok(())
//! # }
//! ```
//!
//! # A frame
//!
//! | schedule | set | what happens |
//! | --- | --- | --- |
//! | `PreUpdate` | [`DrumfireSystems::Receive`] | polls the resource, and writes [`DrumfireServerEvent`] and [`DrumfireClientEvent`] |
//! | `Update`, or a fixed schedule | | the game reads the events, and writes [`ToPeer`] and [`ToServer`] or calls the resource |
//! | `PostUpdate` | [`DrumfireSystems::Send`] | sends the written messages and flushes the resource |
//!
//! Messages that a system writes in `Update` are sent in the same frame. To order a system relative to this crate, use
//! the sets: `.before(DrumfireSystems::Send)`. Bevy keeps messages for two frames, so read them in every frame.
//!
//! All events of a peer have one message type, from `Connected` to `Disconnected`, because Bevy keeps no order between
//! different types.
//!
//! A system that writes [`ToPeer`] or [`ToServer`] can run in parallel with a system that takes the resource. Bevy runs
//! systems that write the same message type one after another. Messages that could not be sent come back as
//! [`ToPeerFailed`] and [`ToServerFailed`], at the latest in the next frame.
//!
//! # Threads
//!
//! A client has no threads: the frame does its I/O. The same holds for a server with `Workers::Inline`. Otherwise the
//! threads of the server also receive between frames. Run at least ten frames per second, also while the game loads.
//!
//! Replication, prediction, and rollback are not part of this crate.
#![forbid(unsafe_code)]

mod client;
mod resource;
mod server;

use bevy_ecs::prelude::SystemSet;

pub use client::{DrumfireClient, DrumfireClientEvent, DrumfireClientPlugin, ToServer, ToServerFailed};
pub use drumfire;
pub use server::{DrumfireServer, DrumfireServerEvent, DrumfireServerPlugin, ToPeer, ToPeerFailed};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// The system sets of this crate.
#[derive(SystemSet, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrumfireSystems {
    /// Runs in `PreUpdate`: receives datagrams and writes events.
    Receive,
    /// Runs in `PostUpdate`: sends the messages of the frame.
    Send,
}
