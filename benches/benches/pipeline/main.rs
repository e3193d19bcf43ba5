//! The protocol in memory, without sockets: `cargo bench --bench pipeline`.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `pipeline` | the receiving side of a server per packet, and own code as the difference to an open alone |
//! | `acks` | the cost of an ack by its ranges and by the packets in flight |
//! | `reassembly` | the cost of a message of 64 KiB by the order of its fragments |
//!
//! Criterion measures each case. Then rounds of all cases are interleaved, and the figures come from these rounds. One thread does all
//! work, pinned to a core. The work of the other end is not timed.
#![forbid(unsafe_code)]

mod acks;
mod packets;
mod reassembly;

use std::process::ExitCode;
use std::time::Duration;

use criterion::Criterion;
use drumfire_benches::{Bench, Extent, Program, Rounds, Work, interleave_work, part, pin};

fn main() -> ExitCode {
    let program = Program {
        name: "pipeline",
        parts: &[
            part("pipeline", packets::measure),
            part("acks", acks::measure),
            part("reassembly", reassembly::measure),
        ],
        roles: &[],
        numbers: &[],
        prepare: |bench| bench.results.pinned_as("the one thread to the last core"),
    };
    program.main()
}

/// Returns Criterion with this measurement time per case, or with the least that it accepts in a smoke run.
fn criterion(bench: &Bench, time: Duration) -> Criterion {
    // The arguments are those of the harness, so Criterion does not read them.
    let criterion = Criterion::default().without_plots();
    match bench.extent() {
        Extent::Quick => {
            let millisecond = Duration::from_millis(1);
            criterion.sample_size(10).warm_up_time(millisecond).measurement_time(millisecond)
        }
        Extent::Default | Extent::Full => {
            criterion.sample_size(20).warm_up_time(time / 2).measurement_time(time)
        }
    }
}

/// Interleaves rounds on this thread, pinned: one in a smoke run, else nine.
fn rounds<T>(bench: &Bench, arms: Vec<Work<'_, T>>) -> Result<Vec<Rounds<T>>, String> {
    pin();
    interleave_work(arms, 1, bench.extent().pick(1, 9, 9), bench.extent() != Extent::Quick)
}
