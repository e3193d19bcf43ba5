//! What many channels cost a server that looks at its connections a thousand times per second: `cargo bench --bench channels`.
//!
//! Virtual time and datagrams in memory, real endpoints at both ends; one client holds all connections, and only the
//! server's share of each tick is timed: taking acks in, timers, sending, sealing (AES-128-GCM). System calls are not part of
//! it. A unit test of the core shows that a tick visits no channel without messages. `players` alone is real: sockets, real time and
//! a server in a process of its own. `--quick` is a smoke run, `--full` has all cells, and `--soak HOURS` plays so many hours of
//! virtual time and fails when memory grows (five minutes of it are played by default). A part that fails shows no figures, and
//! the others are run all the same.
#![forbid(unsafe_code)]

mod burst;
mod game;
mod keys;
mod players;
mod soak;
mod ticks;
mod unused;
mod updates;
mod world;

use std::ffi::OsString;
use std::process::ExitCode;

use drumfire_benches::{Cores, Extent, Options, Results, ending, pin, print_machine, run_bench, take_number};
use drumfire_tools::host;

/// What parts are told.
struct Plan {
    extent: Extent,
    /// Hours of the soak, where they are not the extent's.
    hours: Option<u32>,
    /// Where server and players are kept, or why they cannot be.
    cores: Result<Cores, String>,
}

type Part = fn(&Plan, &mut Results) -> Result<(), String>;

const SOAK: &str = "soak";

const PARTS: [(&str, Part); 7] = [
    ("ticks", |plan, results| ticks::measure(plan.extent, results)),
    ("updates", |plan, results| updates::measure(plan.extent, results)),
    ("keys", |plan, results| keys::measure(plan.extent, results)),
    ("burst", |plan, results| burst::measure(plan.extent, results)),
    ("unused", |_, results| unused::measure(results)),
    ("players", |plan, results| players::measure(plan.extent, plan.cores.clone()?, results)),
    (SOAK, |plan, results| soak::measure(plan.extent, plan.hours, results)),
];

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(served) = game::main(&args) {
        return ending(served);
    }
    let hours = match take_number(&mut args, "--soak") {
        Ok(hours) => hours,
        Err(line) => {
            eprintln!("error: {line}");
            return ExitCode::from(2);
        }
    };
    run_bench(args, &PARTS.map(|(name, _)| name), |options| bench(options, hours))
}

fn bench(options: &Options, hours: Option<u32>) -> Result<(), String> {
    // Before this thread is pinned, for then it knows of one core alone.
    let plan = Plan { extent: options.extent, hours, cores: Cores::of_this_process() };
    let mut results = Results::new("channels", options);
    print_machine();
    println!("extent    {}: {} rounds, medians", options.extent.name(), rounds(options.extent).1);
    results.pinned_as(&pin_as(&plan.cores)?);
    results.seeded(&format!("{} for losses, {} for keys that change", world::SEED, keys::SEED));
    let mut failed = Vec::new();
    for (name, part) in PARTS.iter().filter(|(name, _)| options.wants(name)) {
        println!("\n{name}");
        failed.extend(results.part(|results| part(&plan, results)).err());
    }
    println!("\n{}", results.table());
    println!("written to {}", results.write()?.display());
    let grown = results.missed().into_iter().filter(|name| name.starts_with(SOAK));
    failed.extend(grown.map(|name| format!("memory grows: {name}")));
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Keeps this thread on one core: what is in memory runs on it, and the players of a server that has another. Answers so in words.
fn pin_as(cores: &Result<Cores, String>) -> Result<String, String> {
    let Ok(cores) = cores else {
        pin();
        return Ok("all to the last core, where the system lets it".to_owned());
    };
    host::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
    Ok(format!("both ends in memory to core {}; players: {cores}", cores.load))
}

/// Rounds that warm up, and rounds that count.
const fn rounds(extent: Extent) -> (u32, u32) {
    if matches!(extent, Extent::Quick) { (1, 1) } else { (1, 5) }
}
