//! The pipeline, stage by stage: what parsing, opening, and acknowledging and delivering add to a bare receive.

use std::time::Duration;

use drumfire_benches::{Arm, BUSY, Extent, Goal, Measured, Recipe, Results, busy_note, cell, interleave};
use drumfire_tools::choices::{Gro, SendMode, Stage, Steer, Suite};
use drumfire_tools::table::{Align, TextTable};

use super::{Bench, report, sender_cell, sizes};

const FLOWS: u32 = 64;
const SIZE: u32 = 128;

/// What every stage takes, and the sender seals, on a core of its own.
const RATE: u64 = 800_000;

/// Connections and threads of the spread.
const SPREAD: (u32, u32) = (200, 4);
const SPREAD_RATE: u64 = 20_000;

/// Packets per second with trains, in millions.
const TRAINS_MPPS: f64 = 2.0;

/// One subject: its name, stage and suite.
type Subject = (String, Stage, Suite);

/// The fastest first; both where the processor has instructions for the other.
fn suites() -> Vec<Suite> {
    let mut suites = vec![Suite::best()];
    if !suites.contains(&Suite::ChaCha20Poly1305) {
        suites.push(Suite::ChaCha20Poly1305);
    }
    suites
}

/// Each after the one it adds a stage to, but for the second suite's first.
fn subjects() -> Vec<Subject> {
    let plain = [Stage::Raw, Stage::Parse].map(|stage| (stage.to_string(), stage, Suite::best()));
    let sealed = suites().into_iter().flat_map(|suite| {
        [Stage::Open, Stage::Deliver].map(|stage| (format!("{stage}, {suite}"), stage, suite))
    });
    plain.into_iter().chain(sealed).collect()
}

/// The place of the subject that this one adds a stage to.
fn place_before(place: usize) -> Option<usize> {
    let subjects = subjects();
    let (_, stage, suite) = subjects.get(place)?;
    let before = match stage {
        Stage::Raw => return None,
        Stage::Parse => Stage::Raw,
        Stage::Open => Stage::Parse,
        Stage::Deliver => Stage::Open,
    };
    subjects.iter().position(|(_, stage, of)| *stage == before && (of == suite || !before.is_sealed()))
}

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let window = match bench.extent {
        Extent::Quick => Duration::from_millis(200),
        Extent::Default => Duration::from_millis(300),
        Extent::Full => bench.window,
    };
    let recipe = |stage: Stage, suite: Suite, gro: Gro, rate: u64| {
        let mut plan = bench.plan();
        (plan.stage, plan.suite, plan.gro) = (stage, suite, gro);
        let mut traffic = bench.traffic(FLOWS, SIZE, rate, SendMode::Gso);
        traffic.secs = window;
        Recipe { plan, traffic }
    };
    let mut arms: Vec<Arm<'_>> = Vec::new();
    for (name, stage, suite) in subjects() {
        let recipe = recipe(stage, suite, Gro::Off, RATE);
        arms.push(Arm::new(name, move || report(&recipe)));
    }
    for suite in suites() {
        let trains = recipe(Stage::Deliver, suite, Gro::On, 0);
        arms.push(Arm::new(format!("trains, {suite}"), move || report(&trains)));
    }
    let mut measured = interleave(arms, bench.warm_up, bench.rounds, bench.may_void())?;
    results.rounds("pipeline", &measured)?;
    let trains = measured.split_off(subjects().len());
    println!(
        "  {FLOWS} flows, {SIZE} B, {RATE} packets per second in trains that the receiver's kernel cuts, one thread"
    );
    println!("{}", table(&measured));
    figures(&measured, results);
    for (suite, trains) in suites().into_iter().zip(&trains) {
        let mpps = trains.pps().map(|spread| spread.median / 1e6);
        println!(
            "  the sender seals as fast as it can, on {} % of a core, trains taken whole, {suite}, Mpps: {}",
            sender_cell(trains),
            trains.rate_cell()
        );
        let name = format!("pipeline: delivered per second and thread with GRO, {suite}");
        let note = limit_note(trains);
        results.figure(name, mpps, "M", Goal::AtLeast(TRAINS_MPPS), &note);
    }
    if bench.extent == Extent::Full {
        sizes::measure(bench, results)?;
    }
    spread(bench, results)
}

