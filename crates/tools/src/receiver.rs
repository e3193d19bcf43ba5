//! The receiver: N threads on one UDP port, each draining a socket of its own, and the books of what came.
//!
//! [`Station::open`] binds and starts the threads, [`Station::serve`] takes one sender through a run. The
//! command line and the benches use the same two calls; printing is theirs.

mod board;
mod crew;
mod delivery;
mod engine;
mod hop;
mod ids;
mod kernel_drops;
mod ledger;
mod limit;
pub(crate) mod opening;
mod outcome;
mod panel;
pub(crate) mod pipeline;
mod plan;
mod promise;
mod serve;
mod stage;
mod watch;
mod worker;

pub use crew::StartError;
pub use outcome::{CallCounts, Outcome};
pub use panel::Panel;
pub use plan::Plan;
pub use serve::{ServeError, Station};
pub use watch::{Second, ThreadState, Watch};
