//! The server under different loads: `cargo bench --bench server`.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `echo` | a server at its limit of connections, each with ten messages per second there and back, and one more client |
//! | `join` | as many clients that connect one after the other, each announced to all others |
//! | `crowded` | CPU per message with 100,000 connections over that with 1,000, at the same total rate |
//! | `idle` | memory and CPU for silent connections; sections `few` (2,000) and `many` (100,000, not with `--quick`) |
//! | `threads` | the message rate while the number of worker threads changes |
//! | `neighbours` | latency and loss of 200 players next to a misbehaving client; sections `stalled`, `abuser`, and `spender` |
//! | `faces` | messages per CPU second with a handler, a polled server, and a thread hop; sections `steady` and `full` |
//!
//! `--only NAME` runs one part or section. `--clients N` changes the number of clients of `echo`, `join`, and `idle`; `--workers N`
//! that of the server's workers. `--rate N` is the number of packets per second of the abuser and the spender. `--seconds N` runs one
//! round of this length for each arm of `neighbours`. `--judge` makes a missed goal a failure.
//!
//! The server is a process on one core. All clients are on one thread of this process, on another core. In `threads` nothing is pinned.
#![forbid(unsafe_code)]

mod at_limit;
mod crowded;
mod faces;
mod idle;
mod neighbours;
mod round;
mod threads;

use std::process::ExitCode;

use drumfire_benches::{Bench, Child, Crowd, Goal, Program, Ramped, Results, Spread, Usage, part, roles};

/// The address and the key of a server.
type Target = (std::net::SocketAddr, drumfire::ServerPublicKey);

/// Connections begun per second and worker. A server accepts 2,000.
const RAMP_PER_SECOND: u64 = 1_600;

fn main() -> ExitCode {
    let program = Program {
        name: "server",
        parts: &[
            part("echo", at_limit::echo),
            part("join", at_limit::join),
            part("crowded", crowded::run),
            part("idle", idle::run).with_sections(&["few", "many"]),
            part("threads", threads::run),
            part("neighbours", neighbours::run).with_sections(&["stalled", "abuser", "spender"]),
            part("faces", faces::run).with_sections(&["steady", "full"]),
        ],
        roles: &[
            (roles::ECHO, roles::echo),
            (roles::ANNOUNCE, roles::announce),
            (idle::PLAIN, idle::plain),
            (neighbours::server::ASYNC, neighbours::server::serve),
            (threads::SHARDS, threads::serve),
        ],
        numbers: &["--clients", "--workers", "--rate", "--seconds"],
        prepare: |_| {},
    };
    program.main()
}

/// Returns the number of workers and the server's core. With one worker, this thread is pinned to the core of the load. Several
/// workers and their load need all cores.
fn workers_and_core(bench: &mut Bench) -> Result<(u32, Option<usize>), String> {
    let workers = bench.number("--workers").unwrap_or(1);
    let core = if workers == 1 { Some(bench.pin_load()?.server) } else { None };
    Ok((workers, core))
}

/// Starts an echo server that the application polls, and connects this number of clients.
fn start_and_connect(
    (workers, core): (u32, Option<usize>),
    clients: u32,
    crowd: &mut Crowd,
) -> Result<(Child, Target, Ramped), String> {
    let server = roles::start_echo(roles::Interface::Poll, workers, clients, core)?;
    let to = (server.address()?, roles::key().public());
    let ramped = crowd.connect(to, clients.into(), RAMP_PER_SECOND * u64::from(workers), |_, _| {})?;
    Ok((server, to, ramped))
}

/// Prints a ramp and adds its figures.
fn show_ramp(ramped: &Ramped, results: &mut Results, part: &str) {
    println!("connected {ramped}");
    let (failed, seconds) = (ramped.failed_count() as f64, ramped.took.as_secs_f64());
    results.figure(format!("{part}: connects that failed"), Some(failed), "", Goal::AtMost(0.0), "");
    results.figure(format!("{part}: until all were connected"), Some(seconds), "s", Goal::Shown, "");
}

/// Adds the median share of a core that this process used.
fn show_own_usage(used: impl IntoIterator<Item = Usage>, results: &mut Results, part: &str, note: &str) {
    let share = Spread::of(used.into_iter().map(|used| used.core_share() * 100.0));
    results.figure(
        format!("{part}: clients"),
        share.map(|share| share.median),
        "% of a core",
        Goal::Shown,
        note,
    );
}
