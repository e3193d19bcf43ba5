//! The async interface: servers, clients, and their connections for tasks of any executor.
//!
//! Threads of drumfire do the I/O, as with the other interfaces. A task waits for these threads, and never for a socket. The module uses
//! only `tokio::sync`, so it needs no tokio runtime. It reads no clock, so timeouts are a matter of the executor.

mod accept_queue;
mod attempts;
pub(crate) mod client;
mod client_thread;
pub(crate) mod connection;
mod driver;
mod inbox;
#[cfg(all(test, any(loom, shuttle)))]
mod interleavings;
pub(crate) mod receipt;
mod senders;
pub(crate) mod server;
mod shared;
mod sink;
mod task_queues;
#[cfg(test)]
mod tests;
