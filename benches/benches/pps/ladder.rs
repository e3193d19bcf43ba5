//! Rates without a limit: the rate of each of six threads, and a ladder of drains by sizes by threads by send modes.

use std::time::Duration;

use drumfire_benches::{ArmTable, Bench, Goal, Measured, Plan, cell, interleave, median_cell, ratio_note};
use drumfire_tools::choices::{Drain, Gro, SendMode, Steer};
use drumfire_tools::plot::Summary;
use drumfire_tools::receiver::Plan as Receiver;
use drumfire_tools::report::{KERNEL_RECEIVE_QUEUE, Report};
use drumfire_tools::table::{Align, TextTable, rounded, thousands};

use super::{Setup, dash, sender_cell};

const FLOWS: u32 = 64;

/// The size at which trains are compared, and at which more threads than cores show how flows spread.
const SIZE: u32 = 128;

/// Flows and threads of the article's own table.
const RATES: (u32, u32) = (12, 6);

/// Packets per second where threads share cores. The machine carries more, and the article's sender was held back as well.
const SHARED_RATE: u64 = 60_000;

/// Runs of the best thread in the article.
const RUNS: u32 = 13;

/// The article's own table: the rate of each thread, run by run. A run is one interval of one session, the same for all threads, so
/// that their means may be added. Every rate is in the JSON, and as `run,thread,pps` in a file.
pub(super) fn rates(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    let (flows, threads) = RATES;
    let has_cores = setup.has_cores_for(threads);
    let rate = if has_cores { 0 } else { SHARED_RATE };
    for steer in [Steer::Hash, Steer::Tag] {
        let millis = Duration::from_millis;
        let (interval, runs) =
            setup.extent.pick((millis(50), 6), (millis(200), RUNS), (Receiver::SAMPLE_INTERVAL, RUNS));
        let mut run = setup.run(flows, SIZE, rate, SendMode::Single);
        (run.receiver.threads, run.receiver.steer) = (threads, steer);
        run.receiver.sample_interval = interval;
        run.receiver.cores = if has_cores { setup.cores.clone() } else { Vec::new() };
        (run.traffic.secs, run.traffic.pin) = (interval * runs, has_cores.then_some(threads));
        let report = run.report()?;
        bench.results.run(&format!("rates: by {steer}"), &report)?;
        let key = if steer == Steer::Hash { "rates-by-hash" } else { "rates-by-tag" };
        let name = format!("{flows} flows on {threads} threads, by {steer}");
        bench.results.rates(key, &name, &report.pps_per_second)?;
        let limit = limit(&report, has_cores);
        let sum = print_rates(steer, &report.pps_per_second, &limit);
        let name = format!("rates: sum of the threads' means, {name}");
        let note = format!("{} in the one window; {limit}", rounded(report.pps));
        bench.results.figure(name, Some(sum), "pps", Goal::Shown, &note);
    }
    Ok(())
}

/// Describes what limited the rate.
fn limit(report: &Report, has_cores: bool) -> String {
    let is_receivers = has_cores || report.books.dropped_count() > 0;
    match (&report.limited_by, is_receivers) {
        (Some(by), _) => format!("{by}-limited: the receivers may take more"),
        (None, true) => "limited by the receivers".to_owned(),
        (None, false) => format!("limited by the schedule: {SHARED_RATE} packets per second are offered"),
    }
}

/// Prints a row per thread. Returns the sum of the means.
fn print_rates(steer: Steer, rates: &[Vec<u64>], limit: &str) -> f64 {
    let headings =
        ["thread", "mean pps", "low", "first quartile", "median", "third quartile", "high", "outliers"];
    let mut table = TextTable::new(&headings.map(|heading| (heading, Align::Right))).indented(2);
    let mut sum = 0.0;
    for (thread, summary) in Summary::of_each_thread(rates).iter().enumerate() {
        let Summary { mean, low, first, median, third, high, outliers } = summary;
        sum += mean;
        let numbers = [mean, low, first, median, third, high].map(|pps| rounded(*pps));
        table.row([thread.to_string()].into_iter().chain(numbers).chain([outliers.len().to_string()]));
    }
    println!("  by {steer}, {} runs: the means add up to {} pps; {limit}", rates.len(), rounded(sum));
    println!("{}", table.render());
    sum
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
    for &size in sizes {
        for &threads in threads {
            // Spread and books are the same for all sizes. Except in a full run, one size shows them.
            let is_full = setup.extent.pick(false, false, true);
            if setup.has_cores_for(threads) || is_full || size == SIZE {
                rung(bench, &setup, size, threads, sends)?;
            }
        }
    }
    Ok(())
}

