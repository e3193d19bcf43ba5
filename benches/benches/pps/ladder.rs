//! Rates without a limit: trains, and a ladder of drains by sizes by threads by send modes.

use std::time::Duration;

use drumfire_benches::{Bench, Goal, Measured, cell, column, interleave, median_cell, print_table};
use drumfire_tools::choices::{Drain, Gro, SendMode, Steer};
use drumfire_tools::report::KERNEL_RECEIVE_QUEUE;
use drumfire_tools::table::thousands;

use super::{Setup, arm, dash, rate_ratio, sender_cell};

const FLOWS: u32 = 64;

/// The size of trains, and the size at which more threads than cores show how flows spread.
const SIZE: u32 = 128;

/// Single datagrams, trains that the receiver's kernel cuts, and trains received as a whole.
pub(super) fn trains(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    let arm = |name: &str, send: SendMode, gro: Gro| {
        let mut plan = setup.receiver();
        plan.gro = gro;
        arm(name, plan, setup.traffic(FLOWS, SIZE, 0, send))
    };
    let measured = setup.interleave(vec![
        arm("single", SendMode::Single, Gro::Off),
        arm("GSO, GRO off", SendMode::Gso, Gro::Off),
        arm("GSO, GRO on", SendMode::Gso, Gro::On),
    ])?;
    println!("  {FLOWS} flows, {SIZE} B, as fast as possible, one thread, raw stage");
    print_table(
        "send and receive",
        &measured,
        &[
            column("received Mpps", Measured::rate_cell),
            column("sent Mpps", |arm| {
                cell(arm.spread(|report| Some(report.books.sent as f64 / report.window_s / 1e6)), 2)
            }),
            column("CPU ns/packet", |arm| cell(arm.cpu_ns(), 0)),
            column("sender % of a core", sender_cell),
        ],
    );
    bench.results.rounds("trains", &measured)?;
    let [single, cut, whole] = measured.as_slice() else { return Ok(()) };
    for (name, under, goal) in [
        ("trains: packets per second, GSO with GRO over single", single, 25.0),
        ("trains: packets per second, GSO with GRO over GSO without", cut, 7.0),
    ] {
        let (ratio, note) = rate_ratio(whole, under);
        bench.results.figure(name, ratio, "x", Goal::AtLeast(goal), &note);
    }
    Ok(())
}

const DRAINS: [(&str, Drain, Gro); 3] = [
    ("recv", Drain::Recv, Gro::Off),
    ("recvmmsg", Drain::Recvmmsg, Gro::Off),
    ("recvmmsg + GRO", Drain::Recvmmsg, Gro::On),
];

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    let sizes: &[u32] = setup.extent.pick(&[128], &[32, 128, 512, 1_200], &[32, 128, 512, 1_200]);
    let threads: &[u32] = setup.extent.pick(&[1, 2], &[1, 2, 4, 8, 16], &[1, 2, 4, 8, 16]);
    let few: &[SendMode] = &[SendMode::Single, SendMode::Gso];
    let sends = setup.extent.pick(few, few, &[SendMode::Single, SendMode::Sendmmsg, SendMode::Gso]);
    println!(
        "  {FLOWS} flows steered by tag, as fast as possible, raw stage, one sender thread, whose share of a core is shown; books close \
         in every row"
    );
    for &size in sizes {
        for &threads in threads {
            // Spread and books are the same for all sizes. Except in a full run, one size shows them.
            let is_full = setup.extent.pick(false, false, true);
            if setup.has_cores_for(threads) || is_full || size == SIZE {
                rung(bench, &setup, size, threads, sends)?;
            }
        }
    }
    if !threads.iter().all(|threads| setup.has_cores_for(*threads)) {
        let cores = setup.cores.len();
        println!(
            "  throughput of more threads than cores next to the sender: not measurable on {cores} cores"
        );
    }
    Ok(())
}

/// Measures all drains and send modes of one size and number of threads, interleaved.
fn rung(bench: &mut Bench, setup: &Setup, size: u32, threads: u32, sends: &[SendMode]) -> Result<(), String> {
    let window = Duration::from_millis(setup.extent.pick(100, 120, 500));
    let is_measurable = setup.has_cores_for(threads);
    let mut arms = Vec::new();
    for &send in sends {
        for (name, drain, gro) in DRAINS {
            let mut plan = setup.receiver();
            (plan.drain, plan.gro, plan.threads, plan.steer) = (drain, gro, threads, Steer::Tag);
            let cores = if is_measurable { threads as usize } else { 0 };
            plan.cores = setup.cores.iter().copied().take(cores).collect();
            let mut traffic = setup.traffic(FLOWS, size, 0, send);
            (traffic.secs, traffic.pin) = (window, is_measurable.then_some(threads));
            arms.push(arm(format!("{name} / {send}"), plan, traffic));
        }
    }
    // Without cores for all threads only spread and books are shown, and one round shows them.
    let measured = if is_measurable { setup.interleave(arms)? } else { interleave(arms, 0, 1, false)? };
    let or_dash = |text: String| if is_measurable { text } else { dash() };
    println!("  {size} B, {threads} thread(s)");
    print_table(
        "drain / send",
        &measured,
        &[
            column("received Mpps", |arm| or_dash(arm.rate_cell())),
            column("of sent %", |arm| {
                let share = |received, sent: u64| received as f64 * 100.0 / sent.max(1) as f64;
                median_cell(arm.spread(|report| Some(share(report.books.received, report.books.sent))), 0)
            }),
            column("kernel drops", |arm| {
                let drops = arm.rounds.iter().filter_map(|round| round.books.drops.get(KERNEL_RECEIVE_QUEUE));
                thousands(drops.sum())
            }),
            column("CPU ns/packet", |arm| or_dash(cell(arm.cpu_ns(), 0))),
            column("sender %", |arm| or_dash(sender_cell(arm))),
            column("spread", |arm| median_cell(arm.spread(|report| report.spread_max_over_mean), 2)),
        ],
    );
    for arm in &measured {
        for round in &arm.rounds {
            bench.results.run(&format!("ladder: {} {size} B {threads} threads", arm.name), round)?;
        }
    }
    Ok(())
}
