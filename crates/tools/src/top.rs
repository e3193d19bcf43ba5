//! `drumfire top`: a live view of a running server, over its local control socket.
//!
//! [`State`] decides what is shown, without a clock, a terminal, or a socket. [`draw`] draws it, and [`run`] is the loop that has
//! those three. It changes a server only when a key asks for it and a second key confirms.

mod figures;
mod lines;
mod link;
mod screen;
mod state;
#[cfg(test)]
mod tests;

pub use lines::plain;
pub use link::once;
pub use screen::{Look, draw, run};
pub use state::{Effect, Event, Key, State, ViewMode};

use std::time::Duration;

/// How often the view is renewed.
pub const EVERY: Duration = Duration::from_secs(1);

/// The number of connections that are requested: more than fit on a screen.
pub const PEERS: usize = 200;
