//! The server's cost of a message and its echo: `cargo bench --bench echo`.
//!
//! | part | load |
//! | --- | --- |
//! | `BenchEcho` | nbio's benchmark: 10,000 connections with one outstanding message of 1,024 B each |
//! | `BenchRate` | nbio's benchmark: 10,000 connections, each with 200 messages of 1,024 B per second at fixed times |
//!
//! Each part compares drumfire with a plain UDP echo, and with nbio itself where there is a Go toolchain. `benches/peers` has the loads
//! with fewer connections. `--only NAME` runs one part. `--judge` makes a missed goal a failure.
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

use drumfire_benches::traffic::Shape;
use drumfire_benches::{Arm, Bench, PLAIN, Plan, Program, interleave, nbio, part, plain, roles};
use drumfire_tools::host;

use format::Rows;
use subject::Subject;

/// Descriptors for the connections of nbio's clients, for their polls, and for everything else.
const OPEN_FILES: u64 = 16_384;

fn main() -> ExitCode {
    let parts = [
        part("BenchEcho", |bench| run(bench, Shape::Closed { outstanding: 1 })),
        part("BenchRate", |bench| run(bench, Shape::Open { rate: 200 })),
    ];
    let program =
        Program { roles: &[(roles::ECHO, roles::echo), (PLAIN, plain)], ..Program::new("echo", &parts) };
    program.main()
}

/// Runs a load of nbio's benchmark. Each session warms up by itself, so no round is dropped for it.
fn run(bench: &mut Bench, shape: Shape) -> Result<(), String> {
    let millis = Duration::from_millis;
    // Where this is not permitted, connecting fails with the reason.
    let _ = host::raise_open_files(OPEN_FILES);
    let (name, connections) = (bench.part(), bench.extent().pick(256_u32, 10_000, 10_000));
    let (rounds, warm_up, counted) = bench.extent().pick(
        (1, millis(50), millis(250)),
        (5, millis(500), millis(2_000)),
        (5, millis(500), millis(15_000)),
    );
    let cores = bench.pin_load()?;
    let program = nbio::build_for(bench.extent());
    let missing = program.as_ref().err().map(|line| format!("missing: {line}"));
    let mut subjects = Subject::all();
    if let Some(missing) = &missing {
        println!("  nbio {missing}");
        subjects.retain(|subject| *subject != Subject::Nbio);
    }
    let program = program.ok();
    let arm = |subject: &Subject| {
        let (subject, program) = (*subject, program.as_deref());
        Arm::new(subject.name(), move || {
            round::run(subject, (connections, shape), (warm_up, counted), cores, program)
        })
    };
    let plan = Plan { warm_up: 0, rounds, ..bench.plan() };
    let measured = interleave(subjects.iter().map(arm).collect(), plan)?;
    bench.results.rounds(name, &measured)?;
    format::show(&Rows { name, shape, subjects, measured, missing }, bench);
    Ok(())
}
