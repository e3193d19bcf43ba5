//! The harness of the benches: the command line, child processes, interleaved rounds, books, traffic, servers, and reports.
//!
//! The harness contains no goals: each bench states its goals next to its figures. Every error is one line that names the cause, for the
//! person who runs the bench.
#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "all errors are described above")]

mod answers;
mod baselines;
mod batch_socket;
mod bench;
mod books;
mod client;
mod client_socket;
mod fanout;
mod flood;
pub mod hellos;
mod host;
pub mod memory;
pub mod nbio;
pub mod numbered;
mod plain;
mod process;
mod recorder;
mod results;
pub mod roles;
mod rounds;
pub mod steps;
mod task_client;
mod tasks;
pub mod traffic;

pub use answers::{Answers, Served};
pub use baselines::{CLoop, OpenAlone, SENDER, send, start_sender};
pub use batch_socket::PER_SOCKET;
pub use bench::{Bench, Part, Program, Role, part};
pub use books::{close, close_books, count, counts_of};
pub use client_socket::{ClientSettings, ClientSocket, close_server};
pub use fanout::{CONNECTIONS_ENDED, close_fanout};
pub use flood::{FLOOD_MEMORY_BYTES, FLOOD_PER_SECOND, Flood};
pub use host::{Cores, DropWatch, Usage, UsageWatch, WindowUsage, report_of, resident_bytes};
pub use plain::{PLAIN, PLAIN_BYTES_MAX, Pace, PlainDatagrams, Reply, bind_mio, plain, serve_plain};
pub use process::{
    Child, Counts, InputLines, ROLE_FLAG, arguments, counts_from, named_counts, output_of, print_json,
    print_line,
};
pub use recorder::{EchoCounts, Recorder, Window};
pub use results::{ArmTable, Goal, Results};
pub use roles::{RECEIVE_BUFFER_BYTES, settle};
pub use rounds::{
    Arm, Extent, Measured, Outcome, Pick, Plan, Spread, Values, busy_note, cell, core_percent, interleave,
    interleave_all, measure_work, median_cell, micros, pin_to_last_core, ratio_note,
};
pub use task_client::{Delivery, TaskClient};
pub use tasks::{FIRST_RECEIVED, receive_first};
pub use traffic::EchoRound;
