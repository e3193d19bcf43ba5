//! drumfire in Bevy: a server and a client as resources, and what they hear as Bevy's messages.
//!
//! A game adds [`DrumfireServerPlugin`], [`DrumfireClientPlugin`] or both, and inserts the resource [`DrumfireServer`] or
//! [`DrumfireClient`] when it wants to be one: at the start, or when the player presses a button. Removing the resource closes the
//! connections. Without it the systems do nothing.
//!
//! ```
//! use bevy_app::prelude::*;
//! use bevy_drumfire::drumfire::{Access, ChannelId, Event, SendOptions, ServerConfig, ServerKey, Workers};
//! use bevy_drumfire::{DrumfireServer, DrumfireServerPlugin, ServerHeard, ToPeer};
//! use bevy_ecs::prelude::*;
//!
//! fn answer(mut heard: MessageReader<ServerHeard>, mut answers: MessageWriter<ToPeer>) {
//!     for ServerHeard(event) in heard.read() {
//!         if let Event::Message { peer, channel, bytes } = event {
//!             answers.write(ToPeer::new(*peer, *channel, bytes.clone(), SendOptions::reliable_ordered()));
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
//! let server = DrumfireServer::bind(config.workers(Workers::Inline))?;
//! let mut app = App::new();
//! app.add_plugins(DrumfireServerPlugin).insert_resource(server).add_systems(Update, answer);
//! app.update();
//! # Ok(())
//! # }
//! ```
//!
//! # When things happen in a frame
//!
//! | schedule | set | what |
//! | --- | --- | --- |
//! | `PreUpdate` | [`DrumfireSystems::Receive`] | the resource is polled; [`ServerHeard`] and [`ClientHeard`] are written |
//! | `Update`, fixed ones too | | the game reads those and writes [`ToPeer`] and [`ToServer`], or calls the resource itself |
//! | `PostUpdate` | [`DrumfireSystems::Send`] | what was written is handed to the resource, which is flushed |
//!
//! So what a system of `Update` writes leaves in the same frame. A system that must come before or after says so:
//! `.before(DrumfireSystems::Send)`. Bevy keeps messages for two frames: read them every frame, as a game reads its input.
//!
//! What a peer did comes in the order in which it happened, `Connected` first and `Disconnected` last. That is why there is one
//! type of message for all of it, and not one for each kind: between two types Bevy keeps no order.
//!
//! With several threads Bevy runs systems that write messages side by side, while those that take the resource wait for each other:
//! write [`ToPeer`] and [`ToServer`] where many systems send. What could not be sent comes back as [`ToPeerFailed`] and
//! [`ToServerFailed`], in the next frame at the latest.
//!
//! # Threads
//!
//! A client has no thread of its own: the frame does its I/O. So has a server with `Workers::Inline`; with others its threads
//! receive between frames too. Frames should come ten times per second at least, also while the game loads.
//!
//! Not here: what is replicated, predicted or rolled back. That is for crates above this one.
#![forbid(unsafe_code)]

mod client;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod server;
mod side;

use bevy_ecs::prelude::SystemSet;

pub use client::{ClientHeard, DrumfireClient, DrumfireClientPlugin, ToServer, ToServerFailed};
pub use drumfire;
pub use server::{DrumfireServer, DrumfireServerPlugin, ServerHeard, ToPeer, ToPeerFailed};

/// When the systems of this crate run.
#[derive(SystemSet, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrumfireSystems {
    /// In `PreUpdate`: what arrived is read, and told.
    Receive,
    /// In `PostUpdate`: what the frame wrote is sent.
    Send,
}
