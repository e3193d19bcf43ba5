//! How evenly flows spread over threads, by tag and by the kernel's hash, compared with chance; and the rate of each of six threads.

use std::time::Duration;

use drumfire_benches::chance::{ByChance, SEED, least_spread};
use drumfire_benches::{Bench, Extent, Goal, Recipe, Spread, cell, run};
use drumfire_tools::choices::{SendMode, Stage, Steer};
use drumfire_tools::plot::Summary;
use drumfire_tools::receiver::Plan;
use drumfire_tools::report::Report;
use drumfire_tools::table::{Align, TextTable, rounded};

use super::{Setup, dash, report, report_of};

const SIZE: u32 = 128;

/// Flows and threads of the runs. The first ones are those of the article "Receiving".
const GROUPS: [(u32, u32); 6] = [(12, 6), (32, 16), (100, 16), (200, 4), (500, 16), (2_000, 16)];

/// A rate at which no thread lacks a core, so that the spread is that of the flows.
const RATE: u64 = 20_000;

/// The goal of steering by tag, where whole flows can be spread so evenly.
const EVEN: f64 = 1.05;

/// The factor above the least possible spread, because flows differ by a packet when a run ends.
const ODD_PACKET: f64 = 1.02;

/// Draws of the simulation.
const DRAWS: usize = 10_000;

const STEERS: [Steer; 2] = [Steer::Tag, Steer::Hash];

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    let (runs, millis) = setup.extent.pick((1, 150), (5, 300), (5, 600));
    println!(
        "  {SIZE} B, single sends, {RATE} packets per second, {runs} run(s) each; the hash draws new source ports in every run;\n  by \
         chance: an ideal hash, {DRAWS} draws from seed {SEED:#x}"
    );
    let right = |heading| (heading, Align::Right);
    let headings = ["flows", "threads", "by tag", "least possible", "by hash", "by chance (p95)"].map(right);
    let mut table = TextTable::new(&headings).indented(2);
    for (flows, threads) in GROUPS {
        // The part `pipeline` has this group as connections.
        if setup.extent == Extent::Quick && (flows, threads) == (200, 4) {
            continue;
        }
        let mut by_steer = [Vec::new(), Vec::new()];
        for _ in 0..runs {
            for (steer, values) in STEERS.into_iter().zip(&mut by_steer) {
                let mut plan = setup.receiver();
                (plan.threads, plan.steer, plan.stage) = (threads, steer, Stage::Parse);
                plan.cores.clear();
                let mut traffic = setup.traffic(flows, SIZE, RATE, SendMode::Single);
                (traffic.secs, traffic.pin) = (Duration::from_millis(millis), None);
                let report = report(&Recipe { plan, traffic })?;
                let name = format!("steering: {flows} flows on {threads} threads by {steer}");
                bench.results.run(&name, &report)?;
                values.push(report.spread_max_over_mean);
            }
        }
        let [by_tag, by_hash] =
            by_steer.map(|values| Spread::of(values.into_iter().collect::<Option<Vec<f64>>>()?));
        let least = least_spread(flows, threads);
        let chance = ByChance::of(flows, threads, DRAWS);
        let by_chance = chance.map_or_else(dash, |chance| format!("{:.2} ({:.2})", chance.mean, chance.p95));
        table.row([
            flows.to_string(),
            threads.to_string(),
            cell(by_tag, 3),
            format!("{least:.3}"),
            cell(by_hash, 3),
            by_chance.clone(),
        ]);
        let name = |steer: &str| {
            format!("steering: busiest over mean, {flows} flows on {threads} threads, by {steer}")
        };
        let (goal, note) =
            if least > EVEN { (least * ODD_PACKET, "whole flows can be no more even") } else { (EVEN, "") };
        bench.results.spread(name("tag"), by_tag, "x", Goal::AtMost(goal), note);
        bench.results.spread(name("hash"), by_hash, "x", Goal::Shown, &format!("by chance {by_chance}"));
    }
    println!("{}", table.render());
    Ok(())
}

