//! Thousands of peers on one server, after a report on ENet's scalability: `cargo bench --bench peers_scale`.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `idle` | servers with room for 64 to 65,536 connections, at 100 and 1,000 ticks per second, without clients |
//! | `ladder` | 500 to 16,000 clients in batches of 500, over as many plain datagrams of the same length; then a batch without room |
//!
//! Each client sends ten messages of 32 B per second, on four channels of which one is reliable, and each message has an answer.
//! `--only NAME` runs one part. `--judge` makes a missed goal a failure.
//!
//! Servers are processes on one core, and all clients are on one thread of this process on another core. Other libraries are measured
//! by `benches/peers`, and the harm that one peer can do to the others by the part `neighbours` of `server`. A part fails, and shows no
//! figure, when a connection ended or when its books do not close.
#![forbid(unsafe_code)]

mod ladder;
mod matrix;
mod population;

use std::process::ExitCode;

use drumfire_benches::{PLAIN, Program, part, plain, roles};

fn main() -> ExitCode {
    let parts = [part("idle", matrix::run), part("ladder", ladder::run)];
    let program = Program {
        roles: &[(roles::ECHO, roles::echo), (PLAIN, plain)],
        ..Program::new("peers_scale", &parts)
    };
    program.main()
}
