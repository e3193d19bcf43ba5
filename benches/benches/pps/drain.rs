//! Ways to drain a socket at the same delivered load: a plain C loop, the reference drain, and batches that gather.

use std::path::Path;

use drumfire_benches::{
    Arm, ArmTable, Bench, CLoop, Goal, Measured, Pick, Values, busy_note, cell, median_cell,
};
use drumfire_socket::Wait;
use drumfire_tools::choices::{Drain, SendMode};
use drumfire_tools::report::Report;

use super::{RECEIVE_BUFFER_BYTES, Setup, sender_cell};

const FLOWS: u32 = 1_000;
const SIZE: u32 = 128;
const RATE: u64 = 250_000;

/// The share of the rate that a run must deliver. Below it the loads are not equal.
const DELIVERED: f64 = 0.98;

/// The value of receive calls per packet.
const CALLS: &str = "calls per packet";

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    let run = || setup.run(FLOWS, SIZE, RATE, SendMode::Single);
    let c_loop = CLoop::compile(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let core = setup.cores.first().copied().unwrap_or(0);
    let traffic = run().traffic;
    let mut arms = Vec::new();
    match &c_loop {
        Ok(c_loop) => {
            arms.push(Arm::new("C epoll + recvfrom", || {
                Ok((c_loop.run(core, RECEIVE_BUFFER_BYTES, &traffic)?, Values::new()))
            }));
        }
        Err(line) => println!("  {line}"),
    }
    for (name, drain, wait) in [
        ("recv, notify (reference)", Drain::Recv, Wait::Notify),
        ("recvmmsg, notify", Drain::Recvmmsg, Wait::Notify),
        ("recvmmsg, gather 130 us", Drain::Recvmmsg, Wait::Gather(Wait::GATHER)),
    ] {
        let mut run = run();
        (run.receiver.drain, run.receiver.wait) = (drain, wait);
        arms.push(Arm::new(name, move || {
            let outcome = run.outcome()?;
            let calls = outcome.receive_calls as f64 / outcome.report.books.received.max(1) as f64;
            Ok((outcome.report, Values::from([(CALLS, calls)])))
        }));
    }
    let measured = setup.interleave(arms)?;
    ArmTable::new("drain", &measured)
        .column("packets/s", |arm| median_cell(arm.pps(), 0))
        .column("CPU ns/packet", |arm| cell(arm.cpu_ns(), 0))
        .column("p50 us", |arm| cell(arm.micros(|latency| latency.p50), 0))
        .column("p90 us", |arm| cell(arm.micros(P90), 0))
        .column("sender % of a core", sender_cell)
        .print_with_limits();
    bench.results.rounds("drain", &measured)?;
    figures(&measured, bench);
    Ok(())
}

const P90: Pick = |latency| latency.p90;

fn figures(measured: &[Measured], bench: &mut Bench) {
    let arm = |name: &str| measured.iter().find(|arm| arm.name.starts_with(name));
    let cpu = |name: &str| arm(name)?.cpu_ns().map(|spread| spread.median);
    let ratio = |over: &str, under: &str| Some(cpu(over)? / cpu(under)?);
    let p90 = |name: &str| arm(name)?.micros(P90).map(|spread| spread.median);
    let note = load_note(measured, RATE);
    let mut figure = |name: &str, value, unit, goal| {
        bench.results.figure(format!("drain: {name}"), value, unit, goal, note);
    };
    let over_gathered = ratio("recv,", "recvmmsg, gather");
    figure("reference CPU per packet over gathered recvmmsg", over_gathered, "x", Goal::AtLeast(1.5));
    let added = p90("recvmmsg, gather").zip(p90("recv,")).map(|(gather, reference)| gather - reference);
    figure("p90 added by gathering", added, "us", Goal::AtMost(150.0));
    let over_c = ratio("recv,", "C epoll");
    figure("reference CPU per packet over the C loop", over_c, "x", Goal::AtMost(1.15));
    let calls = arm("recvmmsg, gather").and_then(|arm| arm.value(CALLS));
    bench.results.figure(
        "drain: receive calls per packet when gathering",
        calls,
        "calls",
        Goal::AtMost(0.25),
        "",
    );
}

/// The note next to a comparison at equal load: whether all arms delivered this rate, and whether the machine was busy.
fn load_note(measured: &[Measured], rate: u64) -> &'static str {
    let is_kept = |report: &Report| report.pps >= rate as f64 * DELIVERED;
    let is_equal = measured.iter().all(|arm| arm.rounds.iter().all(is_kept));
    match (busy_note(measured), is_equal) {
        ("", false) => "not all rounds delivered the whole rate: no equal load",
        (busy, _) => busy,
    }
}
