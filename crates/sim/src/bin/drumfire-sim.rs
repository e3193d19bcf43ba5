//! Runs the scenarios of a range of seeds on all cores, and stops at the first that fails: `drumfire-sim --seeds 0..1000`. With
//! `--worker` first, the server has several workers, whose sockets, threads, and code fail too, and the program prints how often each
//! fault happened. With `--long`, each scenario lasts an hour.
//!
//! Exit codes: 0 all held, 1 one did not, 2 bad usage.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use drumfire_sim::{Failure, LinkFaults, Outcome, Scenario, Totals};

/// The most threads.
const THREADS_MAX: usize = 64;

/// Seeds between two lines of progress, except for hours.
const SEEDS_PER_LINE: u64 = 100;

/// The scenarios of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Short,
    /// Several workers and their faults.
    Workers,
    Hour,
}

impl Kind {
    const fn scenario(self) -> fn(u64) -> Scenario {
        match self {
            Self::Short => Scenario::from_seed,
            Self::Workers => Scenario::with_workers,
            Self::Hour => Scenario::of_an_hour,
        }
    }

    const fn seeds_per_line(self) -> u64 {
        match self {
            Self::Short | Self::Workers => SEEDS_PER_LINE,
            Self::Hour => 1,
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (kind, rest) = match &args[..] {
        [flag, rest @ ..] if flag == "--worker" => (Kind::Workers, rest),
        [flag, rest @ ..] if flag == "--long" => (Kind::Hour, rest),
        all => (Kind::Short, all),
    };
    let seeds = match rest {
        [flag, seeds] if flag == "--seeds" => parse(seeds),
        _ => None,
    };
    let Some(seeds) = seeds else {
        eprintln!("usage: drumfire-sim [--worker | --long] --seeds A..B (from A up to, and without, B)");
        return ExitCode::from(2);
    };
    match sweep(seeds, kind) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn parse(seeds: &str) -> Option<Range<u64>> {
    let (from, to) = seeds.split_once("..")?;
    let range = from.parse().ok()?..to.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// The state that all threads share.
struct Sweep {
    seeds: Range<u64>,
    kind: Kind,
    next: AtomicU64,
    results: Mutex<Results>,
}

#[derive(Default)]
struct Results {
    done: u64,
    sum: Outcome,
    failure: Option<Failure>,
}

/// Runs every seed, and prints the totals.
///
/// # Errors
/// The failure with the lowest seed.
fn sweep(seeds: Range<u64>, kind: Kind) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicU64::new(seeds.start);
    let sweep = Sweep { seeds: seeds.clone(), kind, next, results: Mutex::default() };
    std::thread::scope(|scope| {
        for _ in 0..cores.min(THREADS_MAX) {
            scope.spawn(|| sweep.run());
        }
    });
    let Results { done, sum, failure } = sweep.results.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(failure) = failure {
        return Err(failure);
    }
    println!(
        "{done} seeds held: {} clients connected, {} did not, {} closed, {} messages sent, {} delivered, \
         {} changes of address, {} datagrams of attackers, {} ends that broke the rules, \
         {} bytes held by a world at most, trace {:016x}",
        sum.connected,
        sum.failed,
        sum.closed,
        sum.sent,
        sum.delivered,
        sum.rebound,
        sum.attacks,
        sum.hostile,
        sum.held_bytes,
        sum.trace
    );
    if kind == Kind::Workers {
        println!("of its workers, {} times stranded:", sum.coverage.stranded);
        for (kind, count) in sum.coverage.kinds() {
            println!("{count:>12} {kind}");
        }
    }
    print_totals(&seeds, &sum.totals);
    Ok(())
}

/// Prints the totals as the ledger reads them.
fn print_totals(seeds: &Range<u64>, totals: &Totals) {
    let hundredths = totals.connected.as_secs() / 36;
    let LinkFaults { lost, duplicated, corrupted, queue_full, too_large, .. } = totals.links;
    println!(
        "counted: seeds={}..{} hours={}.{:02} packets={} faults={} lost_faults={lost} \
         duplicated_faults={duplicated} corrupted_faults={corrupted} queue_full_faults={queue_full} \
         too_large_faults={too_large} other_faults={} handshakes={} hostile={} audited={}",
        seeds.start,
        seeds.end,
        hundredths / 100,
        hundredths % 100,
        totals.packets,
        totals.faults(),
        totals.others,
        totals.handshakes,
        totals.hostile,
        totals.audited
    );
}

impl Sweep {
    fn run(&self) {
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.seeds.end {
                return;
            }
            let outcome = drumfire_sim::run_scenario(&self.kind.scenario()(seed));
            let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
            match outcome {
                Ok(outcome) => results.add(&outcome),
                Err(failure) => {
                    // Seeds are taken in order, and lower ones that still run are finished.
                    self.next.store(self.seeds.end, Ordering::Relaxed);
                    if results.failure.as_ref().is_none_or(|known| failure.seed < known.seed) {
                        results.failure = Some(failure);
                    }
                }
            }
            if results.done.is_multiple_of(self.kind.seeds_per_line()) && results.failure.is_none() {
                println!("{} of {} seeds held", results.done, self.seeds.end - self.seeds.start);
            }
        }
    }
}

impl Results {
    fn add(&mut self, outcome: &Outcome) {
        self.done += 1;
        // The order in which threads finish varies.
        self.sum.trace ^= outcome.trace;
        self.sum.connected += outcome.connected;
        self.sum.failed += outcome.failed;
        self.sum.closed += outcome.closed;
        self.sum.sent += outcome.sent;
        self.sum.delivered += outcome.delivered;
        self.sum.rebound += outcome.rebound;
        self.sum.attacks += outcome.attacks;
        self.sum.hostile += outcome.hostile;
        self.sum.coverage += outcome.coverage;
        self.sum.totals += outcome.totals;
        self.sum.held_bytes = self.sum.held_bytes.max(outcome.held_bytes);
    }
}
