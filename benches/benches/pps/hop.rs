//! The whole pipeline on the thread that received, against the same stages behind a channel to a second thread.
//!
//! CPU time per packet of all their threads is compared at a rate that both deliver. Their rates are compared only where three threads
//! have a core each.

use drumfire_benches::{ArmTable, Bench, Goal, Measured, cell};
use drumfire_tools::choices::{SendMode, Stage, Suite};

use super::drain::load_note;
use super::{Setup, rate_ratio};

const FLOWS: u32 = 64;
const SIZE: u32 = 128;

/// A rate that both deliver, in single packets as from separate players.
const RATE: u64 = 100_000;

/// A rate that both deliver in trains, so that one wake-up serves many packets.
const DENSE_RATE: u64 = 250_000;

/// A receiver, its second thread, and a sender.
const THREADS: usize = 3;

const RATIO: f64 = 2.0;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    println!(
        "  {FLOWS} connections, {SIZE} B, opened, acknowledged, and delivered, {}; std's bounded channel, a packet at a time",
        Suite::best()
    );
    let equal = pair(bench, &setup, RATE, SendMode::Single, "100000 packets per second, sent singly")?;
    let name = "hop: CPU per packet behind a channel over run to completion";
    let note = load_note(&equal, RATE);
    bench.results.figure(name, cpu_ratio(&equal), "x", Goal::AtLeast(RATIO), note);
    if setup.extent.pick(false, true, true) {
        let load = "250000 packets per second, sent in trains that the receiver's kernel cuts";
        let dense = pair(bench, &setup, DENSE_RATE, SendMode::Gso, load)?;
        let name = "hop: the same in trains, which wake both threads less often";
        let note = load_note(&dense, DENSE_RATE);
        bench.results.figure(name, cpu_ratio(&dense), "x", Goal::Shown, note);
    }
    let name = "hop: packets per second run to completion over behind a channel";
    if setup.cores.len() < THREADS {
        println!("  the rate of each: not measurable on {} cores", setup.cores.len());
        let note = "not measurable on so few cores";
        bench.results.figure(name, None, "x", Goal::AtLeast(RATIO), note);
        return Ok(());
    }
    let most = pair(bench, &setup, 0, SendMode::Gso, "as fast as possible, in trains")?;
    let [whole, hop] = most.as_slice() else { return Ok(()) };
    let (ratio, note) = rate_ratio(whole, hop);
    bench.results.figure(name, ratio, "x", Goal::AtLeast(RATIO), &note);
    Ok(())
}

fn cpu_ratio(arms: &[Measured]) -> Option<f64> {
    let [whole, hop] = arms else { return None };
    Some(hop.cpu_ns()?.median / whole.cpu_ns()?.median)
}

/// Measures both ways at this rate.
fn pair(
    bench: &mut Bench,
    setup: &Setup,
    rate: u64,
    send: SendMode,
    load: &str,
) -> Result<Vec<Measured>, String> {
    let arm = |name: &str, has_hop: bool| {
        let mut run = setup.run(FLOWS, SIZE, rate, send);
        (run.receiver.stage, run.receiver.has_hop) = (Stage::Deliver, has_hop);
        // The second thread has the core after the first one, and the sender a third one if there is one.
        run.receiver.cores = setup.cores.iter().copied().take(THREADS - 1).collect();
        run.traffic.pin = Some(if setup.cores.len() < THREADS { 1 } else { 2 });
        run.arm(name)
    };
    let measured = setup.interleave(vec![arm("run to completion", false), arm("channel hop", true)])?;
    println!("  {load}");
    ArmTable::new("stages", &measured)
        .column("delivered/s", |arm| cell(arm.pps(), 0))
        .column("CPU ns/packet", |arm| cell(arm.cpu_ns(), 0))
        .print_with_limits();
    bench.results.rounds(&format!("hop, {load}"), &measured)?;
    Ok(measured)
}
