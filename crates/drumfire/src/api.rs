//! The public interfaces: the tick server and clients, handlers, and tasks.
//!
//! They differ in who calls whom. Everything below them is the same.

#[cfg(feature = "tokio")]
pub(crate) mod asynchronous;
pub(crate) mod client;
pub(crate) mod clients;
#[cfg(all(test, feature = "tokio"))]
mod error_texts;
pub(crate) mod handler;
pub(crate) mod server;
