//! The cost of many channels for a server with a thousand ticks per second: `cargo bench --bench channels`.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `ticks` | time per tick by peers and channels created |
//! | `updates` | share of a core for 300 players with 64 channels each and losses |
//! | `soak` | growth of memory over hours of virtual time, or `--soak HOURS` of them |
//!
//! All parts have virtual time and datagrams in memory, with real endpoints at both ends. One client holds all connections, and only the
//! server's share of each tick is timed: receiving acks, timers, sending, and sealing (AES-128-GCM). System calls are not part of it.
//! Memory that grows in `soak` fails the bench.
//!
//! Tests of the core show that a tick visits no channel without messages, that drained channels hold no memory
//! (`used_channels_hold_no_memory_when_idle`), and that the newest values arrive soon after losses
//! (`after_a_burst_of_loss_the_newest_values_arrive_soon`).
#![forbid(unsafe_code)]

mod soak;
mod ticks;
mod world;

use std::process::ExitCode;

use drumfire_benches::{Program, part};

fn main() -> ExitCode {
    let parts = [part("ticks", ticks::measure), part("updates", ticks::updates), part("soak", soak::measure)];
    let program = Program {
        number: Some("soak"),
        prepare: |bench| bench.results.seeded(&format!("{} for losses", world::SEED)),
        ..Program::new("channels", &parts)
    };
    program.main()
}
