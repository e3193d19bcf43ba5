//! Thousands of peers on one server: `cargo bench --bench peers_scale`.
//!
//! `idle`: what room for 64 to 65,536 connections costs a server that looks 100 or 1,000 times a second while nobody is there,
//! and what clients cost that say nothing. `ladder`: clients who come in batches of 500 while the others play, each with one
//! message of 32 B ten times a second on four channels and 64, 256 or 1,024 B back, a quarter of it reliable; beside plain
//! datagrams, as long on average and answered by a receiver that gathers as long, in turns with it; then a batch for which there
//! is no room, which must be told so. `join`: each newcomer is announced to all. `fair`: one peer floods, in real time and in virtual time. `workers`: two workers
//! beside one. `profile`: where the server's time goes. Other libraries are not run here: what ENet takes of the same machine is the bench `peers`' business, and this one
//! prints the floor below both.
//!
//! Servers run in processes of their own on one core, the load in this one on another. Latency counts from when a message was to
//! leave. CPU is user and system time of the server's process over the window in which messages are counted. The bench fails
//! when a client was dropped, a message is nowhere, the server refused one, or the books do not close, and shows no figure of that
//! part then. `--quick` is a smoke run; `--clients N` lets the ladder end with so many.
#![forbid(unsafe_code)]

mod books;
mod drive;
mod ends;
mod fair;
mod join;
mod ladder;
mod matrix;
mod message;
mod profile;
mod round;
mod server;
mod show;
mod turns;
mod workers;

use std::ffi::OsString;
use std::process::ExitCode;

use drumfire_benches::{Cores, Extent, Options, Results, ending, print_machine, run_bench, take_number};
use drumfire_tools::host;

type Part = fn(&Plan, &mut Results) -> Result<(), String>;

/// How much is done, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) extent: Extent,
    pub(crate) cores: Cores,
    /// The most clients of the ladder, where it was said.
    pub(crate) clients: Option<u32>,
}

const PARTS: [(&str, Part); 6] = [
    ("idle", matrix::measure),
    ("ladder", ladder::measure),
    ("join", join::measure),
    ("fair", fair::measure),
    ("workers", workers::measure),
    ("profile", profile::measure),
];

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(served) = server::main(&args) {
        return ending(served);
    }
    match take_number(&mut args, "--clients") {
        Ok(clients) => run_bench(args, &PARTS.map(|(name, _)| name), |options| bench(options, clients)),
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}

fn bench(options: &Options, clients: Option<u32>) -> Result<(), String> {
    let cores = Cores::of_this_process()?;
    let plan = Plan { extent: options.extent, cores, clients };
    print_machine();
    println!("extent    {}", options.extent.name());
    host::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
    let mut results = Results::new("peers_scale", options);
    results.pinned(cores);
    results.seeded(&format!(
        "{}: which datagrams are lost in virtual time; schedules are fixed; keys, ids and ports are the system's draw",
        turns::SEED
    ));
    let mut outcome = Ok(());
    for (name, part) in PARTS {
        if options.wants(name) && outcome.is_ok() {
            println!("\n{name}");
            outcome = results.part(|results| part(&plan, results));
        }
    }
    // What was found is shown, whatever failed.
    println!("\n{}", results.table());
    println!("written to {}", results.write()?.display());
    outcome
}
