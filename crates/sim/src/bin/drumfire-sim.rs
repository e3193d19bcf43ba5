//! Runs the scenarios of a range of seeds on all cores, and stops at the first failure.
//!
//! Exit codes: 0 if all scenarios passed, 1 if one failed, 2 for bad usage.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use drumfire_sim::{Counts, Failure, Outcome, Scenario};

/// The maximum number of threads.
const THREADS_MAX: usize = 64;

/// Seeds between two lines of progress, except for hours.
const SEEDS_PER_LINE: u64 = 100;

/// Runs the scenarios of a range of seeds.
#[derive(Parser)]
#[command(bin_name = "drumfire-sim")]
struct Flags {
    /// The seeds, from A up to and without B.
    #[arg(long, value_name = "A..B", value_parser = parse)]
    seeds: Range<u64>,
    /// Give the server several workers, whose sockets, threads, and code fail too, and print how often each fault happened.
    #[arg(long, conflicts_with = "long")]
    worker: bool,
    /// Let each scenario last an hour.
    #[arg(long)]
    long: bool,
}

fn parse(seeds: &str) -> Result<Range<u64>, String> {
    let range = seeds.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.filter(|range| !range.is_empty()).ok_or_else(|| "write it as A..B".to_owned())
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let results = Mutex::new(Results { rest: flags.seeds.clone(), ..Results::default() });
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(THREADS_MAX) {
            scope.spawn(|| flags.run(&results));
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(failure) = results.failure {
        println!("FAILED: {failure}");
        return ExitCode::FAILURE;
    }
    flags.print(results.done, &results.sum);
    ExitCode::SUCCESS
}

/// The seeds that are left, and the results of the others.
#[derive(Default)]
struct Results {
    rest: Range<u64>,
    done: u64,
    sum: Outcome,
    /// The failure with the lowest seed.
    failure: Option<Failure>,
}

impl Flags {
    /// Runs seeds until none is left.
    fn run(&self, results: &Mutex<Results>) {
        let scenario = match (self.worker, self.long) {
            (true, _) => Scenario::with_workers,
            (_, true) => Scenario::of_an_hour,
            _ => Scenario::from_seed,
        };
        let seeds_per_line = if self.long { 1 } else { SEEDS_PER_LINE };
        let locked = || results.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(seed) = locked().rest.next() else { return };
            let outcome = drumfire_sim::run(&scenario(seed));
            let mut results = locked();
            match outcome {
                Ok(outcome) => results.add(&outcome),
                Err(failure) => {
                    // Seeds are taken in order, and lower ones that still run are finished.
                    results.rest = 0..0;
                    if results.failure.as_ref().is_none_or(|known| failure.seed < known.seed) {
                        results.failure = Some(failure);
                    }
                }
            }
            if results.done.is_multiple_of(seeds_per_line) && results.failure.is_none() {
                println!("{} of {} seeds held", results.done, self.seeds.end - self.seeds.start);
            }
        }
    }

    /// Prints the totals, the last line as the ledger reads it.
    fn print(&self, done: u64, sum: &Outcome) {
        let Outcome { trace, held_bytes, counts, .. } = sum;
        let ends = [Counts::CONNECTED, Counts::FAILED, Counts::CLOSED, Counts::REBOUND, Counts::HOSTILE];
        let totals = ends.into_iter().chain([Counts::SENT, Counts::DELIVERED]);
        let totals: Vec<_> = totals.map(|kind| format!("{} {kind}", counts.of(kind))).collect();
        let totals = totals.join(", ");
        println!("{done} seeds held: {totals}, {held_bytes} bytes held at most, trace {trace:016x}");
        if self.worker {
            println!("of its workers, {} times stranded:", counts.of(Counts::STRANDED));
            for (kind, count) in counts.kinds() {
                println!("{count:>12} {kind}");
            }
        }
        let hundredths = counts.of(Counts::CLIENT_MS) / 36_000;
        let faults = counts.faults();
        let all_faults = ("faults", faults.iter().map(|(_, count)| count).sum());
        let others = [Counts::HANDSHAKES, Counts::ATTACKS, Counts::AUDITED];
        let others = others.map(|kind| (kind, counts.of(kind)));
        let packets = (Counts::PACKETS, counts.of(Counts::PACKETS));
        let figures = [packets, all_faults].into_iter().chain(faults).chain(others);
        let figures: Vec<_> = figures.map(|(kind, count)| format!("{kind}={count}")).collect();
        let (hours, hundredths) = (hundredths / 100, hundredths % 100);
        println!("counted: seeds={:?} hours={hours}.{hundredths:02} {}", self.seeds, figures.join(" "));
    }
}

impl Results {
    fn add(&mut self, outcome: &Outcome) {
        self.done += 1;
        // The order in which threads finish varies.
        self.sum.trace ^= outcome.trace;
        self.sum.counts += &outcome.counts;
        self.sum.held_bytes = self.sum.held_bytes.max(outcome.held_bytes);
    }
}
