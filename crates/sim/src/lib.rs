//! Scenarios from seeds: a server and its clients over bad links in virtual time, first chaos, then calm, and
//! everything that must hold checked after every step.
//!
//! What runs is the worker loop of production behind the types a game uses. Clients change their addresses, links fail
//! altogether for a while, and attackers on the path and off it invent, copy, repeat and change datagrams. Puppets take the place of
//! some ends and break the rules. With [`run_swarm`] the server has several workers, whose sockets, threads and code fail too; with
//! [`run_hour`] many clients come and go for an hour. Real sockets and threads are not its business.
//!
//! ```
//! let outcome = drumfire_sim::run(7)?;
//! assert_eq!(outcome.trace, drumfire_sim::run(7)?.trace);
//! # Ok::<(), drumfire_sim::Failure>(())
//! ```
#![forbid(unsafe_code)]

mod attacker;
mod books;
mod client;
mod dice;
mod door;
mod flow;
mod guests;
mod hostile;
mod ledger;
mod memory;
mod message;
mod run;
mod scenario;
mod swarm;
mod toll;

pub use run::{Failure, Outcome, run, run_hour, run_scenario, run_swarm};
pub use scenario::{Attack, Closing, GroupPlan, Hole, Plan, Scenario, Side, WrongClock};
pub use swarm::{Covered, Mishap, Swarm, What};
pub use toll::{LinkFaults, Toll};
