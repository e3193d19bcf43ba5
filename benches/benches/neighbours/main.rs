//! What others have of it when one does not behave: `cargo bench --bench neighbours`.
//!
//! 200 players each send 60 times a second at fixed times to an async server, a task for each connection, and hear it back.
//! Beside them, in turns: nobody (`quiet`); one more connection that sends 100,000 reliable messages a second to a task that
//! never calls `recv`, once for each policy of a full queue (`stalled`); one more that sends as many packets to a task that
//! takes them (`abuser`); one more that sends as many of the most expensive packets that the protocol allows (`spender`).
//! Printed are the players' latency from when each message was to leave and what they lost, and how much later their 99th in a
//! hundred came than in the quiet arm. For the stalled connection, the bench also prints the bytes
//! that both ends kept for it, and whether its policy counted its actions.
//!
//! The server runs in a process of its own on one core. All load comes from one thread on another core, which never sleeps: what
//! the guest costs that thread is in the players' figures too, so they are no lower than the truth. Rounds are interleaved. The
//! bench fails when the books of datagrams, of the players' messages or of the guest's do not close, or a player is dropped.
//! `--only stalled`, `--only abuser` and `--only spender` leave out the others. `--rate N` is what abuser and spender are to
//! send in a second. `--seconds N` runs one round of each for so long, to see what stays so (a task that takes nothing for a
//! minute: 60). `--quick` is a smoke run. `--judge` makes a missed goal a failure, as it is at night.
#![forbid(unsafe_code)]

mod role;
mod round;
mod server;
mod show;

use std::cell::RefCell;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::{
    Arm, Cores, Extent, Load, Options, Results, ending, interleave, print_machine, run_bench, take_number,
};

use role::Role;

const PLAYERS: Load = Load { connections: 200, rate: Some(200 * 60) };

/// Packets of the abuser in a second.
const ABUSE_PER_SECOND: u32 = 100_000;

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(served) = server::main(&args) {
        return ending(served);
    }
    let judges = args.iter().position(|arg| arg == "--judge").map(|at| args.remove(at)).is_some();
    let asked = take_number(&mut args, "--rate")
        .and_then(|rate| take_number(&mut args, "--seconds").map(|seconds| (rate, seconds)));
    match asked {
        Ok((rate, seconds)) => run_bench(args, &role::PARTS, |options| {
            let missed = bench(options, rate.unwrap_or(ABUSE_PER_SECOND), seconds)?;
            if judges && !missed.is_empty() { Err(format!("missed: {}", missed.join("; "))) } else { Ok(()) }
        }),
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}

/// Answers the figures that missed their goals.
fn bench(options: &Options, abuse_per_second: u32, seconds: Option<u32>) -> Result<Vec<String>, String> {
    let (rounds, warm_up, counted) = match (seconds, options.extent) {
        (Some(seconds), _) => (1, 0, Duration::from_secs(seconds.into())),
        (None, Extent::Quick) => (1, 0, Duration::from_millis(300)),
        (None, Extent::Default) => (5, 1, Duration::from_secs(2)),
        (None, Extent::Full) => (9, 1, Duration::from_secs(5)),
    };
    let cores = Cores::of_this_process()?;
    print_machine();
    println!("extent    {}: {rounds} rounds of {counted:?}, medians", options.extent.name());
    let collected = RefCell::new(Vec::new());
    let beside = &collected;
    let roles = Role::ALL.into_iter().filter(|role| role.part().is_none_or(|part| options.wants(part)));
    let arms = roles
        .map(|role| {
            Arm::new(role.name(), move || {
                round::run((cores, counted), role, PLAYERS, abuse_per_second.into(), beside)
            })
        })
        .collect();
    let measured = interleave(arms, warm_up, rounds, options.extent != Extent::Quick)?;
    let beside = collected.into_inner();
    println!("\n{}", show::table(PLAYERS, &measured, &beside));
    let mut results = Results::new("neighbours", options);
    results.pinned(cores);
    results.rounds("neighbours", &measured)?;
    show::figures(&measured, &beside, abuse_per_second.into(), &mut results);
    println!("{}", results.table());
    println!("written to {}", results.write()?.display());
    Ok(results.missed())
}
