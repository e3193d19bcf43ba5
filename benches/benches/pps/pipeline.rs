//! The pipeline, stage by stage: what parsing, opening, and acknowledging and delivering add to a bare receive.

use std::time::Duration;

use drumfire_benches::{Arm, Extent, Goal, Measured, Recipe, Results, busy_note, interleave};
use drumfire_tools::choices::{Gro, SendMode, Stage, Steer, Suite};
use drumfire_tools::table::{Align, TextTable};

use super::{Bench, cell, report};

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

fn subjects() -> Vec<Subject> {
    let mut suites = vec![Suite::best()];
    if !suites.contains(&Suite::ChaCha20Poly1305) {
        suites.push(Suite::ChaCha20Poly1305);
    }
    let plain = [Stage::Raw, Stage::Parse].map(|stage| (stage.to_string(), stage, Suite::best()));
    let sealed = suites.into_iter().flat_map(|suite| {
        [Stage::Open, Stage::Deliver].map(|stage| (format!("{stage}, {suite}"), stage, suite))
    });
    plain.into_iter().chain(sealed).collect()
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
    let trains = recipe(Stage::Deliver, Suite::best(), Gro::On, 0);
    arms.push(Arm::new("deliver, trains", move || report(&trains)));
    let mut measured = interleave(arms, bench.warm_up, bench.rounds, bench.may_void())?;
    for arm in &measured {
        for round in &arm.rounds {
            results.run(&format!("pipeline: {}", arm.name), round)?;
        }
    }
    let trains = measured.pop();
    println!(
        "  {FLOWS} flows, {SIZE} B, {RATE} packets per second in trains that the receiver's kernel cuts, one thread"
    );
    println!("{}", table(&measured));
    figures(&measured, results);
    if let Some(trains) = trains {
        let mpps = trains.spread(|report| Some(report.pps / 1e6)).map(|spread| spread.median);
        println!("  the sender seals as fast as it can, trains taken whole: {}", cell(trains.pps(), 0));
        let name = format!("pipeline: delivered per second and thread with GRO, {}", Suite::best());
        let note = limit_note(&trains);
        results.figure(name, mpps, "M", Goal::AtLeast(TRAINS_MPPS), &note);
    }
    spread(bench, results)
}

fn table(measured: &[Measured]) -> String {
    let mut table = TextTable::new(&[
        ("stage", Align::Left),
        ("received Mpps", Align::Right),
        ("CPU ns/packet", Align::Right),
        ("of raw", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    let raw = measured.first().and_then(Measured::cpu_ns);
    for arm in measured {
        let share = raw.zip(arm.cpu_ns()).map(|(raw, ours)| ours.median / raw.median * 100.0);
        table.row([
            arm.name.clone(),
            cell(arm.spread(|report| Some(report.pps / 1e6)), 2),
            cell(arm.cpu_ns(), 0),
            share.map_or_else(|| "-".to_owned(), |share| format!("{share:.0} %")),
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
    let limited = arm.rounds.iter().filter(|round| round.limited_by.is_some()).count();
    if limited * 2 > arm.rounds.len() { "sender-limited".to_owned() } else { String::new() }
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
    results.figure(name, Some(report.books.unexplained() as f64), "", Goal::AtMost(0.0), "");
    Ok(())
}
