//! Seeded scenarios in virtual time: a server and its clients over bad links, first chaos and then calm, with every promise checked
//! after every step.
//!
//! The worker loop is the production one, behind the types that a game uses. Clients change their addresses, links fail completely for
//! a while, and attackers invent, copy, repeat, and change datagrams. Puppets take the place of some ends and break the rules. With
//! [`Scenario::with_workers`] the server has several workers, whose sockets, threads, and code fail too. With [`Scenario::of_an_hour`] many clients come and
//! go for an hour. Real sockets and threads are not simulated here.
//!
//! ```
//! # use drumfire_sim::{Scenario, run};
//! let scenario = Scenario::from_seed(7);
//! assert_eq!(run(&scenario)?.trace, run(&scenario)?.trace);
//! # Ok::<(), drumfire_sim::Failure>(())
//! ```
#![forbid(unsafe_code)]

mod attacker;
mod checks;
mod client;
mod hostile;
mod memory;
mod random;
mod run;
mod scenario;
mod stats;
mod traffic;
mod workers;

pub use run::{Failure, Outcome, run};
pub use scenario::{Attack, ClockFault, Closing, GroupPlan, Outage, Plan, Scenario, Side};
pub use stats::Counts;
pub use workers::{WorkerEvent, WorkerFault, WorkerPlan};
