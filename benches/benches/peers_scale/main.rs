//! Thousands of peers on one server, after a report on ENet's scalability: `cargo bench --bench peers_scale`.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `idle` | servers with room for 64 to 65,536 connections, at 100 and 1,000 ticks per second, without clients |
//! | `ladder` | 500 to 16,000 clients in batches of 500, over as many plain datagrams of the same length; then a batch without room |
//! | `join` | newcomers in batches of 500, each announced to all clients |
//! | `fair` | latency and throughput of the others while one peer floods |
//! | `workers` | CPU per message with two workers over one worker |
//! | `profile` | the share of kernel and ciphers in the CPU time of the server |
//!
//! Each client sends ten messages of 32 B per second, on four channels of which one is reliable, and each message has an answer.
//! `--only NAME` runs one part. `--judge` makes a missed goal a failure.
//!
//! Servers are processes on one core, and all clients are on one thread of this process on another core. Other libraries are measured
//! by `benches/peers`. A part fails, and shows no figure, when a connection ended or when its books do not close.
#![forbid(unsafe_code)]

mod fair;
mod join;
mod ladder;
mod matrix;
mod profile;
mod workers;
mod world;

use std::process::ExitCode;

use drumfire_benches::{PLAIN, Program, part, plain, roles};

fn main() -> ExitCode {
    let parts = [
        part("idle", matrix::run),
        part("ladder", ladder::run),
        part("join", join::run),
        part("fair", fair::run),
        part("workers", workers::run),
        part("profile", profile::run),
    ];
    let program = Program {
        roles: &[(roles::ECHO, roles::echo), (PLAIN, plain), (join::ANNOUNCER, join::announce)],
        ..Program::new("peers_scale", &parts)
    };
    program.main()
}
