//! The receiver: N threads on one UDP port, each draining a socket of its own, and the books of what came.
//!
//! [`BoundReceiver::open`] binds the sockets and starts the threads. [`BoundReceiver::serve`] serves one sender. Printing is left to the
//! caller: the command line or a bench.

mod book;
mod control_source;
mod delivery;
mod engine;
mod group;
mod hop;
mod ids;
mod kernel_drops;
mod limit;
pub(crate) mod open_stage;
mod outcome;
pub(crate) mod pipeline;
mod plain_stage;
mod plan;
mod promise;
mod samples;
mod serve;
mod state;
mod worker;

pub use control_source::ControlSource;
pub use outcome::{CallCounts, Outcome};
pub use plan::{Plan, StartError};
pub use samples::{Observer, Second, ThreadState};
pub use serve::{BoundReceiver, ServeError};
