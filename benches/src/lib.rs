//! What the benches share: runs of receiver and sender, interleaved rounds, medians, tables and reports.
//!
//! Nothing here judges a figure; a bench states its goal beside what it measured.
#![forbid(unsafe_code)]

mod c_loop;
mod ending;
mod figures;
mod flags;
pub mod group;
pub mod hellos;
pub mod pair;
mod rounds;
mod run;
mod timed;

pub use c_loop::CLoop;
pub use ending::{criterion_extent, ending, run_bench};
pub use figures::{Figure, Goal, Results};
pub use flags::{Extent, Options, parse};
pub use rounds::{Arm, BUSY, Measured, Spread, busy_note, interleave};
pub use run::{Recipe, run, run_with};
pub use timed::{Rounds, Work, interleave_work, pin};