fn table(measured: &[Measured]) -> String {
    let mut table = TextTable::new(&[
        ("stage", Align::Left),
        ("received Mpps", Align::Right),
        ("CPU ns/packet", Align::Right),
        ("stage adds ns", Align::Right),
        ("% of raw", Align::Right),
        ("sender % of a core", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    let raw = measured.first().and_then(Measured::cpu_ns);
    for (place, arm) in measured.iter().enumerate() {
        // The share of raw's rate that a core has time for.
        let share = raw.zip(arm.cpu_ns()).map(|(raw, ours)| raw.median / ours.median * 100.0);
        let before = place_before(place).and_then(|place| measured.get(place)?.cpu_ns());
        let adds = arm.cpu_ns().zip(before).map(|(ours, before)| ours.median - before.median);
        table.row([
            arm.name.clone(),
            cell(arm.spread(|report| Some(report.pps / 1e6)), 2),
            cell(arm.cpu_ns(), 0),
            adds.map_or_else(|| "-".to_owned(), |adds| format!("{adds:.0}")),
            share.map_or_else(|| "-".to_owned(), |share| format!("{share:.0}")),
            sender_cell(arm),
            arm.void_cell(),
        ]);
    }
    table.render()
}

fn figures(measured: &[Measured], results: &mut Results) {
    let Some(raw) = measured.first() else { return };
    let busy = busy_note(measured);
    for arm in measured.iter().filter(|arm| arm.name.starts_with("deliver")) {
        let (raw_ns, ours_ns) = (raw.cpu_ns().map(|ns| ns.median), arm.cpu_ns().map(|ns| ns.median));
        let both = raw_ns.zip(ours_ns);
        let is_fast = arm.name.ends_with(Suite::Aes128Gcm.name());
        let (share, added_ns) = if is_fast { (0.65, 320.0) } else { (0.55, 480.0) };
        let name = format!("pipeline: CPU per packet, raw over {}", arm.name);
        results.figure(name, both.map(|(raw, ours)| raw / ours), "x", Goal::AtLeast(share), busy);
        let name = format!("pipeline: CPU per packet, {} minus raw", arm.name);
        results.figure(name, both.map(|(raw, ours)| ours - raw), "ns", Goal::AtMost(added_ns), busy);
    }
}

fn limit_note(arm: &Measured) -> String {
    let limited = arm.limited_by().map(|by| format!("{by}-limited: the receiver may take more"));
    limited.unwrap_or_else(|| if arm.is_busy { BUSY } else { "" }.to_owned())
}

/// How evenly connections spread over threads.
fn spread(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let (flows, threads) = SPREAD;
    let mut plan = bench.plan();
    (plan.stage, plan.steer, plan.threads) = (Stage::Deliver, Steer::Tag, threads);
    plan.cores.clear();
    let mut traffic = bench.traffic(flows, SIZE, SPREAD_RATE, SendMode::Single);
    traffic.secs = Duration::from_millis(500);
    traffic.pin = None;
    let report = report(&Recipe { plan, traffic })?;
    results.run(&format!("pipeline: {flows} connections on {threads} threads"), &report)?;
    let name = format!("pipeline: busiest over mean, {flows} connections on {threads} threads");
    results.figure(name, report.spread_max_over_mean, "x", Goal::AtMost(1.05), "");
    let name = "pipeline: unexplained of the packets of these connections";
    let unexplained = report.books.unexplained().unsigned_abs() as f64;
    results.figure(name, Some(unexplained), "", Goal::AtMost(0.0), "");
    Ok(())
}
