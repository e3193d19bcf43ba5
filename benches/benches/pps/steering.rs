//! How evenly flows spread over threads, by tag and by the kernel's hash.

use std::time::Duration;

use drumfire_benches::{Bench, Goal, Spread, least_spread};
use drumfire_tools::choices::{SendMode, Stage, Steer};

use super::Setup;

const SIZE: u32 = 128;

/// Flows and threads of the runs. The first ones are those of the article "Receiving".
const GROUPS: [(u32, u32); 6] = [(12, 6), (32, 16), (100, 16), (200, 4), (500, 16), (2_000, 16)];

/// A rate at which no thread lacks a core, so that the spread is that of the flows.
const RATE: u64 = 20_000;

/// The goal of steering by tag, where whole flows can be spread so evenly.
const EVEN: f64 = 1.05;

/// The factor above the least possible spread, because flows differ by a packet when a run ends.
const ODD_PACKET: f64 = 1.02;

const STEERS: [Steer; 2] = [Steer::Tag, Steer::Hash];

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    let (runs, millis) = setup.extent.pick((1, 150), (5, 300), (5, 600));
    for (flows, threads) in GROUPS {
        let mut by_steer = [Vec::new(), Vec::new()];
        for _ in 0..runs {
            for (steer, values) in STEERS.into_iter().zip(&mut by_steer) {
                let mut run = setup.run(flows, SIZE, RATE, SendMode::Single);
                (run.receiver.threads, run.receiver.steer) = (threads, steer);
                run.receiver.stage = Stage::Parse;
                run.receiver.cores.clear();
                (run.traffic.secs, run.traffic.pin) = (Duration::from_millis(millis), None);
                let report = run.report()?;
                let name = format!("steering: {flows} flows on {threads} threads by {steer}");
                bench.results.run(&name, &report)?;
                values.push(report.spread_max_over_mean);
            }
        }
        let [by_tag, by_hash] =
            by_steer.map(|values| Spread::of(values.into_iter().collect::<Option<Vec<f64>>>()?));
        let least = least_spread(flows, threads);
        let name = |steer: &str| {
            format!("steering: busiest over mean, {flows} flows on {threads} threads, by {steer}")
        };
        let (goal, note) =
            if least > EVEN { (least * ODD_PACKET, "whole flows can be no more even") } else { (EVEN, "") };
        bench.results.spread(name("tag"), by_tag, "x", Goal::AtMost(goal), note);
        bench.results.spread(name("hash"), by_hash, "x", Goal::Shown, "");
    }
    Ok(())
}
