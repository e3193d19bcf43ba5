//! The drain: a plain C loop, the reference drain, and batches that gather, at the same delivered load.

use std::path::Path;

use std::cell::RefCell;

use drumfire_benches::{
    Arm, CLoop, Goal, Measured, Recipe, Results, Spread, busy_note, cell, interleave, run,
};
use drumfire_socket::{Parker, Poller, Wait};
use drumfire_tools::choices::{Drain, SendMode};
use drumfire_tools::host::{self, ThreadClock};
use drumfire_tools::report::Report;
use drumfire_tools::table::{Align, TextTable};

use super::{Bench, RECEIVE_BUFFER_BYTES, report_of, sender_cell};

const FLOWS: u32 = 1_000;
const SIZE: u32 = 128;
const RATE: u64 = 250_000;

/// Naps over which their cost is averaged.
const NAPS: u32 = 3_000;

/// A run that got less of its rate through than this is not at equal load.
const DELIVERED: f64 = 0.98;

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let traffic = bench.traffic(FLOWS, SIZE, RATE, SendMode::Single);
    let mut reference = bench.plan();
    reference.drain = Drain::Recv;
    reference.wait = Wait::Notify;
    let mut gathered = bench.plan();
    gathered.wait = Wait::Gather(Wait::GATHER);
    let mut batched = bench.plan();
    batched.wait = Wait::Notify;

    let c_loop = CLoop::compile(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let core = bench.cores.first().copied().unwrap_or(0);
    let calls_per_packet = RefCell::new(Vec::new());
    let mut arms = Vec::new();
    match &c_loop {
        Ok(c_loop) => {
            arms.push(Arm::new("C epoll + recvfrom", || c_loop.run(core, RECEIVE_BUFFER_BYTES, &traffic)));
        }
        Err(line) => println!("  {line}"),
    }
    for (name, plan) in [
        ("recv, notify (reference)", reference),
        ("recvmmsg, notify", batched),
        ("recvmmsg, gather 130 us", gathered),
    ] {
        let recipe = Recipe { plan, traffic: traffic.clone() };
        let calls_per_packet = &calls_per_packet;
        arms.push(Arm::new(name, move || {
            let outcome = run(&recipe)?;
            if name.contains("gather") {
                let packets = outcome.books.received.max(1) as f64;
                calls_per_packet.borrow_mut().push(outcome.calls.receive_calls as f64 / packets);
            }
            Ok(report_of(&recipe, &outcome))
        }));
    }
    let measured = interleave(arms, bench.warm_up, bench.rounds, bench.may_void())?;
    print(&measured);
    results.rounds("drain", &measured)?;
    figures(&measured, results);
    let calls = Spread::of(calls_per_packet.take()).map(|spread| spread.median);
    let name = "drain: receive calls per packet when gathering";
    results.figure(name, calls, "calls", Goal::AtMost(0.25), "");
    let nap = nap_cpu_us(core);
    let idle = host::idle().unwrap_or_default();
    results.figure("drain: CPU of one nap of 130 us with nothing to do", nap, "us", Goal::Shown, &idle);
    Ok(())
}

/// What a nap costs its own thread: the part of gathering that no batch makes cheaper.
fn nap_cpu_us(core: usize) -> Option<f64> {
    let napper = std::thread::spawn(move || {
        host::pin_current_thread(core).ok()?;
        let mut poller = Poller::new().ok()?;
        let thread = host::current_thread_id()?;
        let before = ThreadClock::sample(thread)?;
        for _ in 0..NAPS {
            poller.nap(Wait::GATHER);
        }
        let used = ThreadClock::sample(thread)?.since(&before);
        Some(used.run_ns as f64 / 1e3 / f64::from(NAPS))
    });
    napper.join().ok().flatten()
}

fn print(measured: &[Measured]) {
    println!(
        "  {FLOWS} flows, {SIZE} B, single sends, {RATE} packets per second offered, one thread, raw stage"
    );
    let mut table = TextTable::new(&[
        ("drain", Align::Left),
        ("packets/s", Align::Right),
        ("CPU ns/packet", Align::Right),
        ("p50 us", Align::Right),
        ("p90 us", Align::Right),
        ("sender % of a core", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    for arm in measured {
        let pps = arm.pps().map_or_else(|| "-".to_owned(), |spread| format!("{:.0}", spread.median));
        let latency = |pick: fn(&Report) -> Option<f64>| cell(arm.spread(pick), 0);
        table.row([
            arm.name.clone(),
            pps,
            cell(arm.cpu_ns(), 0),
            latency(p50_us),
            latency(p90_us),
            sender_cell(arm),
            arm.void_cell(),
        ]);
    }
    println!("{}", table.render());
}

fn p50_us(report: &Report) -> Option<f64> {
    Some(report.latency_ns?.p50 as f64 / 1e3)
}

fn p90_us(report: &Report) -> Option<f64> {
    Some(report.latency_ns?.p90 as f64 / 1e3)
}

fn figures(measured: &[Measured], results: &mut Results) {
    let arm = |name: &str| measured.iter().find(|arm| arm.name.starts_with(name));
    let cpu = |name: &str| arm(name)?.cpu_ns().map(|spread| spread.median);
    let ratio = |over: &str, under: &str| Some(cpu(over)? / cpu(under)?);
    let note = load_note(measured);
    results.figure(
        "drain: reference CPU per packet over gathered recvmmsg",
        ratio("recv,", "recvmmsg, gather"),
        "x",
        Goal::AtLeast(1.5),
        &note,
    );
    results.figure(
        "drain: p90 added by gathering",
        arm("recvmmsg, gather").zip(arm("recv,")).and_then(|(ours, theirs)| {
            let ours = ours.spread(p90_us)?.median;
            Some(ours - theirs.spread(p90_us)?.median)
        }),
        "us",
        Goal::AtMost(150.0),
        &note,
    );
    results.figure(
        "drain: reference CPU per packet over the C loop",
        ratio("recv,", "C epoll"),
        "x",
        Goal::AtMost(1.15),
        &note,
    );
    results.figure(
        "drain: reference CPU per packet over recvmmsg, both notified",
        ratio("recv,", "recvmmsg, notify"),
        "x",
        Goal::Shown,
        &note,
    );
}

/// Whether all arms really received the load they are compared at.
fn load_note(measured: &[Measured]) -> String {
    let is_kept = |report: &Report| report.pps >= RATE as f64 * DELIVERED;
    let is_equal = measured.iter().all(|arm| arm.rounds.iter().all(is_kept));
    match (busy_note(measured), is_equal) {
        ("", true) => String::new(),
        ("", false) => "not all rounds delivered the whole rate: no equal load".to_owned(),
        (busy, _) => busy.to_owned(),
    }
}
