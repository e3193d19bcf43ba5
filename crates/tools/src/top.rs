//! `drumfire top`: a live view of a running server, or of a receiver in this process.
//!
//! [`State`] decides what is shown, without a clock, a terminal, or a socket. [`draw`] draws it. [`run`] is the loop that has a
//! terminal and a [`Source`]. It changes a server only when a key asks for it and a second key confirms.

mod lines;
mod screen;
mod source;
mod state;
#[cfg(test)]
mod tests;

pub use lines::plain;
pub use screen::{Look, draw, run};
pub use source::{ControlSocket, Source, once};
pub use state::{Effect, Event, Key, State, ViewMode};

use std::time::Duration;

/// The interval between two snapshots.
pub const EVERY: Duration = Duration::from_secs(1);

/// The number of connections that are requested: more than fit on a screen.
pub const PEERS: usize = 200;
