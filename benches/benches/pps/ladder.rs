//! The ladder: drains by sizes by threads by send modes, as fast as they go.

use std::time::Duration;

use drumfire_benches::{Arm, Extent, Measured, Recipe, Results, cell, interleave, median_cell};
use drumfire_tools::choices::{Drain, Gro, SendMode, Steer};
use drumfire_tools::report::KERNEL_RECEIVE_QUEUE;
use drumfire_tools::table::{Align, TextTable, thousands};

use super::{Bench, report};

const FLOWS: u32 = 64;

/// The size at which more threads than cores show how flows spread.
const SPREAD_SIZE: u32 = 128;

/// The rungs of one extent.
struct Rungs {
    drains: &'static [(&'static str, Drain, Gro)],
    sizes: &'static [u32],
    threads: &'static [u32],
    sends: &'static [SendMode],
    window: Duration,
}

const ALL_DRAINS: &[(&str, Drain, Gro)] = &[
    ("recv", Drain::Recv, Gro::Off),
    ("recvmmsg", Drain::Recvmmsg, Gro::Off),
    ("recvmmsg + GRO", Drain::Recvmmsg, Gro::On),
];

impl Rungs {
    fn of(extent: Extent) -> Self {
        match extent {
            Extent::Quick => Self {
                drains: ALL_DRAINS,
                sizes: &[128],
                threads: &[1, 2],
                sends: &[SendMode::Single, SendMode::Gso],
                window: Duration::from_millis(100),
            },
            Extent::Default => Self {
                drains: ALL_DRAINS,
                sizes: &[32, 128, 512, 1_200],
                threads: &[1, 2, 4, 8, 16],
                sends: &[SendMode::Single, SendMode::Gso],
                window: Duration::from_millis(120),
            },
            Extent::Full => Self {
                drains: ALL_DRAINS,
                sizes: &[32, 128, 512, 1_200],
                threads: &[1, 2, 4, 8, 16],
                sends: &[SendMode::Single, SendMode::Sendmmsg, SendMode::Gso],
                window: Duration::from_millis(500),
            },
        }
    }
}

/// One rung and the threads it needs.
struct Rung {
    threads: u32,
    measured: Measured,
}

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let rungs = Rungs::of(bench.extent);
    let mut table = TextTable::new(&[
        ("drain", Align::Left),
        ("send", Align::Left),
        ("size", Align::Right),
        ("threads", Align::Right),
        ("received Mpps", Align::Right),
        ("of sent", Align::Right),
        ("kernel drops", Align::Right),
        ("CPU ns/packet", Align::Right),
        ("sender %", Align::Right),
        ("spread", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    println!(
        "  {FLOWS} flows steered by tag, as fast as it goes, raw stage, one sender thread, whose share of a core is shown; books close in every row"
    );
    for &size in rungs.sizes {
        for &threads in rungs.threads {
            // Spread and books are the same for all sizes: outside of the full run one of them shows it.
            if !bench.has_cores_for(threads) && bench.extent != Extent::Full && size != SPREAD_SIZE {
                continue;
            }
            for rung in rungs_of(bench, &rungs, size, threads)? {
                row(bench, &mut table, size, &rung);
                for round in &rung.measured.rounds {
                    results
                        .run(&format!("ladder: {} {size} B {threads} threads", rung.measured.name), round)?;
                }
            }
        }
    }
    println!("{}", table.render());
    if !rungs.threads.iter().all(|threads| bench.has_cores_for(*threads)) {
        println!(
            "  throughput of more threads than cores beside the sender: not measurable on {} cores",
            bench.cores.len()
        );
    }
    Ok(())
}

/// All drains and send modes of one size and thread count, interleaved.
fn rungs_of(bench: &Bench, rungs: &Rungs, size: u32, threads: u32) -> Result<Vec<Rung>, String> {
    let mut arms = Vec::new();
    for &send in rungs.sends {
        for &(name, drain, gro) in rungs.drains {
            let mut plan = bench.plan();
            (plan.drain, plan.gro, plan.threads, plan.steer) = (drain, gro, threads, Steer::Tag);
            if !bench.has_cores_for(threads) {
                plan.cores.clear();
            } else {
                plan.cores = bench.cores.iter().copied().take(threads as usize).collect();
            }
            let mut traffic = bench.traffic(FLOWS, size, 0, send);
            traffic.secs = rungs.window;
            traffic.pin = bench.has_cores_for(threads).then_some(threads);
            let recipe = Recipe { plan, traffic };
            arms.push(Arm::new(format!("{name} / {send}"), move || report(&recipe)));
        }
    }
    // More threads than cores only show spread and books: nothing there is worth repeating.
    let measured = if bench.has_cores_for(threads) {
        interleave(arms, bench.warm_up, bench.rounds, bench.may_void())?
    } else {
        interleave(arms, 0, 1, false)?
    };
    Ok(measured.into_iter().map(|measured| Rung { threads, measured }).collect())
}

fn row(bench: &Bench, table: &mut TextTable, size: u32, rung: &Rung) {
    let Rung { threads, measured } = rung;
    let (drain, send) = measured.name.split_once(" / ").unwrap_or((&measured.name, ""));
    let is_measurable = bench.has_cores_for(*threads);
    let or_dash = |text: String| if is_measurable { text } else { "-".to_owned() };
    let share = measured
        .spread(|report| Some(report.books.received as f64 * 100.0 / report.books.sent.max(1) as f64));
    let drops = measured.rounds.iter().filter_map(|round| round.books.drops.get(KERNEL_RECEIVE_QUEUE)).sum();
    let spread = measured.spread(|report| report.spread_max_over_mean);
    table.row([
        drain.to_owned(),
        send.to_owned(),
        size.to_string(),
        threads.to_string(),
        or_dash(measured.rate_cell()),
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share.median)),
        thousands(drops),
        or_dash(cell(measured.cpu_ns(), 0)),
        or_dash(median_cell(measured.spread(|report| Some(report.sender_cores()? * 100.0)), 0)),
        spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.2}", spread.median)),
        measured.void_cell(),
    ]);
}
