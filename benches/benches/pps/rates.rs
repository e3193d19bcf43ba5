//! The article's own table: the rate of each thread, run by run, with its mean, the sum and the box plot's numbers.
//!
//! Twelve flows over six threads as there, by the kernel's hash and by tag. A run is one interval of one session, the same
//! for all threads, so that means may be added up. Every single rate is in the JSON and, as `run,thread,pps`, in a file.

use std::time::Duration;

use drumfire_benches::{Extent, Goal, Recipe, Results};
use drumfire_tools::choices::{SendMode, Stage, Steer};
use drumfire_tools::csv::Sample;
use drumfire_tools::plot::Summary;
use drumfire_tools::receiver::Plan;
use drumfire_tools::report::Report;
use drumfire_tools::table::{Align, TextTable, rounded};

use super::{Bench, report_of};

const FLOWS: u32 = 12;
const THREADS: u32 = 6;

/// Packets per second where threads share cores: less than the machine carries, as the article's sender was held back.
const RATE: u64 = 60_000;

/// Runs of the best thread in the article.
const RUNS: u32 = 13;

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let has_cores = bench.has_cores_for(THREADS);
    let load = if has_cores { "as fast as it goes".to_owned() } else { format!("{RATE} packets per second") };
    println!("  {FLOWS} flows on {THREADS} threads, 128 B, single sends, {load}, raw stage");
    if !has_cores {
        println!(
            "  what so many threads take at most: not measurable on {} cores; this is their spread",
            bench.cores.len()
        );
    }
    for steer in [Steer::Hash, Steer::Tag] {
        let (interval, runs) = match bench.extent {
            Extent::Quick => (Duration::from_millis(50), 6),
            Extent::Default => (Duration::from_millis(200), RUNS),
            Extent::Full => (Plan::SAMPLE_INTERVAL, RUNS),
        };
        let mut plan = bench.plan();
        (plan.threads, plan.steer, plan.stage, plan.sample_interval) = (THREADS, steer, Stage::Raw, interval);
        plan.cores = if has_cores { bench.cores.clone() } else { Vec::new() };
        let mut traffic = bench.traffic(FLOWS, 128, if has_cores { 0 } else { RATE }, SendMode::Single);
        traffic.secs = interval * runs;
        traffic.pin = has_cores.then_some(THREADS);
        let recipe = Recipe { plan, traffic };
        let outcome = drumfire_benches::run(&recipe)?;
        let report = report_of(&recipe, &outcome);
        results.run(&format!("rates: by {steer}"), &report)?;
        let key = if steer == Steer::Hash { "rates-by-hash" } else { "rates-by-tag" };
        results.rates(key, format!("{FLOWS} flows on {THREADS} threads, by {steer}"), &outcome.samples);
        let limit = limit(&report, has_cores);
        let sum = print(steer, &outcome.samples, &limit);
        let name = |what: &str| format!("rates: {what}, {FLOWS} flows on {THREADS} threads, by {steer}");
        let note = format!("{} in the one window; {limit}", rounded(report.pps));
        results.figure(name("sum of the threads' means"), Some(sum), "pps", Goal::Shown, &note);
    }
    Ok(())
}

/// What held the rate down, in words.
fn limit(report: &Report, has_cores: bool) -> String {
    let is_theirs = has_cores || report.books.dropped_count() > 0;
    match (&report.limited_by, is_theirs) {
        (Some(by), _) => format!("{by}-limited: the receivers may take more"),
        (None, true) => "limited by the receivers".to_owned(),
        (None, false) => format!("limited by the schedule: {RATE} packets per second are offered"),
    }
}

/// Prints a row for each thread; answers the sum of their means.
fn print(steer: Steer, samples: &[Sample], limit: &str) -> f64 {
    let mut table = TextTable::new(&[
        ("thread", Align::Right),
        ("mean pps", Align::Right),
        ("low", Align::Right),
        ("first quartile", Align::Right),
        ("median", Align::Right),
        ("third quartile", Align::Right),
        ("high", Align::Right),
        ("outliers", Align::Right),
    ])
    .indented(2);
    let summaries = Summary::of_each_thread(samples);
    let mut sum = 0.0;
    for (thread, summary) in summaries.iter().enumerate() {
        sum += summary.mean;
        let Summary { mean, low, first, median, third, high, outliers } = summary;
        let numbers = [mean, low, first, median, third, high].map(|pps| rounded(*pps));
        table.row([thread.to_string()].into_iter().chain(numbers).chain([outliers.len().to_string()]));
    }
    println!("  by {steer}, {} runs: the means add up to {} pps; {limit}", samples.len(), rounded(sum));
    println!("{}", table.render());
    sum
}
