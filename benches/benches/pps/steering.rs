//! Steering: how evenly flows spread over threads, by tag and by the kernel's hash, beside what chance would do.

use std::time::Duration;

use drumfire_benches::chance::{ByChance, SEED, least_spread};
use drumfire_benches::{Extent, Goal, Recipe, Results};
use drumfire_tools::choices::{SendMode, Stage, Steer};
use drumfire_tools::report::Report;
use drumfire_tools::table::{Align, TextTable};

use super::{Bench, report};

/// Flows and threads of the runs: those of the article first.
const GROUPS: [(u32, u32); 6] = [(12, 6), (32, 16), (100, 16), (200, 4), (500, 16), (2_000, 16)];

/// Slow enough that no thread is short of a core: the spread of flows is measured, not that of the machine.
const RATE: u64 = 20_000;

/// What steering is held against, where whole flows can be spread so evenly.
const EVEN: f64 = 1.05;

/// What one packet more of some flows makes of a spread, at most.
const ODD_PACKET: f64 = 1.02;

/// Draws of the simulation.
const DRAWS: usize = 10_000;

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    println!(
        "  128 B, single sends, {RATE} packets per second; the hash draws new source ports in every run;\n  by chance: an ideal hash, {DRAWS} draws from seed {SEED:#x}"
    );
    let mut table = TextTable::new(&[
        ("flows", Align::Right),
        ("threads", Align::Right),
        ("by tag", Align::Right),
        ("least possible", Align::Right),
        ("by hash", Align::Right),
        ("by chance (p95)", Align::Right),
    ])
    .indented(2);
    for (flows, threads) in GROUPS {
        // The pipeline's part has these as connections.
        if bench.extent == Extent::Quick && (flows, threads) == (200, 4) {
            continue;
        }
        let by_tag = spread(bench, (flows, threads), Steer::Tag, results)?;
        let by_hash = spread(bench, (flows, threads), Steer::Hash, results)?;
        let least = least_spread(flows, threads);
        let chance = ByChance::of(flows, threads, DRAWS);
        let cell =
            |spread: Option<f64>| spread.map_or_else(|| "-".to_owned(), |spread| format!("{spread:.3}"));
        let by_chance =
            chance.map_or_else(|| "-".to_owned(), |chance| format!("{:.2} ({:.2})", chance.mean, chance.p95));
        table.row([
            flows.to_string(),
            threads.to_string(),
            cell(by_tag),
            cell(Some(least)),
            cell(by_hash),
            by_chance.clone(),
        ]);
        let name = |steer: &str| {
            format!("steering: busiest over mean, {flows} flows on {threads} threads, by {steer}")
        };
        // A little above it: flows differ by a packet when a run ends.
        let (goal, note) =
            if least > EVEN { (least * ODD_PACKET, "whole flows can be no more even") } else { (EVEN, "") };
        results.figure(name("tag"), by_tag, "x", Goal::AtMost(goal), note);
        results.figure(name("hash"), by_hash, "x", Goal::Shown, &format!("by chance {by_chance}"));
    }
    println!("{}", table.render());
    Ok(())
}

fn spread(
    bench: &Bench,
    (flows, threads): (u32, u32),
    steer: Steer,
    results: &mut Results,
) -> Result<Option<f64>, String> {
    let report: Report = {
        let mut plan = bench.plan();
        plan.threads = threads;
        plan.steer = steer;
        plan.stage = Stage::Parse;
        plan.cores.clear();
        let mut traffic = bench.traffic(flows, 128, RATE, SendMode::Single);
        let window = if bench.extent == Extent::Quick { 150 } else { 600 };
        traffic.secs = Duration::from_millis(window);
        traffic.pin = None;
        report(&Recipe { plan, traffic })?
    };
    results.run(&format!("steering: {flows} flows on {threads} threads by {steer}"), &report)?;
    Ok(report.spread_max_over_mean)
}
