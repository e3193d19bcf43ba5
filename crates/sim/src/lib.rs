//! Scenarios from seeds: a server and its clients over bad links in virtual time, first chaos, then calm, and
//! everything that must hold checked after every step.
//!
//! What runs is the worker loop of production behind the types a game uses. Real sockets and threads are not
//! its business, nor are attackers yet.
//!
//! ```
//! let outcome = drumfire_sim::run(7)?;
//! assert_eq!(outcome.trace, drumfire_sim::run(7)?.trace);
//! # Ok::<(), drumfire_sim::Failure>(())
//! ```
#![forbid(unsafe_code)]

mod books;
mod client;
mod dice;
mod flow;
mod run;
mod scenario;

pub use run::{Failure, Outcome, run, run_scenario};
pub use scenario::{Closer, Closing, Plan, Scenario};
