//! What the benches share: runs of receiver and sender, interleaved rounds, medians, tables and reports.
//!
//! Nothing here judges a figure; a bench states its goal beside what it measured.
#![forbid(unsafe_code)]

mod announce;
mod by_time;
mod c_loop;
pub mod chance;
mod child;
mod cipher;
mod cores;
mod crowd;
pub mod drive;
mod echoes;
mod echoing;
mod ending;
mod fanout;
mod figures;
mod flags;
pub mod group;
mod guest;
pub mod hellos;
mod ledger;
mod load;
pub mod nbio;
pub mod numbered;
mod out;
pub mod pair;
pub mod paired;
mod plain;
mod played;
mod players;
mod rounds;
mod run;
mod served;
mod setup;
mod spender;
mod system;
mod timed;
mod turns;
mod valgrind;
mod watched;
mod wire;

pub use announce::{Announcer, Ears, announcements};
pub use by_time::ByTime;
pub use c_loop::CLoop;
pub use child::{Child, Counts, at_end_of_input, over_at_end_of_input, say, say_counts};
pub use cipher::OpenAlone;
pub use cores::{Cores, pin_to};
pub use crowd::{Carried, Crowd, Ramped};
pub use echoes::{OUTSTANDING, Tally, Told, Window};
pub use echoing::{EchoHandler, EchoTally};
pub use ending::{criterion_extent, ending, run_bench};
pub use fanout::{Fanout, close_fanout};
pub use figures::{Goal, Results};
pub use flags::{Extent, Options, parse, take_number};
pub use guest::{Guest, Manner};
pub use ledger::Ledger;
pub use load::{Drive, Load};
pub use out::{GIVEN_UP_NS, Out};
pub use plain::{PLAIN_BYTES_MAX, Pace, asked_bytes, serve_plain};
pub use played::{Played, play};
pub use players::{Joining, Players};
pub use rounds::{
    Arm, BUSY, Measured, Pick, Spread, busy_note, cell, interleave, median_cell, micros, ratio_note,
};
pub use run::{Recipe, run, run_with};
pub use served::{
    RECEIVE_BUFFER_BYTES, close_books, close_way_back, count, counts_of, counts_text, missing, open_server,
    settle,
};
pub use spender::Spender;
pub use system::{DropWatch, Memory, StealWatch, Used, Watch, memory, print_machine};
pub use timed::{Rounds, Work, interleave_work, pin};
pub use turns::{Schedule, Turns};
pub use valgrind::{instructions, valgrind_version};
pub use watched::{SATURATED, Watched, resident_kib};
pub use wire::{PER_SOCKET, PlainDatagrams};
