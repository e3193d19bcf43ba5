//! Echo: what a message there and back costs the server, beside a raw UDP echo in the same run.
//!
//! `cargo bench --bench echo` prints two loads (F: 500 connections in a closed loop with one message each, so
//! that nothing shares a datagram; A: 100 connections that send 60 times a second at fixed times), every figure
//! beside its goal, and writes `target/reports/echo.json`. Server and client run in processes of their own, each
//! on its own core; this process only looks at their clocks. The client never sleeps; its CPU stands beside the server's, and is
//! in no figure. Its connections share sockets, 16 each, so that it is quicker than the server. drumfire answers in a handler with
//! the default wait, on the application's own thread, and by handing each message from a worker to it. Then come `BenchEcho` and
//! `BenchRate`, the loads of nbio's benchmark over 10,000 connections, with nbio beside it where there is Go; there the clients
//! run in this process. `--only` takes each part by its name, and `--connections` sets how many there are in these two. `--quick`
//! is a smoke run, with 256 of them.
#![forbid(unsafe_code)]

mod encrypted;
mod load;
mod many;
mod peer;
mod process;
mod raw;
mod round;
mod server;
mod show;

use std::cell::RefCell;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::{
    Arm, Cores, Extent, Options, Results, interleave, print_machine, run_bench, take_number,
};

use load::Load;
use peer::Peer;

const PARTS: [(&str, Load); 2] = [("F", Load::F), ("A", Load::A)];

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(code) = process::main(&args) {
        return code;
    }
    let parts: Vec<&str> = PARTS.iter().map(|(name, _)| *name).chain(many::PARTS).collect();
    match take_number(&mut args, "--connections") {
        Ok(connections) => run_bench(args, &parts, |options| bench(options, connections)),
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}

fn bench(options: &Options, connections: Option<u32>) -> Result<(), String> {
    let (rounds, warm_up, counted) = match options.extent {
        Extent::Quick => (1, 0, Duration::from_millis(100)),
        Extent::Default => (7, 1, Duration::from_millis(700)),
        Extent::Full => (7, 1, Duration::from_secs(3)),
    };
    let cores = Cores::of_this_process()?;
    let mut results = Results::new("echo", options);
    results.pinned(cores);
    print_machine();
    println!("extent    {}: {rounds} rounds of {counted:?}, medians", options.extent.name());
    for (name, load) in PARTS {
        if !options.wants(name) {
            continue;
        }
        let collected = RefCell::new(Vec::new());
        let beside = &collected;
        let arms = Peer::all()
            .into_iter()
            .map(|peer| Arm::new(peer.name(), move || round::run((cores, counted), peer, load, beside)))
            .collect();
        let measured = interleave(arms, warm_up, rounds, options.extent != Extent::Quick)?;
        let beside = collected.into_inner();
        println!("\n{name}\n{}", show::table(load, &measured, &beside));
        results.rounds(name, &measured)?;
        show::figures(load, &measured, &mut results);
    }
    many::bench(options, connections, cores, &mut results)?;
    println!("\n{}", results.table());
    println!("written to {}", results.write()?.display());
    Ok(())
}
