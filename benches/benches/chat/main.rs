//! A chat in which every client hears every other: `cargo bench --bench chat`.
//!
//! Each of 1,024 clients says 15 to 58 bytes every 0.5 to 1 s, at times that a seed fixes (`--seed N`). These are 1,365 broadcasts and
//! 1.4 million deliveries per second.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `nominal` | a server that broadcasts every 50 ms, reliable and unreliable, and TCP |
//! | `equal` | the same with 128 clients, at which TCP keeps up; not with `--quick` |
//! | `stall` | the delay of all others when one more client stops reading |
//! | `ladder` | 256 to 4,096 clients, then higher rates, until a counter shows that the server no longer keeps up |
//! | `long` | the nominal load for 25 minutes in each mode; only with `--full` |
//!
//! `--only NAME` runs one part. `--clients N` changes the number of clients. `--judge` makes a missed goal a failure.
//!
//! The server is a process on the first core. All clients are on one thread of this process, on the last core. The baseline over TCP
//! is that of the WolfMUD journal of 2021-02-21. Each interval prints a status line in the journal's format. The bench fails when
//! the books do not close to the message.
#![forbid(unsafe_code)]

mod format;
mod ladder;
mod plan;
mod round;
mod server;
mod speakers;
mod tcp;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::{Bench, Extent, Measured, Plan as Rounds, Program, interleave, part};
use drumfire_tools::report::Report;

use plan::{Arm, ORDERED, Plan, TCP, UNRELIABLE};

/// The number of clients at which the baseline keeps up on two cores.
const EQUAL_CLIENTS: u32 = 128;

/// The length of the journal's run, and of the intervals of the long run.
const LONG: Duration = Duration::from_secs(25 * 60);
const LONG_INTERVAL_NS: u64 = 10_000_000_000;

const SEED: u32 = 20_210_221;

fn main() -> ExitCode {
    let parts = [
        part("nominal", nominal),
        part("equal", equal).from(Extent::Default),
        part("stall", stall),
        part("ladder", ladder::climb),
        part("long", long).from(Extent::Full),
    ];
    let program = Program {
        roles: &[(server::SERVER, server::run), (tcp::BASELINE, tcp::run)],
        numbers: &["clients", "seed"],
        prepare: |bench| {
            bench.results.pinned_as("both servers to the first cores, clients to the last");
            let seed = bench.number("seed").unwrap_or(SEED);
            bench.results.seeded(&format!("{seed}: when each client speaks, and how much it says"));
        },
        ..Program::new("chat", &parts)
    };
    program.main()
}

/// Returns the plan of an arm.
fn plan(bench: &Bench, arm: Arm) -> Result<Plan, String> {
    let (clients, millis, window) =
        bench.extent().pick((64, 250, 500), (1_024, 500, 2_000), (1_024, 1_000, 6_000));
    let clients = bench.number("clients").unwrap_or(clients);
    if clients >= u32::from(u16::MAX) {
        return Err("--clients: takes 1 to 65534".to_owned());
    }
    Ok(Plan {
        arm,
        clients,
        speed: 100,
        seed: bench.number("seed").unwrap_or(SEED).into(),
        interval_ns: millis * 1_000_000,
        window: Duration::from_millis(window),
        has_stalled: false,
    })
}

fn plans<const N: usize>(bench: &Bench, arms: [Arm; N]) -> Result<Vec<Plan>, String> {
    arms.into_iter().map(|arm| plan(bench, arm)).collect()
}

fn nominal(bench: &mut Bench) -> Result<(), String> {
    let plans = plans(bench, [ORDERED, UNRELIABLE, TCP])?;
    compare(bench, &plans, bench.plan())
}

fn equal(bench: &mut Bench) -> Result<(), String> {
    let mut plans = plans(bench, [ORDERED, UNRELIABLE, TCP])?;
    plans.iter_mut().for_each(|plan| plan.clients = plan.clients.min(EQUAL_CLIENTS));
    compare(bench, &plans, bench.plan())
}

fn long(bench: &mut Bench) -> Result<(), String> {
    let mut plans = plans(bench, [ORDERED, UNRELIABLE])?;
    plans.iter_mut().for_each(|plan| (plan.interval_ns, plan.window) = (LONG_INTERVAL_NS, LONG));
    // The run is too long to be repeated. A disturbed one is marked.
    compare(bench, &plans, Rounds::once())
}

fn compare(bench: &mut Bench, plans: &[Plan], rounds: Rounds) -> Result<(), String> {
    let measured = measure(bench, plans, rounds)?;
    format::servers(bench.part(), plans, &measured, &mut bench.results);
    Ok(())
}

fn stall(bench: &mut Bench) -> Result<(), String> {
    let mut plans = plans(bench, [ORDERED; 2])?;
    plans[1].has_stalled = true;
    let measured = measure(bench, &plans, bench.plan())?;
    format::stall(&measured, &mut bench.results);
    Ok(())
}

/// Runs rounds of all plans in turn. The status lines of the first round of each are printed.
fn measure(bench: &mut Bench, plans: &[Plan], rounds: Rounds) -> Result<Vec<Measured>, String> {
    let shown = RefCell::new(BTreeSet::new());
    let arm = |plan: &Plan| {
        let (plan, shown) = (*plan, &shown);
        let name = if plan.has_stalled { "one stalled" } else { plan.arm.name };
        drumfire_benches::Arm::new(name, move || {
            let is_shown = shown.borrow_mut().insert(name);
            let show = |line: &str| {
                if is_shown {
                    println!("  {line}");
                }
            };
            show(&format!("{name}, {} clients", plan.connections()));
            let run = round::run(plan, show)?;
            Ok((run.report?, run.values))
        })
    };
    let mut measured = interleave(plans.iter().map(arm).collect(), rounds)?;
    for arm in &mut measured {
        arm.is_busy |= arm.rounds.iter().any(Report::is_void);
    }
    bench.results.rounds(bench.part(), &measured)?;
    format::table(&measured);
    Ok(measured)
}
