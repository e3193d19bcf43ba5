//! What many channels cost a server that looks at its connections a thousand times per second: `cargo bench --bench channels`.
//!
//! Virtual time and datagrams in memory, real endpoints at both ends; one client holds all connections, and only the
//! server's share of each tick is timed: taking acks in, timers, sending, sealing (AES-128-GCM). System calls are not part of
//! it. The channels that were used and the one that is active may differ in time, and must not in visits: the bench fails
//! when a tick looks at lines of other channels than those with something to send. `--quick` is a smoke run, `--full` has
//! all cells, and `--soak HOURS` plays so many hours of virtual time and fails when memory grows (five minutes of it are played
//! by default).
#![forbid(unsafe_code)]

mod burst;
mod keys;
mod soak;
mod ticks;
mod updates;
mod world;

use std::ffi::OsString;
use std::process::ExitCode;

use drumfire_benches::{Extent, Options, Results, pin, run_bench, take_number};
use drumfire_tools::host;

type Part = fn(Extent, &mut Results) -> Result<(), String>;

const PARTS: [(&str, Part); 4] = [
    ("ticks", ticks::measure),
    ("updates", updates::measure),
    ("keys", keys::measure),
    ("burst", burst::measure),
];

const SOAK: &str = "soak";

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let hours = match take_number(&mut args, "--soak") {
        Ok(hours) => hours,
        Err(line) => {
            eprintln!("error: {line}");
            return ExitCode::from(2);
        }
    };
    let [ticks, updates, keys, burst] = PARTS.map(|(name, _)| name);
    run_bench(args, &[ticks, updates, keys, burst, SOAK], |options| bench(options, hours))
}

fn bench(options: &Options, hours: Option<u32>) -> Result<(), String> {
    pin();
    let mut results = Results::new("channels", options);
    println!("machine   {}", host::machine());
    println!("extent    {}: {} rounds, medians", options.extent.name(), rounds(options.extent).1);
    for (name, part) in PARTS {
        if options.wants(name) {
            println!("\n{name}");
            part(options.extent, &mut results)?;
        }
    }
    let mut outcome = Ok(());
    if options.wants(SOAK) {
        println!("\n{SOAK}");
        outcome = soak::measure(options.extent, hours, &mut results);
    }
    println!("\n{}", results.table());
    println!("written to {}", results.write()?.display());
    outcome
}

/// Rounds that warm up, and rounds that count.
const fn rounds(extent: Extent) -> (u32, u32) {
    if matches!(extent, Extent::Quick) { (1, 1) } else { (1, 5) }
}
