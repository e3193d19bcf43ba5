//! The public interfaces: the tick server and client, handlers, and tasks.
//!
//! They differ in who calls whom. Everything below them is the same.

#[cfg(feature = "tokio")]
pub(crate) mod asynchronous;
pub(crate) mod client;
pub(crate) mod handler;
pub(crate) mod server;
#[cfg(all(test, feature = "tokio"))]
mod tests;
