//! The pipeline stage by stage: what parsing, opening, and delivering add to a bare receive. A full run adds sizes of packets.

use std::time::Duration;

use drumfire_benches::{Arm, ArmTable, Bench, Extent, Goal, Measured, busy_note, cell};
use drumfire_tools::choices::{Gro, SendMode, Stage, Steer, Suite};

use super::{Setup, dash, rate_ratio, sender_cell};

const FLOWS: u32 = 64;
const SIZE: u32 = 128;

/// A rate that every stage receives and the sender can seal, on a core of its own.
const RATE: u64 = 800_000;

/// Connections and threads of the spread.
const SPREAD: (u32, u32) = (200, 4);
const SPREAD_RATE: u64 = 20_000;

/// Packets per second with trains, in millions.
const TRAINS_MPPS: f64 = 2.0;

const SIZES: [u32; 4] = [64, 128, 512, 1_200];

/// A rate at which the largest packets are no load of their own.
const SIZES_RATE: u64 = 200_000;

/// Returns the fastest suite, and the other one where the processor has instructions for the first.
fn suites() -> Vec<Suite> {
    let mut suites = vec![Suite::best()];
    if !suites.contains(&Suite::ChaCha20Poly1305) {
        suites.push(Suite::ChaCha20Poly1305);
    }
    suites
}

/// A stage with its suite, and the index of the stage that it adds to.
struct StageArm {
    name: String,
    stage: Stage,
    suite: Suite,
    before: Option<usize>,
}

fn stages() -> Vec<StageArm> {
    let plain =
        |stage: Stage, before| StageArm { name: stage.to_string(), stage, suite: Suite::best(), before };
    let mut all = vec![plain(Stage::Raw, None), plain(Stage::Parse, Some(0))];
    for suite in suites() {
        let open = all.len();
        for (stage, before) in [(Stage::Open, 1), (Stage::Deliver, open)] {
            all.push(StageArm { name: format!("{stage}, {suite}"), stage, suite, before: Some(before) });
        }
    }
    all
}

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    let window = setup.extent.pick(Duration::from_millis(200), Duration::from_millis(300), setup.window);
    let arm = |name: &str, stage: Stage, suite: Suite, gro: Gro, rate: u64| {
        let mut run = setup.run(FLOWS, SIZE, rate, SendMode::Gso);
        (run.receiver.stage, run.receiver.suite, run.receiver.gro) = (stage, suite, gro);
        run.traffic.secs = window;
        run.arm(name)
    };
    let stages = stages();
    let mut arms: Vec<Arm<'_>> = Vec::new();
    arms.extend(stages.iter().map(|of| arm(&of.name, of.stage, of.suite, Gro::Off, RATE)));
    let trains =
        suites().into_iter().map(|suite| arm(&format!("trains, {suite}"), Stage::Deliver, suite, Gro::On, 0));
    arms.extend(trains);
    let mut measured = setup.interleave(arms)?;
    bench.results.rounds("pipeline", &measured)?;
    let trains = measured.split_off(stages.len());
    println!(
        "  {FLOWS} flows, {SIZE} B, {RATE} packets per second in trains that the receiver's kernel cuts, one thread"
    );
    print_stages(&stages, &measured);
    figures(&measured, bench);
    for (suite, trains) in suites().into_iter().zip(&trains) {
        println!(
            "  the sender seals as fast as possible, on {} % of a core, trains received as a whole, {suite}, Mpps: {}",
            sender_cell(trains),
            trains.rate_cell()
        );
        let name = format!("pipeline: delivered per second and thread with GRO, {suite}");
        let limited = trains.limited_by().map(|by| format!("{by}-limited: the receiver may take more"));
        let note = limited.unwrap_or_else(|| trains.busy_or("").to_owned());
        let mpps = trains.pps().map(|spread| spread.median / 1e6);
        bench.results.figure(name, mpps, "M", Goal::AtLeast(TRAINS_MPPS), &note);
    }
    if setup.extent == Extent::Full {
        sizes(bench, &setup)?;
    }
    spread(bench, &setup)
}

fn print_stages(stages: &[StageArm], measured: &[Measured]) {
    let raw = measured.first().and_then(Measured::cpu_ns);
    let added = |arm: &Measured| {
        let before = stages.iter().find(|of| of.name == arm.name)?.before?;
        Some(arm.cpu_ns()?.median - measured.get(before)?.cpu_ns()?.median)
    };
    ArmTable::new("stage", measured)
        .column("received Mpps", |arm| cell(arm.spread(|report| Some(report.pps / 1e6)), 2))
        .column("CPU ns/packet", |arm| cell(arm.cpu_ns(), 0))
        .column("stage adds ns", |arm| added(arm).map_or_else(dash, |added| format!("{added:.0}")))
        // The rate for which a core has time, over that of the raw stage.
        .column("% of raw", |arm| {
            let share = raw.zip(arm.cpu_ns()).map(|(raw, arm)| raw.median / arm.median * 100.0);
            share.map_or_else(dash, |share| format!("{share:.0}"))
        })
        .column("sender % of a core", sender_cell)
        .print_with_limits();
}

