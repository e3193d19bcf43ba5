//! The real `receiver` and `sender` on the loopback: what they print, how they end, and that their books close
//! whatever happens to them.
//!
//! Rates are low and runs short, for these are debug builds; no figure is judged here. Every wait has a
//! deadline, and no program outlives its test.

mod client;
mod process;
mod report;
mod sealed;
#[cfg(feature = "top")]
mod terminal;

mod bad_input;
mod combinations;
mod endings;
mod keys;
mod messages;
mod metrics;
mod outputs;
mod overflow;
mod strangers;
#[cfg(feature = "top")]
mod top;
#[cfg(feature = "top")]
mod top_live;
#[cfg(not(feature = "top"))]
mod top_missing;
mod two_processes;
