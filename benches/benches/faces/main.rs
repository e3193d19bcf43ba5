//! What a message there and back costs a server by the face it shows the game: `cargo bench --bench faces`.
//!
//! Three servers echo the same load: one whose handler answers on the worker; one whose application polls and answers, beside
//! one worker thread; and one as it is often written first, whose worker hands each message by itself to another thread, which
//! sends each answer by itself. Two loads: `steady` is open, 64 connections that send 40,000 times a second in all at fixed
//! times; `full` is closed, 500 connections with one message each, as fast as they come back. Only the CPU of the server's
//! process counts, all its threads together on one core, over one window; rounds are interleaved. The load is made in this
//! process on another core and never sleeps; what it used of its core is printed beside. `--quick` is a smoke run.
#![forbid(unsafe_code)]

mod round;
mod server;
mod show;

use std::cell::RefCell;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::{
    Arm, Cores, Extent, Load, Options, Results, ending, interleave, print_machine, run_bench,
};

use server::Face;

const STEADY: Load = Load { connections: 64, rate: Some(40_000) };

const FULL: Load = Load { connections: 500, rate: None };

const PARTS: [(&str, Load); 2] = [("steady", STEADY), ("full", FULL)];

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(served) = server::main(&args) {
        return ending(served);
    }
    run_bench(args, &PARTS.map(|(name, _)| name), bench)
}

fn bench(options: &Options) -> Result<(), String> {
    let (rounds, warm_up, counted) = match options.extent {
        Extent::Quick => (1, 0, Duration::from_millis(300)),
        Extent::Default => (5, 1, Duration::from_secs(1)),
        Extent::Full => (7, 1, Duration::from_secs(3)),
    };
    let cores = Cores::of_this_process()?;
    let mut results = Results::new("faces", options);
    print_machine();
    println!("extent    {}: {rounds} rounds of {counted:?}, medians", options.extent.name());
    results.pinned(cores);
    for (name, load) in PARTS {
        if !options.wants(name) {
            continue;
        }
        let collected = RefCell::new(Vec::new());
        let beside = &collected;
        let arms = Face::ALL
            .into_iter()
            .map(|face| Arm::new(face.name(), move || round::run((cores, counted), face, load, beside)))
            .collect();
        let measured = interleave(arms, warm_up, rounds, options.extent != Extent::Quick)?;
        let beside = collected.into_inner();
        println!("\n{name}\n{}", show::table(load, &measured, &beside));
        results.rounds(name, &measured)?;
        show::figures(name, &measured, &mut results);
    }
    println!("\n{}", results.table());
    println!("written to {}", results.write()?.display());
    Ok(())
}
