//! The async face: servers, clients and their connections for tasks of any executor.
//!
//! The I/O is done by threads of ours, as with the other faces; a task waits for them, and never for a socket. Of tokio this uses
//! `sync` alone, so no runtime has to be there. Nothing here reads a clock: timeouts are the executor's.

mod admission;
mod attempts;
mod client;
mod connection;
mod desk;
mod face;
mod host;
mod inbox;
mod incoming;
#[cfg(all(test, any(loom, shuttle)))]
mod interleavings;
mod live;
mod lobby;
mod senders;
mod server;
mod shared;
#[cfg(test)]
mod tests;

pub use client::{AsyncClient, AsyncClients, DialError};
pub use connection::Connection;
pub use incoming::{Closed, Incoming, Receipt};
pub use server::AsyncServer;
