//! Steering: how evenly few flows spread over many threads, by tag and by the kernel's hash.

use std::time::Duration;

use drumfire_benches::{Goal, Recipe, Results};
use drumfire_tools::choices::{SendMode, Stage, Steer};
use drumfire_tools::table::{Align, TextTable};

use super::{Bench, report};

/// Flows and threads of the runs.
const GROUPS: [(u32, u32); 3] = [(12, 6), (32, 16), (200, 4)];

/// Slow enough that no thread is short of a core: the spread of flows is measured, not that of the machine.
const RATE: u64 = 20_000;

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    println!(
        "  128 B, single sends, {RATE} packets per second; the hash draws new source ports in every run"
    );
    let mut table = TextTable::new(&[
        ("flows", Align::Right),
        ("threads", Align::Right),
        ("by tag", Align::Right),
        ("by hash", Align::Right),
    ])
    .indented(2);
    for (flows, threads) in GROUPS {
        let mut spreads = Vec::new();
        for steer in [Steer::Tag, Steer::Hash] {
            let mut plan = bench.plan();
            plan.threads = threads;
            plan.steer = steer;
            plan.stage = Stage::Parse;
            plan.cores.clear();
            let mut traffic = bench.traffic(flows, 128, RATE, SendMode::Single);
            traffic.secs = bench.window.min(Duration::from_millis(600));
            traffic.pin = None;
            let report = report(&Recipe { plan, traffic })?;
            results.run(&format!("steering: {flows} flows on {threads} threads by {steer}"), &report)?;
            spreads.push(report.spread_max_over_mean);
        }
        let cell =
            |spread: &Option<f64>| spread.map_or_else(|| "-".to_owned(), |spread| format!("{spread:.3}"));
        table.row([flows.to_string(), threads.to_string(), cell(&spreads[0]), cell(&spreads[1])]);
        let name = |steer: &str| {
            format!("steering: busiest over mean, {flows} flows on {threads} threads, by {steer}")
        };
        results.figure(name("tag"), spreads[0], "x", Goal::AtMost(1.05), "");
        results.figure(name("hash"), spreads[1], "x", Goal::Shown, "");
    }
    println!("{}", table.render());
    Ok(())
}
