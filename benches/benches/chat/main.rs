//! A chat of 1,024 clients in which everybody hears everybody: `cargo bench --bench chat`.
//!
//! Each client speaks every 0.5 to 1 s, 15 to 58 bytes, at times that are fixed beforehand by a seed (`--seed`): 1,365 broadcasts
//! and 1.4 million deliveries in a second. Server and clients run in a process each. `nominal` takes rounds of our server, whose
//! handler broadcasts to a group every 50 ms, encrypted, reliable-ordered and unreliable; of one that broadcasts at once; and of a
//! baseline over TCP by the method of the WolfMUD journal of 2021-02-21, not encrypted: a task per client that reads and one that
//! writes, a backlog channel of 1,024 entries per client, a write per message. `equal` compares both with 128 clients, which the
//! baseline bears. `stall` has one client more that stops reading. `ladder` takes clients from 256 to 4,096, then the rate up,
//! until something gives way. `long` is the nominal load for 25 minutes in each of both modes, with `--full` alone. A status line
//! for each interval is in the journal's format: clients, total, MB and messages and broadcasts in a second, dropped; then what it
//! left out: offered, skipped, the longest queue, CPU of both processes. The bench fails when the books do not close to the
//! message. `--quick` is a smoke run with few clients; `--clients` and `--workers` (of our server) say otherwise.
#![forbid(unsafe_code)]

mod bots;
mod datagrams;
mod ears;
mod ladder;
mod plan;
mod round;
mod schedule;
mod server;
mod show;
mod status;
mod streams;
mod tcp;
mod tell;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::{
    Extent, Measured, Options, Results, ending, interleave, print_machine, run_bench, take_number,
};
use drumfire_tools::report::Report;

use plan::{Arm, Plan};
use round::Run;

type Part = fn(Extent, Amount, &mut Results) -> Result<(), String>;

const PARTS: [(&str, Part); 5] =
    [("nominal", nominal), ("equal", equal), ("stall", stall), ("ladder", ladder::climb), ("long", long)];

/// Clients that the baseline bears on two cores, so that both are compared at equal deliveries.
const EQUAL_CLIENTS: u32 = 128;

/// How long the journal's run was.
const LONG: Duration = Duration::from_secs(25 * 60);
const LONG_INTERVAL: Duration = Duration::from_secs(10);

const SEED: u32 = 20_210_221;

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(served) = round::process(&args) {
        return ending(served);
    }
    match Bench::new(&mut args) {
        Ok(bench) => run_bench(args, &PARTS.map(|(name, _)| name), |options| bench.run(options)),
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}

/// What the flags say.
#[derive(Clone, Copy, Debug)]
struct Bench {
    clients: Option<u32>,
    workers: u16,
    seed: u32,
}

/// How much each part does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    pub(crate) clients: u32,
    pub(crate) workers: u16,
    warm_up: u32,
    rounds: u32,
    pub(crate) interval: Duration,
    pub(crate) window: Duration,
    seed: u32,
}

impl Amount {
    pub(crate) fn plan(&self, arm: Arm) -> Plan {
        Plan {
            arm,
            clients: self.clients,
            speed: 100,
            seed: self.seed.into(),
            interval: self.interval,
            window: self.window,
            has_stalled: false,
        }
    }
}

impl Bench {
    fn new(args: &mut Vec<OsString>) -> Result<Self, String> {
        let clients = take_number(args, "--clients")?;
        let workers = take_number(args, "--workers")?.unwrap_or(1);
        let workers = u16::try_from(workers).map_err(|_| "--workers: takes 1 to 65535")?;
        if clients.is_some_and(|clients| clients >= u32::from(u16::MAX)) {
            return Err("--clients: takes 1 to 65534".to_owned());
        }
        Ok(Self { clients, workers, seed: take_number(args, "--seed")?.unwrap_or(SEED) })
    }

    fn amount(&self, extent: Extent) -> Amount {
        let (clients, warm_up, rounds, millis, seconds) = match extent {
            Extent::Quick => (64, 0, 1, 250, 500),
            Extent::Default => (1_024, 1, 5, 500, 2_000),
            Extent::Full => (1_024, 1, 7, 1_000, 6_000),
        };
        Amount {
            clients: self.clients.unwrap_or(clients),
            workers: self.workers,
            warm_up,
            rounds,
            interval: Duration::from_millis(millis),
            window: Duration::from_millis(seconds),
            seed: self.seed,
        }
    }

