//! The harness of the benches: the command line, child processes, interleaved rounds, books, traffic, servers, and reports.
//!
//! The harness contains no goals: each bench states its goals next to its figures. Every error is one line that names the cause, for the
//! person who runs the bench.
#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "all errors are described above")]

mod baselines;
mod batch_socket;
mod bench;
mod books;
mod client;
mod client_pool;
mod fanout;
mod flood;
pub mod hellos;
mod host;
pub mod memory;
pub mod nbio;
pub mod numbered;
mod plain;
mod process;
mod results;
pub mod roles;
mod rounds;
pub mod steps;
mod tally;
mod tasks;
pub mod traffic;

pub use baselines::{CLoop, OpenAlone, SENDER, send, split_mix, start_sender};
pub use batch_socket::{BatchSocket, PER_SOCKET, PlainDatagrams};
pub use bench::{Bench, Part, Program, Role, part};
pub use books::{close, close_books, count, counts_of};
pub use client_pool::{ClientPool, ClientSettings, RAMP_PER_SECOND, SocketCounters, close_server};
pub use fanout::close_fanout;
pub use flood::{Flood, FloodConfig};
pub use host::{
    Cores, DropWatch, Usage, UsageWatch, WindowUsage, WindowWatch, raise_open_files, report_of,
    resident_bytes,
};
pub use plain::{PLAIN, PLAIN_BYTES_MAX, Pace, Reply, bind_mio, plain, serve_plain};
pub use process::{
    Child, Counts, InputLines, ROLE_FLAG, Target, UNPINNED, arguments, counts_from, named_counts, print_json,
    print_line,
};
pub use results::{ArmTable, Goal, Results};
pub use roles::{RECEIVE_BUFFER_BYTES, settle};
pub use rounds::{
    Arm, BUSY, Extent, Measured, Outcome, Pick, Plan, Rounds, Spread, Values, busy_note, cell, interleave,
    interleave_all, interleave_work, median_cell, micros, ratio_note,
};
pub use tally::{EchoCounts, Tally, Window};
pub use tasks::{FirstTask, HEARD, take_from_stalled};
pub use traffic::EchoRound;
