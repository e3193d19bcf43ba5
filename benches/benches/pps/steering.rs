//! Steering: how evenly flows spread over threads, by tag and by the kernel's hash, beside what chance would do.

use std::time::Duration;

use drumfire_benches::chance::{ByChance, SEED, least_spread};
use drumfire_benches::{Extent, Goal, Recipe, Results, Spread, cell};
use drumfire_tools::choices::{SendMode, Stage, Steer};
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

/// By tag first.
const STEERS: [Steer; 2] = [Steer::Tag, Steer::Hash];

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let (runs, window) = match bench.extent {
        Extent::Quick => (1, Duration::from_millis(150)),
        Extent::Default => (5, Duration::from_millis(300)),
        Extent::Full => (5, Duration::from_millis(600)),
    };
    println!(
        "  128 B, single sends, {RATE} packets per second, {runs} run(s) each; the hash draws new source ports in every run;\n  by chance: an ideal hash, {DRAWS} draws from seed {SEED:#x}"
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
        let [by_tag, by_hash] = spreads(bench, (flows, threads), runs, window, results)?;
        let least = least_spread(flows, threads);
        let chance = ByChance::of(flows, threads, DRAWS);
        let by_chance =
            chance.map_or_else(|| "-".to_owned(), |chance| format!("{:.2} ({:.2})", chance.mean, chance.p95));
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
        // A little above it: flows differ by a packet when a run ends.
        let (goal, note) =
            if least > EVEN { (least * ODD_PACKET, "whole flows can be no more even") } else { (EVEN, "") };
        results.spread(name("tag"), by_tag, "x", Goal::AtMost(goal), note);
        results.spread(name("hash"), by_hash, "x", Goal::Shown, &format!("by chance {by_chance}"));
    }
    println!("{}", table.render());
    Ok(())
}

/// So many runs by tag and by hash in turn: the busiest thread over the mean, by each.
fn spreads(
    bench: &Bench,
    group: (u32, u32),
    runs: u32,
    window: Duration,
    results: &mut Results,
) -> Result<[Option<Spread>; 2], String> {
    let mut by_steer = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for (steer, values) in STEERS.into_iter().zip(&mut by_steer) {
            values.push(busiest_over_mean(bench, group, steer, window, results)?);
        }
    }
    Ok(by_steer.map(|values| Spread::of(values.into_iter().collect::<Option<Vec<f64>>>()?)))
}

fn busiest_over_mean(
    bench: &Bench,
    (flows, threads): (u32, u32),
    steer: Steer,
    window: Duration,
    results: &mut Results,
) -> Result<Option<f64>, String> {
    let mut plan = bench.plan();
    plan.threads = threads;
    plan.steer = steer;
    plan.stage = Stage::Parse;
    plan.cores.clear();
    let mut traffic = bench.traffic(flows, 128, RATE, SendMode::Single);
    traffic.secs = window;
    traffic.pin = None;
    let report = report(&Recipe { plan, traffic })?;
    results.run(&format!("steering: {flows} flows on {threads} threads by {steer}"), &report)?;
    Ok(report.spread_max_over_mean)
}
