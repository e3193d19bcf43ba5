//! Runs the scenarios of a range of seeds on all cores and stops at the first that fails:
//! `drumfire-sim --seeds 0..1000`. With `--worker` before it the server has several workers, whose sockets, threads and code
//! fail too, and it prints how often each kind of that happened.
//!
//! It keeps no records. Exit code 0: all held; 1: one did not; 2: bad usage.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use drumfire_sim::{Failure, Outcome, Scenario};

/// Threads, however many cores there are.
const THREADS_MAX: usize = 64;

/// A line of progress after so many seeds.
const SEEDS_PER_LINE: u64 = 100;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (has_swarm, rest) = match &args[..] {
        [flag, rest @ ..] if flag == "--worker" => (true, rest),
        all => (false, all),
    };
    let seeds = match rest {
        [flag, seeds] if flag == "--seeds" => parse(seeds),
        _ => None,
    };
    let Some(seeds) = seeds else {
        eprintln!("usage: drumfire-sim [--worker] --seeds A..B (from A up to, and without, B)");
        return ExitCode::from(2);
    };
    match sweep(seeds, has_swarm) {
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

/// What all threads share.
struct Sweep {
    seeds: Range<u64>,
    has_swarm: bool,
    next: AtomicU64,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    done: u64,
    sum: Outcome,
    failure: Option<Failure>,
}

/// Runs every seed; answers the failure with the lowest.
fn sweep(seeds: Range<u64>, has_swarm: bool) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicU64::new(seeds.start);
    let sweep = Sweep { seeds, has_swarm, next, found: Mutex::default() };
    std::thread::scope(|scope| {
        for _ in 0..cores.min(THREADS_MAX) {
            scope.spawn(|| sweep.run());
        }
    });
    let Found { done, sum, failure } = sweep.found.into_inner().unwrap_or_else(PoisonError::into_inner);
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
    if has_swarm {
        println!("of its workers, 0 times stranded:");
        sum.covered.kinds().for_each(|(kind, count)| println!("{count:>12} {kind}"));
    }
    Ok(())
}

impl Sweep {
    fn run(&self) {
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.seeds.end {
                return;
            }
            let scenario =
                if self.has_swarm { Scenario::with_swarm(seed) } else { Scenario::from_seed(seed) };
            let outcome = drumfire_sim::run_scenario(&scenario);
            let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            match outcome {
                Ok(outcome) => found.add(&outcome),
                Err(failure) => {
                    // Seeds are handed out in order, so a lower one that still runs is waited for.
                    self.next.store(self.seeds.end, Ordering::Relaxed);
                    if found.failure.as_ref().is_none_or(|known| failure.seed < known.seed) {
                        found.failure = Some(failure);
                    }
                }
            }
            if found.done.is_multiple_of(SEEDS_PER_LINE) && found.failure.is_none() {
                println!("{} of {} seeds held", found.done, self.seeds.end - self.seeds.start);
            }
        }
    }
}

impl Found {
    fn add(&mut self, outcome: &Outcome) {
        self.done += 1;
        // The order in which threads finish must not matter.
        self.sum.trace ^= outcome.trace;
        self.sum.connected += outcome.connected;
        self.sum.failed += outcome.failed;
        self.sum.closed += outcome.closed;
        self.sum.sent += outcome.sent;
        self.sum.delivered += outcome.delivered;
        self.sum.rebound += outcome.rebound;
        self.sum.attacks += outcome.attacks;
        self.sum.hostile += outcome.hostile;
        self.sum.covered += &outcome.covered;
        self.sum.held_bytes = self.sum.held_bytes.max(outcome.held_bytes);
    }
}
