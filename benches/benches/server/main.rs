//! The server under different loads: `cargo bench --bench server`.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `crowded` | CPU per message with 100,000 connections over that with 1,000, at the same total rate |
//! | `idle` | memory and CPU for silent connections; sections `few` (2,000) and `many` (100,000, not with `--quick`) |
//! | `neighbours` | latency and loss of 200 players next to a misbehaving client; sections `stalled` and `abuser` |
//! | `faces` | messages per CPU second with a handler, a polled server with and without threads, tasks, and a thread hop; sections `steady` and `full` |
//!
//! `--only NAME` runs one part or section. `--judge` makes a missed goal a failure. The bench `peers_scale` measures a server at its limit
//! of connections.
//!
//! The server is a process on one core. All clients are on one thread of this process, on another core.
#![forbid(unsafe_code)]

mod crowded;
mod faces;
mod idle;
mod neighbours;
mod round;

use std::process::ExitCode;

use drumfire_benches::{PLAIN, Program, part, plain, roles};

fn main() -> ExitCode {
    let parts = [
        part("crowded", crowded::run),
        part("idle", idle::run).with_sections(&["few", "many"]),
        part("neighbours", neighbours::run).with_sections(&["stalled", "abuser"]),
        part("faces", faces::run).with_sections(&["steady", "full"]),
    ];
    let program =
        Program { roles: &[(roles::ECHO, roles::echo), (PLAIN, plain)], ..Program::new("server", &parts) };
    program.main()
}