/// Flows and threads of the article's own table.
const RATES: (u32, u32) = (12, 6);

/// Packets per second where threads share cores. The machine carries more, and the article's sender was held back as well.
const SHARED_RATE: u64 = 60_000;

/// Runs of the best thread in the article.
const RUNS: u32 = 13;

/// The article's own table: the rate of each thread, run by run. A run is one interval of one session, the same for all threads, so
/// that their means may be added. Every rate is in the JSON, and as `run,thread,pps` in a file.
pub(super) fn rates(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    let (flows, threads) = RATES;
    let has_cores = setup.has_cores_for(threads);
    let rate = if has_cores { 0 } else { SHARED_RATE };
    let load =
        if has_cores { "as fast as possible".to_owned() } else { format!("{rate} packets per second") };
    println!("  {flows} flows on {threads} threads, {SIZE} B, single sends, {load}, raw stage");
    if !has_cores {
        let cores = setup.cores.len();
        println!("  the throughput of six threads: not measurable on {cores} cores; this is their spread");
    }
    for steer in [Steer::Hash, Steer::Tag] {
        let millis = Duration::from_millis;
        let (interval, runs) =
            setup.extent.pick((millis(50), 6), (millis(200), RUNS), (Plan::SAMPLE_INTERVAL, RUNS));
        let mut plan = setup.receiver();
        (plan.threads, plan.steer, plan.stage, plan.sample_interval) = (threads, steer, Stage::Raw, interval);
        plan.cores = if has_cores { setup.cores.clone() } else { Vec::new() };
        let mut traffic = setup.traffic(flows, SIZE, rate, SendMode::Single);
        (traffic.secs, traffic.pin) = (interval * runs, has_cores.then_some(threads));
        let recipe = Recipe { plan, traffic };
        let report = report_of(&recipe, run(&recipe)?);
        bench.results.run(&format!("rates: by {steer}"), &report)?;
        let key = if steer == Steer::Hash { "rates-by-hash" } else { "rates-by-tag" };
        let name = format!("{flows} flows on {threads} threads, by {steer}");
        bench.results.rates(key, name.as_str(), &report.pps_per_second);
        let limit = limit(&report, has_cores);
        let sum = print_rates(steer, &report.pps_per_second, &limit);
        let name = format!("rates: sum of the threads' means, {name}");
        let note = format!("{} in the one window; {limit}", rounded(report.pps));
        bench.results.figure(name, Some(sum), "pps", Goal::Shown, &note);
    }
    Ok(())
}

/// Describes what limited the rate.
fn limit(report: &Report, has_cores: bool) -> String {
    let is_receivers = has_cores || report.books.dropped_count() > 0;
    match (&report.limited_by, is_receivers) {
        (Some(by), _) => format!("{by}-limited: the receivers may take more"),
        (None, true) => "limited by the receivers".to_owned(),
        (None, false) => format!("limited by the schedule: {SHARED_RATE} packets per second are offered"),
    }
}

/// Prints a row per thread. Returns the sum of the means.
fn print_rates(steer: Steer, rates: &[Vec<u64>], limit: &str) -> f64 {
    let headings =
        ["thread", "mean pps", "low", "first quartile", "median", "third quartile", "high", "outliers"];
    let mut table = TextTable::new(&headings.map(|heading| (heading, Align::Right))).indented(2);
    let mut sum = 0.0;
    for (thread, summary) in Summary::of_each_thread(rates).iter().enumerate() {
        let Summary { mean, low, first, median, third, high, outliers } = summary;
        sum += mean;
        let numbers = [mean, low, first, median, third, high].map(|pps| rounded(*pps));
        table.row([thread.to_string()].into_iter().chain(numbers).chain([outliers.len().to_string()]));
    }
    println!("  by {steer}, {} runs: the means add up to {} pps; {limit}", rates.len(), rounded(sum));
    println!("{}", table.render());
    sum
}
