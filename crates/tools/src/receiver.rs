//! The receiver: N threads on one UDP port, each draining a socket of its own, and the books of their datagrams.
//!
//! [`BoundReceiver::open`] binds the sockets and starts the threads. [`BoundReceiver::serve`] serves one sender. Printing is left to the
//! caller: the command line or a bench.

pub(crate) mod deliver_stage;
mod group;
mod hop;
pub(crate) mod open_stage;
mod outcome;
mod promise;
mod session;
mod stages;
mod watch;

pub use outcome::Outcome;
pub use session::{BoundReceiver, Plan, ServeError, StartError};
pub use watch::{Observer, ReceiverSource, Second};
