//! Packets per second: what a drain, a wait, a train and a steering filter are worth on this machine.
//!
//! `cargo bench --bench pps` prints every figure beside its goal and writes `target/reports/pps.json`. Receivers
//! run in this process, each sender in a process of its own; arms are interleaved, the first round does not
//! count, and no figure is printed whose books do not close.
#![forbid(unsafe_code)]

mod books;
mod capacity;
mod drain;
mod hop;
mod ladder;
mod pipeline;
mod rates;
mod sizes;
mod steering;
mod trains;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::chance::SEED;
use drumfire_benches::{
    BUSY, Extent, Measured, Options, Recipe, Results, cell, print_machine, run, run_bench,
};
use drumfire_tools::choices::{Gro, SendMode, Stage, Steer};
use drumfire_tools::cli::{SENDER_MODE, Traffic};
use drumfire_tools::host;
use drumfire_tools::receiver::{Outcome, Plan};
use drumfire_tools::report::{Flags, Report};

type Part = fn(&Bench, &mut Results) -> Result<(), String>;

const PARTS: [(&str, Part); 9] = [
    ("drain", drain::measure),
    ("trains", trains::measure),
    ("pipeline", pipeline::measure),
    ("hop", hop::measure),
    ("steering", steering::measure),
    ("rates", rates::measure),
    ("capacity", capacity::measure),
    ("books", books::measure),
    ("ladder", ladder::measure),
];

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|first| first == SENDER_MODE) {
        return drumfire_tools::program::receiver(args);
    }
    run_bench(args.into_iter().skip(1), &PARTS.map(|(name, _)| name), bench)
}

fn bench(options: &Options) -> Result<(), String> {
    let bench = Bench::new(options.extent);
    let mut results = Results::new("pps", options);
    print_machine();
    println!("extent    {}: {} rounds of {:?}, medians", options.extent.name(), bench.rounds, bench.window);
    results.pinned_as(&bench.pinning());
    results.seeded(&format!(
        "{SEED:#x} for what an ideal hash does by chance; source ports, ids and keys are the system's, new in every run"
    ));
    let outcome = parts(&bench, options, &mut results);
    // What was found is shown, whatever failed.
    println!("\n{}", results.table());
    println!(
        "threads that come and go while players play, and the dip: cargo bench --bench server -- --only threads"
    );
    println!("written to {}", results.write()?.display());
    outcome
}

fn parts(bench: &Bench, options: &Options, results: &mut Results) -> Result<(), String> {
    for (name, part) in PARTS {
        if options.wants(name) {
            println!("\n{name}");
            results.part(|results| part(bench, results))?;
        }
    }
    Ok(())
}

/// What all parts share.
struct Bench {
    extent: Extent,
    /// Rounds that count, and those that do not.
    rounds: u32,
    warm_up: u32,
    /// How long one run of a figure lasts.
    window: Duration,
    cores: Vec<usize>,
}

impl Bench {
    fn new(extent: Extent) -> Self {
        let (rounds, warm_up, window) = match extent {
            Extent::Quick => (1, 0, Duration::from_millis(300)),
            Extent::Default => (5, 1, Duration::from_secs(1)),
            Extent::Full => (5, 1, Duration::from_secs(3)),
        };
        Self { extent, rounds, warm_up, window, cores: host::allowed_cores().unwrap_or_default() }
    }

    /// Which thread runs where, in words.
    fn pinning(&self) -> String {
        match *self.cores.as_slice() {
            [] => "no thread to a core".to_owned(),
            [only] => format!("receiver and sender to core {only}, which is the only one"),
            [receiver, sender, ref others @ ..] => {
                let hop_sender = others.first().unwrap_or(&sender);
                format!(
                    "receiver to core {receiver} and sender to core {sender}; in hop the second thread to core {sender} and the sender \
                     to core {hop_sender}; in ladder and rates each thread to a core of its own, or none where there are too few; none in \
                     steering and the pipeline's spread"
                )
            }
        }
    }

