//! The pipeline stage by stage: the cost that parsing, opening, and delivering add to a bare receive.

use std::time::Duration;

use drumfire_benches::{Arm, ArmTable, Bench, Goal, Measured, busy_note, cell};
use drumfire_tools::choices::{Gro, SendMode, Stage, Suite};

use super::{Setup, mpps_cell, sender_cell};

const FLOWS: u32 = 64;
const SIZE: u32 = 128;

/// A rate that every stage receives and the sender can seal, on a core of its own.
const RATE: u64 = 800_000;

/// Packets per second with trains, in millions.
const TRAINS_MPPS: f64 = 2.0;

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
    print_stages(&stages, &measured);
    figures(&measured, bench);
    for (suite, trains) in suites().into_iter().zip(&trains) {
        let name = format!("pipeline: delivered per second and thread with GRO, {suite}");
        let limited = trains.limited_by().map(|by| format!("{by}-limited: the receiver may take more"));
        let note = limited.unwrap_or_else(|| busy_note([trains]).to_owned());
        let mpps = trains.pps().map(|spread| spread.median / 1e6);
        bench.results.figure(name, mpps, "M", Goal::AtLeast(TRAINS_MPPS), &note);
    }
    Ok(())
}

fn print_stages(stages: &[StageArm], measured: &[Measured]) {
    let raw = measured.first().and_then(Measured::cpu_ns);
    let added = |arm: &Measured| {
        let before = stages.iter().find(|of| of.name == arm.name)?.before?;
        Some(arm.cpu_ns()?.median - measured.get(before)?.cpu_ns()?.median)
    };
    ArmTable::new("stage", measured)
        .column("received Mpps", mpps_cell)
        .column("CPU ns/packet", |arm| cell(arm.cpu_ns(), 0))
        .column("stage adds ns", |arm| added(arm).map_or_else(String::new, |added| format!("{added:.0}")))
        // The rate for which a core has time, over that of the raw stage.
        .column("% of raw", |arm| {
            let share = raw.zip(arm.cpu_ns()).map(|(raw, arm)| raw.median / arm.median * 100.0);
            share.map_or_else(String::new, |share| format!("{share:.0}"))
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
