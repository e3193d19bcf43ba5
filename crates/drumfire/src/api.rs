//! The public interfaces: the tick server and clients, handlers, tasks, and the local control socket.
//!
//! They differ in who calls whom. Everything below them is the same.

#[cfg(feature = "tokio")]
pub(crate) mod asynchronous;
pub(crate) mod client;
pub(crate) mod clients;
#[cfg(feature = "control")]
pub mod control;
#[cfg(all(test, feature = "tokio"))]
mod error_texts;
pub(crate) mod handler;
pub(crate) mod server;
