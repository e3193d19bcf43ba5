//! The public interfaces: the tick server and client, handlers, and tasks.
//!
//! They differ in who calls whom. Everything below them is the same.

#[cfg(feature = "tokio")]
pub(crate) mod asynchronous;
pub(crate) mod client;
#[cfg(all(test, feature = "tokio"))]
mod error_texts;
pub(crate) mod handler;
pub(crate) mod server;
