//! The hop: the whole pipeline run to completion on the thread that received, against the same stages behind a channel to
//! a second thread.
//!
//! At a rate that both deliver, CPU time per packet of all their threads is compared. What each carries at most is compared
//! only where three threads have a core each.

use drumfire_benches::{Arm, Extent, Goal, Measured, Recipe, Results, busy_note, cell, interleave};
use drumfire_tools::choices::{SendMode, Stage, Suite};
use drumfire_tools::table::{Align, TextTable};

use super::{Bench, report};

const FLOWS: u32 = 64;
const SIZE: u32 = 128;

/// What both deliver, sent one by one as by separate players.
const RATE: u64 = 100_000;

/// The same where packets come many at a time, so that a wake-up serves many.
const DENSE_RATE: u64 = 250_000;

/// A round that got less of its rate through is not at equal load.
const DELIVERED: f64 = 0.98;

/// A receiver, its second thread and a sender.
const THREADS: usize = 3;

const RATIO: f64 = 2.0;

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    println!(
        "  {FLOWS} connections, {SIZE} B, opened, acknowledged and delivered, {}; std's bounded channel, a packet at a time",
        Suite::best()
    );
    let equal = pair(bench, RATE, SendMode::Single)?;
    print(&format!("{RATE} packets per second, sent singly"), &equal, results)?;
    let ratio = |arms: &[Measured], of: fn(&Measured) -> Option<f64>| match arms {
        [whole, hop] => Some(of(hop)? / of(whole)?),
        _ => None,
    };
    let cpu = ratio(&equal, |arm| Some(arm.cpu_ns()?.median));
    let name = "hop: CPU per packet behind a channel over run to completion";
    results.figure(name, cpu, "x", Goal::AtLeast(RATIO), note_of(&equal, RATE));
    if bench.extent != Extent::Quick {
        let dense = pair(bench, DENSE_RATE, SendMode::Gso)?;
        print(
            &format!("{DENSE_RATE} packets per second, sent in trains that the receiver's kernel cuts"),
            &dense,
            results,
        )?;
        let name = "hop: the same in trains, which wake both threads less often";
        results.figure(
            name,
            ratio(&dense, |arm| Some(arm.cpu_ns()?.median)),
            "x",
            Goal::Shown,
            note_of(&dense, DENSE_RATE),
        );
    }
    let name = "hop: packets per second run to completion over behind a channel";
    if bench.cores.len() < THREADS {
        println!("  what each carries at most: not measurable on {} cores", bench.cores.len());
        results.figure(name, None, "x", Goal::AtLeast(RATIO), "not measurable on so few cores");
        return Ok(());
    }
    let most = pair(bench, 0, SendMode::Gso)?;
    print("as fast as it goes, in trains", &most, results)?;
    let behind = ratio(&most, |arm| Some(arm.pps()?.median)).map(|ratio| 1.0 / ratio);
    let limited = most.iter().find_map(Measured::limited_by).map(|by| format!("{by}-limited"));
    let note = limited.unwrap_or_else(|| busy_note(&most).to_owned());
    results.figure(name, behind, "x", Goal::AtLeast(RATIO), &note);
    Ok(())
}

/// Whether both really delivered the load they are compared at.
fn note_of(arms: &[Measured], rate: u64) -> &'static str {
    let is_kept = arms.iter().flat_map(|arm| &arm.rounds).all(|round| round.pps >= rate as f64 * DELIVERED);
    match (busy_note(arms), is_kept) {
        ("", false) => "not all rounds delivered the whole rate: no equal load",
        (busy, _) => busy,
    }
}

/// Both ways at this rate.
fn pair(bench: &Bench, rate: u64, send: SendMode) -> Result<Vec<Measured>, String> {
    let arm = |name: &str, has_hop: bool| {
        let mut plan = bench.plan();
        (plan.stage, plan.has_hop) = (Stage::Deliver, has_hop);
        // The second thread behind the first one, and the sender behind both where there are cores.
        plan.cores = bench.cores.iter().copied().take(THREADS - 1).collect();
        let mut traffic = bench.traffic(FLOWS, SIZE, rate, send);
        traffic.pin = Some(if bench.cores.len() < THREADS { 1 } else { 2 });
        let recipe = Recipe { plan, traffic };
        Arm::new(name, move || report(&recipe))
    };
    let arms = vec![arm("run to completion", false), arm("channel hop", true)];
    interleave(arms, bench.warm_up, bench.rounds, bench.may_void())
}

fn print(load: &str, arms: &[Measured], results: &mut Results) -> Result<(), String> {
    println!("  {load}");
    let mut table = TextTable::new(&[
        ("stages", Align::Left),
        ("delivered/s", Align::Right),
        ("CPU ns/packet", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    for arm in arms {
        table.row([arm.name.clone(), cell(arm.pps(), 0), cell(arm.cpu_ns(), 0), arm.void_cell()]);
    }
    println!("{}", table.render());
    results.rounds(&format!("hop, {load}"), arms)
}
