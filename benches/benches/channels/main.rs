//! What many channels cost a server that looks at its connections a thousand times per second: `cargo bench --bench channels`.
//!
//! Virtual time and datagrams in memory, real endpoints at both ends; one client holds all connections, and only the
//! server's share of each tick is timed: taking acks in, timers, sending, sealing (AES-128-GCM). System calls are not part of
//! it. The channels that were used and the one that is active may differ in time, and must not in visits: the bench fails
//! when a tick looks at lines of other channels than those with something to send. `--quick` is a smoke run, `--full` has
//! all cells.
#![forbid(unsafe_code)]

mod keys;
mod ticks;
mod updates;
mod world;

use std::ffi::OsString;
use std::process::ExitCode;

use drumfire_benches::{Extent, Options, Results, pin, run_bench};
use drumfire_tools::host;

type Part = fn(Extent, &mut Results) -> Result<(), String>;

const PARTS: [(&str, Part); 3] =
    [("ticks", ticks::measure), ("updates", updates::measure), ("keys", keys::measure)];

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    run_bench(args.into_iter().skip(1), &PARTS.map(|(name, _)| name), bench)
}

fn bench(options: &Options) -> Result<(), String> {
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
    println!("\n{}", results.table());
    println!("written to {}", results.write()?.display());
    Ok(())
}

/// Rounds that warm up, and rounds that count.
const fn rounds(extent: Extent) -> (u32, u32) {
    if matches!(extent, Extent::Quick) { (1, 1) } else { (1, 5) }
}
