//! The receiver, the sender, and the `drumfire` command: threads that receive, threads that send, the control connection between
//! them, and the books and reports of a run.
//!
//! The benches use the same parts. A game server does not need this crate; `drumfire-socket` has the sockets.
#![forbid(unsafe_code)]

pub mod choices;
pub mod cli;
pub mod clock;
pub mod control;
pub mod datagram;
pub mod error;
pub mod flows;
pub mod host;
mod limits;
mod metrics;
mod plot;
pub mod program;
pub mod receiver;
pub mod report;
pub mod sender;
pub mod table;
#[cfg(feature = "top")]
mod top;
#[cfg(not(feature = "top"))]
#[path = "top_missing.rs"]
mod top;
mod values;