fn figures(measured: &[Measured], bench: &mut Bench) {
    let Some(raw) = measured.first() else { return };
    let busy = busy_note(measured);
    for arm in measured.iter().filter(|arm| arm.name.starts_with("deliver")) {
        let both = raw.cpu_ns().zip(arm.cpu_ns()).map(|(raw, arm)| (raw.median, arm.median));
        let is_fast = arm.name.ends_with(Suite::Aes128Gcm.name());
        let (share, added_ns) = if is_fast { (0.65, 320.0) } else { (0.55, 480.0) };
        let name = format!("pipeline: CPU per packet, raw over {}", arm.name);
        bench.results.figure(name, both.map(|(raw, arm)| raw / arm), "x", Goal::AtLeast(share), busy);
        let name = format!("pipeline: CPU per packet, {} minus raw", arm.name);
        bench.results.figure(name, both.map(|(raw, arm)| arm - raw), "ns", Goal::AtMost(added_ns), busy);
    }
}

/// Compares the raw and the deliver stage for each size: the CPU time of a packet at one rate, and the rates without a limit. The sender
/// seals what the pipeline opens, so it may be the limit. Sealed packets are never shorter than the smallest of these sizes.
fn sizes(bench: &mut Bench, setup: &Setup) -> Result<(), String> {
    for (part, rate) in [("pipeline sizes", SIZES_RATE), ("pipeline rates", 0)] {
        let arm = |size: u32, stage: Stage| {
            let mut run = setup.run(FLOWS, size, rate, SendMode::Gso);
            (run.receiver.stage, run.receiver.suite) = (stage, Suite::best());
            run.arm(format!("{size} B, {stage}"))
        };
        let arms = SIZES.into_iter().flat_map(|size| [arm(size, Stage::Raw), arm(size, Stage::Deliver)]);
        let measured = setup.interleave(arms.collect())?;
        bench.results.rounds(part, &measured)?;
        println!(
            "  {FLOWS} flows, {rate} packets per second (0 is as fast as possible), GRO off, {}",
            Suite::best()
        );
        ArmTable::new("size, stage", &measured)
            .column("Mpps", Measured::rate_cell)
            .column("CPU ns/packet", |arm| cell(arm.cpu_ns(), 0))
            .column("sender % of a core", sender_cell)
            .print_with_limits();
        for (size, pair) in SIZES.into_iter().zip(measured.chunks(2)) {
            let [raw, deliver] = pair else { continue };
            let suite = Suite::best();
            if rate > 0 {
                let share = raw.cpu_ns().zip(deliver.cpu_ns());
                let share = share.map(|(raw, deliver)| raw.median / deliver.median);
                let name = format!("pipeline: CPU per packet of {size} B, raw over deliver, {suite}");
                bench.results.figure(name, share, "x", Goal::Shown, busy_note(pair));
            } else {
                let (ratio, note) = rate_ratio(deliver, raw);
                let name = format!("pipeline: packets of {size} B per second, deliver over raw, {suite}");
                bench.results.figure(name, ratio, "x", Goal::Shown, &note);
            }
        }
    }
    Ok(())
}

/// Shows how evenly connections spread over threads.
fn spread(bench: &mut Bench, setup: &Setup) -> Result<(), String> {
    let (flows, threads) = SPREAD;
    let mut run = setup.run(flows, SIZE, SPREAD_RATE, SendMode::Single);
    (run.receiver.stage, run.receiver.steer, run.receiver.threads) = (Stage::Deliver, Steer::Tag, threads);
    run.receiver.cores.clear();
    (run.traffic.secs, run.traffic.pin) = (Duration::from_millis(500), None);
    let report = run.report()?;
    bench.results.run(&format!("pipeline: {flows} connections on {threads} threads"), &report)?;
    let name = format!("pipeline: busiest over mean, {flows} connections on {threads} threads");
    bench.results.figure(name, report.spread_max_over_mean, "x", Goal::AtMost(1.05), "");
    let unexplained = report.books.unexplained().unsigned_abs() as f64;
    let name = "pipeline: unexplained of the packets of these connections";
    bench.results.figure(name, Some(unexplained), "", Goal::AtMost(0.0), "");
    Ok(())
}