    fn run(self, options: &Options) -> Result<(), String> {
        let amount = self.amount(options.extent);
        print_machine();
        let Amount { clients, workers, window, .. } = amount;
        println!(
            "extent    {}: {clients} clients, {workers} worker(s), rounds of {window:?}",
            options.extent.name()
        );
        let mut results = Results::new("chat", options);
        results.pinned_as(if workers == 1 {
            "our server and the baseline's to the first cores, clients to the last"
        } else {
            "the baseline's server to the first cores, clients to the last, our workers nowhere"
        });
        results.seeded(&format!("{}: when each client speaks, and how much it says", amount.seed));
        let outcome = parts(options, amount, &mut results);
        // What was found is shown, whatever failed.
        println!("\n{}", results.table());
        println!("written to {}", results.write()?.display());
        outcome
    }
}

fn parts(options: &Options, amount: Amount, results: &mut Results) -> Result<(), String> {
    for (name, part) in PARTS {
        if options.wants(name) {
            results.part(|results| part(options.extent, amount, results))?;
        }
    }
    Ok(())
}

fn nominal(extent: Extent, amount: Amount, results: &mut Results) -> Result<(), String> {
    let runs = measure("nominal", &Arm::ALL.map(|arm| amount.plan(arm)), amount, extent, results)?;
    show::nominal("nominal", &runs, amount, results);
    Ok(())
}

fn equal(extent: Extent, amount: Amount, results: &mut Results) -> Result<(), String> {
    if extent == Extent::Quick {
        return Ok(());
    }
    let few = Amount { clients: EQUAL_CLIENTS.min(amount.clients), ..amount };
    let plans = [Arm::Ordered, Arm::Unreliable, Arm::Tcp].map(|arm| few.plan(arm));
    let runs = measure("equal", &plans, few, extent, results)?;
    show::nominal("equal", &runs, few, results);
    Ok(())
}

fn stall(extent: Extent, amount: Amount, results: &mut Results) -> Result<(), String> {
    let plan = amount.plan(Arm::Ordered);
    let plans = [plan, Plan { has_stalled: true, ..plan }];
    let runs = measure("stall", &plans, amount, extent, results)?;
    show::stall(&runs, results);
    Ok(())
}

fn long(extent: Extent, amount: Amount, results: &mut Results) -> Result<(), String> {
    if extent != Extent::Full {
        return Ok(());
    }
    let amount = Amount { interval: LONG_INTERVAL, window: LONG, warm_up: 0, rounds: 1, ..amount };
    let plans = [Arm::Ordered, Arm::Unreliable].map(|arm| amount.plan(arm));
    // Too long to be repeated: a round that the machine disturbed is said to be one.
    let runs = measure("long", &plans, amount, Extent::Quick, results)?;
    show::nominal("long", &runs, amount, results);
    Ok(())
}

/// An arm of a part with its rounds, and what stands beside their reports.
pub(crate) struct Arms {
    pub(crate) plan: Plan,
    pub(crate) measured: Measured,
    pub(crate) runs: Vec<Run>,
}

/// Takes rounds of all plans in turn. The lines of the first round of each are shown.
fn measure(
    part: &str,
    plans: &[Plan],
    amount: Amount,
    extent: Extent,
    results: &mut Results,
) -> Result<Vec<Arms>, String> {
    println!("\n{part}");
    let (shown, runs) = (RefCell::new(BTreeSet::new()), RefCell::new(Vec::new()));
    let name = |plan: &Plan| if plan.has_stalled { "one stalled" } else { plan.arm.name() };
    let arms = plans.iter().map(|plan| {
        let (shown, runs) = (&shown, &runs);
        drumfire_benches::Arm::new(name(plan), move || {
            let is_shown = shown.borrow_mut().insert(name(plan));
            if is_shown {
                println!("{}, {} clients", name(plan), plan.connections());
            }
            let run = round::run(*plan, amount.workers, |line| {
                if is_shown {
                    println!("  {line}");
                }
            })?;
            let report = run.report()?;
            if is_shown {
                println!("  {}", show::books(&run));
            }
            runs.borrow_mut().push(run);
            Ok(report)
        })
    });
    let measured = interleave(arms.collect(), amount.warm_up, amount.rounds, extent != Extent::Quick)?;
    let runs = runs.into_inner();
    let mut all = Vec::new();
    for (plan, mut measured) in plans.iter().zip(measured) {
        measured.is_busy |= measured.rounds.iter().any(Report::is_void);
        for report in &measured.rounds {
            results.run(&format!("{part}: {}", measured.name), report)?;
        }
        // Those that do not count are left out here too: a report is made of one run alone.
        let counts = |run: &&Run| {
            run.plan == *plan
                && run.report().is_ok_and(|report| measured.rounds.iter().any(|round| round == &report))
        };
        let runs: Vec<Run> = runs.iter().filter(counts).cloned().collect();
        all.push(Arms { plan: *plan, measured, runs });
    }
    println!("{}", show::table(&all));
    Ok(all)
}