/// Measures all drains and send modes of one size and number of threads, interleaved.
fn rung(bench: &mut Bench, setup: &Setup, size: u32, threads: u32, sends: &[SendMode]) -> Result<(), String> {
    // The rows with goals have the whole window.
    let has_goals = size == SIZE && threads == 1;
    let short = Duration::from_millis(setup.extent.pick(100, 120, 500));
    let window = if has_goals { setup.window } else { short };
    let is_measurable = setup.has_cores_for(threads);
    let mut arms = Vec::new();
    for &send in sends {
        for (name, drain, gro) in DRAINS {
            let mut run = setup.run(FLOWS, size, 0, send);
            (run.receiver.drain, run.receiver.gro) = (drain, gro);
            (run.receiver.threads, run.receiver.steer) = (threads, Steer::Tag);
            let cores = if is_measurable { threads as usize } else { 0 };
            run.receiver.cores = setup.cores.iter().copied().take(cores).collect();
            (run.traffic.secs, run.traffic.pin) = (window, is_measurable.then_some(threads));
            arms.push(run.arm(format!("{name} / {send}")));
        }
    }
    // Without cores for all threads only spread and books are shown, and one round shows them.
    let measured = if is_measurable { setup.interleave(arms)? } else { interleave(arms, Plan::once())? };
    let or_dash = |text: String| if is_measurable { text } else { dash() };
    println!("  {size} B, {threads} thread(s)");
    ArmTable::new("drain / send", &measured)
        .column("received Mpps", |arm| or_dash(arm.rate_cell()))
        .column("of sent %", |arm| {
            let share = |received, sent: u64| received as f64 * 100.0 / sent.max(1) as f64;
            median_cell(arm.spread(|report| Some(share(report.books.received, report.books.sent))), 0)
        })
        .column("kernel drops", |arm| {
            let drops = arm.rounds.iter().filter_map(|round| round.books.drops.get(KERNEL_RECEIVE_QUEUE));
            thousands(drops.sum())
        })
        .column("CPU ns/packet", |arm| or_dash(cell(arm.cpu_ns(), 0)))
        .column("sender %", |arm| or_dash(sender_cell(arm)))
        .column("spread", |arm| median_cell(arm.spread(|report| report.spread_max_over_mean), 2))
        .print_with_limits();
    bench.results.rounds(&format!("ladder, {size} B, {threads} threads"), &measured)?;
    if has_goals {
        trains(bench, &measured)?;
    }
    Ok(())
}

/// Compares trains that are received as a whole with single datagrams, and with trains that the receiver's kernel cuts.
fn trains(bench: &mut Bench, measured: &[Measured]) -> Result<(), String> {
    let arm = |drain: &str, send: SendMode| {
        let name = format!("{drain} / {send}");
        measured.iter().find(|arm| arm.name == name).ok_or(format!("no arm {name}"))
    };
    let whole = arm("recvmmsg + GRO", SendMode::Gso)?;
    for (name, under, goal) in [
        ("trains: packets per second, GSO with GRO over single", arm("recvmmsg", SendMode::Single)?, 25.0),
        ("trains: packets per second, GSO with GRO over GSO without", arm("recvmmsg", SendMode::Gso)?, 7.0),
    ] {
        let ratio = whole.pps().zip(under.pps()).map(|(over, under)| over.median / under.median);
        bench.results.figure(name, ratio, "x", Goal::AtLeast(goal), &ratio_note(&[whole, under]));
    }
    Ok(())
}