    /// One receiver thread on the first core, raw stage, nothing from GRO: the floor that parts vary.
    fn plan(&self) -> Plan {
        let mut plan = Plan::new(([127, 0, 0, 1], 0).into());
        plan.threads = 1;
        plan.gro = Gro::Off;
        plan.steer = Steer::Hash;
        plan.stage = Stage::Raw;
        plan.receive_buffer_bytes = Some(RECEIVE_BUFFER_BYTES);
        plan.cores = self.cores.iter().copied().take(1).collect();
        plan
    }

    /// One sender thread, pinned behind the receiver's core where there is another.
    fn traffic(&self, flows: u32, size: u32, rate: u64, send: SendMode) -> Traffic {
        Traffic { threads: 1, flows, size, rate, send, secs: self.window, pin: Some(1) }
    }

    /// Whether so many threads and a sender have a core each, so that throughput means something.
    fn has_cores_for(&self, threads: u32) -> bool {
        (threads as usize) < self.cores.len()
    }

    /// Whether a disturbed round is repeated: not in a smoke run.
    fn may_void(&self) -> bool {
        self.extent != Extent::Quick
    }
}

/// The receive buffer to ask for: room for what comes while a thread is off its core.
const RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Runs a recipe and makes its report.
fn report(recipe: &Recipe) -> Result<Report, String> {
    run(recipe).map(|outcome| report_of(recipe, &outcome))
}

fn report_of(recipe: &Recipe, outcome: &Outcome) -> Report {
    let plan = &recipe.plan;
    let traffic = &recipe.traffic;
    let mut flags = Flags::from([
        ("threads".to_owned(), plan.threads.into()),
        ("drain".to_owned(), plan.drain.name().into()),
        ("gro".to_owned(), plan.gro.name().into()),
        ("wait".to_owned(), plan.wait.to_string().into()),
        ("hop".to_owned(), plan.has_hop.into()),
        ("steer".to_owned(), plan.steer.name().into()),
        ("stage".to_owned(), plan.stage.name().into()),
        ("flows".to_owned(), traffic.flows.into()),
        ("size".to_owned(), traffic.size.into()),
        ("rate".to_owned(), traffic.rate.into()),
        ("send".to_owned(), traffic.send.name().into()),
        ("secs".to_owned(), traffic.secs.as_secs_f64().into()),
    ]);
    if plan.stage.is_sealed() {
        flags.insert("suite".to_owned(), plan.suite.name().into());
    }
    let mut report = outcome.report("", "", flags);
    report.notes.push(format!(
        "{} receive calls for {} messages",
        outcome.calls.receive_calls, outcome.calls.messages
    ));
    if let Some((cores, ns)) = report.sender_cores().zip(report.sender_cpu_ns_per_packet()) {
        report.notes.push(format!(
            "the sending threads used {:.0} % of a core, {ns:.0} ns of CPU for each packet sent",
            cores * 100.0
        ));
    }
    report
}

/// How much of a core the sending threads used, in percent, for a table.
fn sender_cell(arm: &Measured) -> String {
    cell(arm.spread(|report| Some(report.sender_cores()? * 100.0)), 0)
}

/// What a reader of the ratio of two rates has to know: which of them says how much was sent and not how much a receiver takes,
/// what that makes of the ratio, and whether the machine was busy.
fn rates_note(over: &Measured, under: &Measured) -> String {
    let limit = match (over.limited_by(), under.limited_by()) {
        (None, None) => None,
        (Some(by), None) => Some(format!(
            "{by}-limited: {}: a receiver may take more, and the ratio is at least this",
            over.name
        )),
        (None, Some(by)) => Some(format!(
            "{by}-limited: {}: a receiver may take more, and the ratio is at most this",
            under.name
        )),
        (Some(by), Some(_)) => Some(format!(
            "{by}-limited: {} and {}: a ratio of what was sent, not of what a receiver takes",
            over.name, under.name
        )),
    };
    let busy = (over.is_busy || under.is_busy).then(|| BUSY.to_owned());
    limit.into_iter().chain(busy).collect::<Vec<_>>().join("; ")
}
