//! Sizes: what a packet costs through the pipeline by how long it is, at a rate that all sizes reach, and how many there are as
//! fast as it goes.
//!
//! Each is the whole pipeline beside a bare receive. A sender that cannot keep up is said to be the limit, for it seals
//! what the pipeline opens.

use std::time::Duration;

use drumfire_benches::{Arm, Goal, Recipe, Results, busy_note, cell, interleave};
use drumfire_tools::choices::{Gro, SendMode, Stage, Suite};
use drumfire_tools::table::{Align, TextTable};

use super::{Bench, rates_note, report, sender_cell};

const FLOWS: u32 = 64;

const SIZES: [u32; 4] = [64, 128, 512, 1_200];

/// Shorter than any sealed packet: a bare receive alone has such.
const SMALLEST: u32 = 32;

const STAGES: [Stage; 2] = [Stage::Raw, Stage::Deliver];

/// A rate at which the largest are no load of their own.
const RATE: u64 = 200_000;

/// How long one run as fast as it goes lasts.
const WINDOW: Duration = Duration::from_secs(1);

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    costs(bench, results)?;
    rates(bench, results)
}

fn arm(bench: &Bench, size: u32, stage: Stage, rate: u64, window: Duration) -> Arm<'static> {
    let mut plan = bench.plan();
    (plan.stage, plan.suite, plan.gro) = (stage, Suite::best(), Gro::Off);
    let mut traffic = bench.traffic(FLOWS, size, rate, SendMode::Gso);
    traffic.secs = window;
    let recipe = Recipe { plan, traffic };
    Arm::new(format!("{size} B, {stage}"), move || report(&recipe))
}

/// Every size in both stages.
fn arms(bench: &Bench, rate: u64, window: Duration) -> Vec<Arm<'static>> {
    SIZES.into_iter().flat_map(|size| STAGES.map(|stage| arm(bench, size, stage, rate, window))).collect()
}

/// At one rate: what is paid for a byte, and what for a packet.
fn costs(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let arms = arms(bench, RATE, bench.window);
    let measured = interleave(arms, bench.warm_up, bench.rounds, bench.may_void())?;
    results.rounds("pipeline sizes", &measured)?;
    let mut table = TextTable::new(&[
        ("bytes", Align::Right),
        ("raw ns/packet", Align::Right),
        ("deliver ns/packet", Align::Right),
        ("% of raw", Align::Right),
    ])
    .indented(2);
    for (size, pair) in SIZES.into_iter().zip(measured.chunks(STAGES.len())) {
        let [raw, deliver] = pair else { continue };
        let both = raw.cpu_ns().zip(deliver.cpu_ns());
        let share = both.map(|(raw, deliver)| raw.median / deliver.median);
        let name = format!("pipeline: CPU per packet of {size} B, raw over deliver, {}", Suite::best());
        results.figure(name, share, "x", Goal::Shown, busy_note(pair));
        let percent = share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}", share * 100.0));
        table.row([size.to_string(), cell(raw.cpu_ns(), 0), cell(deliver.cpu_ns(), 0), percent]);
    }
    println!("  {FLOWS} flows, {RATE} packets per second\n{}", table.render());
    Ok(())
}

/// As fast as it goes, in trains that the receiver's kernel cuts.
fn rates(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let mut all = vec![arm(bench, SMALLEST, Stage::Raw, 0, WINDOW)];
    all.extend(arms(bench, 0, WINDOW));
    let measured = interleave(all, bench.warm_up, bench.rounds, bench.may_void())?;
    results.rounds("pipeline rates", &measured)?;
    let mut table = TextTable::new(&[
        ("bytes", Align::Right),
        ("raw Mpps", Align::Right),
        ("deliver Mpps", Align::Right),
        ("% of raw", Align::Right),
        ("sender to raw, % of a core", Align::Right),
        ("sender to deliver, % of a core", Align::Right),
    ])
    .indented(2);
    let name =
        |size: u32| format!("pipeline: packets of {size} B per second, deliver over raw, {}", Suite::best());
    let Some((smallest, pairs)) = measured.split_first() else { return Ok(()) };
    let dash = || "-".to_owned();
    table.row([SMALLEST.to_string(), smallest.rate_cell(), dash(), dash(), sender_cell(smallest), dash()]);
    results.figure(
        name(SMALLEST),
        None,
        "x",
        Goal::Shown,
        "no sealed packet is so short: raw alone is shown",
    );
    for (size, pair) in SIZES.into_iter().zip(pairs.chunks(STAGES.len())) {
        let [raw, deliver] = pair else { continue };
        let ratio = deliver.pps().zip(raw.pps()).map(|(deliver, raw)| deliver.median / raw.median);
        results.figure(name(size), ratio, "x", Goal::Shown, &rates_note(deliver, raw));
        table.row([
            size.to_string(),
            raw.rate_cell(),
            deliver.rate_cell(),
            ratio.map_or_else(dash, |ratio| format!("{:.0}", ratio * 100.0)),
            sender_cell(raw),
            sender_cell(deliver),
        ]);
    }
    println!("  {FLOWS} flows, as fast as it goes, GRO off, {}\n{}", Suite::best(), table.render());
    Ok(())
}
