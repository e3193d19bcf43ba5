//! The receiver: N threads on one UDP port, each draining a socket of its own, and the books of their datagrams.
//!
//! [`BoundReceiver::open`] binds the sockets and starts the threads. [`BoundReceiver::serve`] serves one sender. Printing is left to the
//! caller: the command line or a bench.

mod deliver_stage;
mod group;
mod open_stage;
mod outcome;
mod plan;
mod promise;
pub(crate) mod service;
mod session;
mod stages;
mod state;

pub use outcome::Outcome;
pub use plan::Plan;
pub use session::BoundReceiver;
pub(crate) use state::ReceiverSource;
