//! The real `receiver`, `sender`, and `drumfire` on the loopback: their output, their exit codes, and that their books close.
//!
//! Rates are low and runs short, because these are debug builds. No figure is judged here. Every wait has a deadline, and no
//! program outlives its test.

mod client;
mod process;
mod report;
mod sealed;

mod bad_input;
mod foreign;
mod keys;
mod matrix;
mod messages;
mod outputs;
mod overflow;
#[cfg(feature = "top")]
mod terminal;
#[cfg(feature = "top")]
mod top;
mod two_processes;
