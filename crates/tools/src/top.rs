//! `drumfire top`: a live view of a running server, over its local control socket.
//!
//! What is shown is decided by [`State`], a machine without a clock, a terminal or a socket, and drawn by [`draw`]; the loop that
//! has those three is [`run`]. It changes nothing of a server but what a key asks for and a second one confirms.

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
pub use state::{Effect, Event, Key, Mode, State};

use std::time::Duration;

/// How often the view is renewed.
pub const EVERY: Duration = Duration::from_secs(1);

/// Connections that are asked for: more than any screen shows at once.
pub const PEERS: usize = 200;
