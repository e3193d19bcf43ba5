//! The harness of the benches: the command line, child processes, interleaved rounds, books, traffic, servers, and reports.
//!
//! No goal is here. A bench states its goals next to its figures.
#![forbid(unsafe_code)]

mod bench;
mod books;
mod c_loop;
pub mod chance;
mod cipher;
mod client;
mod crowd;
mod fanout;
pub mod group;
mod guests;
pub mod hellos;
mod host;
pub mod nbio;
pub mod numbered;
pub mod pair;
pub mod paired;
mod plain;
mod players;
mod process;
mod results;
pub mod roles;
mod rounds;
mod run;
mod tally;
pub mod traffic;
mod valgrind;
mod wire;

pub use bench::{
    Bench, Extent, Options, Part, Program, Role, criterion_extent, ending, parse, part, run_bench,
    take_number,
};
pub use books::{ReceiptBooks, close_books, close_way_back, count, counts_of, counts_text, missing};
pub use c_loop::CLoop;
pub use cipher::OpenAlone;
pub use crowd::{Carried, Crowd, Ramped};
pub use fanout::{Fanout, RateSum, close_fanout};
pub use guests::{Flood, FloodConfig, Spender};
pub use host::{
    Cores, DropWatch, Memory, StealWatch, Usage, UsageWatch, memory, pin_to, print_machine, resident_kib,
    usage_of,
};
pub use plain::{PLAIN_BYTES_MAX, Pace, asked_bytes, serve_plain};
pub use players::{Joining, Players};
pub use process::{
    Child, Counts, named_counts, on_end_of_input, orders, print_counts, print_line, stop_flag,
};
pub use results::{Column, Goal, Results, column, print_table};
pub use roles::{EchoHandler, EchoTally, RECEIVE_BUFFER_BYTES, settle};
pub use rounds::{
    Arm, BUSY, Measured, Pick, Plan, Rounds, Spread, Values, Work, busy_note, cell, interleave,
    interleave_all, interleave_work, median_cell, micros, pin, ratio_note,
};
pub use run::{Recipe, run, run_with};
pub use tally::{EchoCounts, GIVEN_UP_NS, OUTSTANDING, Outstanding, SATURATED, Tally, Window, WindowUsage};
pub use valgrind::{instructions, valgrind_version};
pub use wire::{PER_SOCKET, PlainDatagrams};
