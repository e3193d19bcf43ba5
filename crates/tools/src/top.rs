//! `drumfire top`: a live view of a running server, or of a receiver in this process.
//!
//! [`state::State`] decides what is shown, without a clock, a terminal, or a socket. [`screen::draw`] draws it. [`run`] is the loop that has
//! a terminal and a [`Source`]. It changes a server only when a key asks for it and a second key confirms.

mod lines;
mod screen;
mod source;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use lines::plain;
pub(crate) use screen::{Look, run};
pub(crate) use source::{ControlSocket, Source, once};

/// The interval between two snapshots.
const EVERY: Duration = Duration::from_secs(1);

/// The number of connections that are requested: more than fit on a screen.
const PEERS: usize = 200;
