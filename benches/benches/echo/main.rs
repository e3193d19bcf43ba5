//! The server's cost of a message there and back: `cargo bench --bench echo`.
//!
//! | part | load |
//! | --- | --- |
//! | `F` | 500 connections with one outstanding message of 64 B each, so that no two messages share a datagram |
//! | `A` | 100 connections that send 60 messages of 64 B per second at fixed times |
//! | `BenchEcho` | nbio's benchmark: 10,000 connections with one outstanding message of 1,024 B each |
//! | `BenchRate` | nbio's benchmark: 10,000 connections, each with 200 messages of 1,024 B per second at fixed times |
//!
//! Each part compares drumfire with a plain UDP echo, and the last two also with nbio itself where there is a Go toolchain.
//! `--only NAME` runs one part. `--judge` makes a missed goal a failure.
//!
//! The server is a process on one core. All clients are on one thread of this process, on another core, and never sleep. Their CPU
//! time is shown next to the server's and is part of no figure. Sixteen connections share a socket, so that the clients are faster
//! than the server.
#![forbid(unsafe_code)]

mod format;
mod round;
mod subject;

use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::traffic::{Polling, Shape};
use drumfire_benches::{Arm, Bench, Plan, Program, interleave, nbio, part};
use drumfire_tools::host;

use format::Rows;
use round::Load;
use subject::Subject;

/// Descriptors for the connections of nbio's clients, for what polls them, and for everything else.
const OPEN_FILES: u64 = 16_384;

fn main() -> ExitCode {
    let parts = [part("F", f), part("A", a), part("BenchEcho", echo), part("BenchRate", rate)];
    let program = Program {
        roles: &[(subject::SERVER, subject::serve), (subject::RAW, subject::serve_raw)],
        ..Program::new("echo", &parts)
    };
    program.main()
}

fn f(bench: &mut Bench) -> Result<(), String> {
    game(bench, 500, Shape::Closed { outstanding: 1 })
}

fn a(bench: &mut Bench) -> Result<(), String> {
    game(bench, 100, Shape::Open { rate: 60 })
}

/// Runs a load whose clients poll all their sockets between two messages.
fn game(bench: &mut Bench, connections: usize, shape: Shape) -> Result<(), String> {
    let millis = Duration::from_millis;
    let times = (millis(250), bench.extent().pick(millis(100), millis(700), millis(3_000)));
    let load = Load { name: bench.part(), connections, bytes: 64, shape, polling: Polling::Single };
    let measured = measure(bench, load, Subject::of_games(), bench.plan(), times)?;
    format::game(load, &measured, bench);
    Ok(())
}

fn echo(bench: &mut Bench) -> Result<(), String> {
    nbio_load(bench, Shape::Closed { outstanding: 1 })
}

fn rate(bench: &mut Bench) -> Result<(), String> {
    nbio_load(bench, Shape::Open { rate: 200 })
}

/// Runs a load of nbio's benchmark. Each session warms up by itself, so no round is dropped for it.
fn nbio_load(bench: &mut Bench, shape: Shape) -> Result<(), String> {
    let millis = Duration::from_millis;
    // Where this is not permitted, connecting fails with the reason.
    let _ = host::raise_open_files(OPEN_FILES);
    let connections = bench.extent().pick(256, 10_000, 10_000);
    let load = Load { name: bench.part(), connections, bytes: 1_024, shape, polling: Polling::Turns };
    let (rounds, warm_up, counted) = bench.extent().pick(
        (1, millis(50), millis(250)),
        (5, millis(500), millis(2_000)),
        (5, millis(500), millis(15_000)),
    );
    let plan = Plan { warm_up: 0, rounds, ..bench.plan() };
    let measured = measure(bench, load, Subject::of_nbio(), plan, (warm_up, counted))?;
    format::nbio(load, &measured, bench);
    Ok(())
}

fn measure(
    bench: &mut Bench,
    load: Load,
    mut subjects: Vec<Subject>,
    plan: Plan,
    times: (Duration, Duration),
) -> Result<Rows, String> {
    let cores = bench.pin_load()?;
    let program =
        if subjects.contains(&Subject::Nbio) { nbio::build_for(bench.extent()).map(Some) } else { Ok(None) };
    let missing = program.as_ref().err().map(|line| format!("missing: {line}"));
    if let Some(missing) = &missing {
        println!("  nbio {missing}");
        subjects.retain(|subject| *subject != Subject::Nbio);
    }
    let program = program.ok().flatten();
    let arm = |subject: &Subject| {
        let (subject, program) = (*subject, program.as_deref());
        Arm::new(subject.name(), move || round::run(load, subject, times, cores, program))
    };
    let measured = interleave(subjects.iter().map(arm).collect(), plan)?;
    bench.results.rounds(load.name, &measured)?;
    Ok(Rows { subjects, measured, missing })
}
