//! What the ladder prints: how batches came, a row for each load, and the mail's list in prose.

use std::collections::BTreeMap;

use drumfire_benches::{Goal, Measured, Results, Spread, busy_note, cell, median_cell, micros};
use drumfire_tools::report::{Report, ThreadReport};
use drumfire_tools::table::{Align, TextTable};

use crate::ladder::{Batch, DOWN_BYTES};
use crate::round::Beside;

/// CPU of 1,000 clients with small answers over plain datagrams that are gathered as long.
const OVER_PLAIN: f64 = 1.4;

const OVER_PLAIN_AT: (u32, u16) = (1_000, 64);

pub(crate) fn batches(
    rate: u32,
    clients: u32,
    batches: &[Batch],
    reasons: &BTreeMap<String, u64>,
    results: &mut Results,
) {
    let took = Spread::of(batches.iter().map(|batch| batch.took.as_secs_f64() * 1e3));
    let failed: u64 = batches.iter().map(|batch| batch.failed + batch.refused).sum();
    let name = format!("ladder: {rate} Hz: until {clients} clients were connected");
    if let Some(took) = took {
        println!(
            "\n  to {clients} clients in {} batches: {:.0} ms each ({:.0}-{:.0}), {failed} failed {reasons:?}",
            batches.len(),
            took.median,
            took.least,
            took.most
        );
        let note = "of 500 at once, at most";
        results.spread(format!("{name}, a batch"), Some(took), "ms", Goal::Shown, note);
    }
    results.figure(format!("{name}: failures"), Some(failed as f64), "", Goal::AtMost(0.0), "");
}

/// The row of each load of so many clients; arms come in pairs, plain datagrams second.
pub(crate) fn step(
    (slots, rate, clients): (u32, u32, u32),
    measured: &[Measured],
    beside: &[Vec<Beside>],
    results: &mut Results,
) -> Result<(), String> {
    let mut table = TextTable::new(&[
        ("clients", Align::Right),
        ("B down", Align::Right),
        ("% of a core", Align::Right),
        ("in the program, %", Align::Right),
        ("ns/message", Align::Right),
        ("p50 us", Align::Right),
        ("p99 us", Align::Right),
        ("datagrams/message", Align::Right),
        ("lost", Align::Right),
        ("load, % of a core", Align::Right),
        ("plain: % of a core", Align::Right),
        ("ns/message", Align::Right),
        ("over plain", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    let mut prose = Vec::new();
    for ((pair, beside), down_bytes) in measured.chunks_exact(2).zip(beside).zip(DOWN_BYTES) {
        let [ours, plain] = pair else { continue };
        for arm in [ours, plain] {
            for round in &arm.rounds {
                results.run(&format!("ladder, {rate} Hz: {}", arm.name), round)?;
            }
        }
        // Warm-ups and rounds that were repeated came first.
        let counted = || beside.iter().rev().take(ours.rounds.len());
        let of = |value: &dyn Fn(&Beside) -> f64| Spread::of(counted().map(value));
        let core = of(&Beside::core_percent);
        // The kernel counts the two parts in ticks of 10 ms: over all rounds together they say something.
        let sum = |value: fn(&Beside) -> f64| counted().map(value).sum::<f64>();
        let user = Spread::of([sum(Beside::user_percent) / sum(Beside::core_percent) * 100.0]);
        let pairs = ours.rounds.iter().zip(&plain.rounds);
        let over = Spread::of(
            pairs.filter_map(|(ours, plain)| Some(ours.cpu_ns_per_packet? / plain.cpu_ns_per_packet?)),
        );
        table.row([
            clients.to_string(),
            down_bytes.to_string(),
            cell(core, 1),
            median_cell(user, 0),
            cell(ours.cpu_ns(), 0),
            median_cell(ours.spread(|report| micros(report, |latency| latency.p50)), 0),
            median_cell(ours.spread(|report| micros(report, |latency| latency.p99)), 0),
            median_cell(of(&Beside::datagrams_per_message), 2),
            counted().map(|beside| beside.tally.lost).sum::<u64>().to_string(),
            median_cell(of(&Beside::load_percent), 0),
            median_cell(plain.spread(core_percent), 1),
            median_cell(plain.cpu_ns(), 0),
            median_cell(over, 2),
            format!("{}, {}", ours.void_cell(), plain.void_cell()),
        ]);
        prose.push(format!(
            "  With {slots} slots and a service call rate of {rate} Hz, {clients} clients with {down_bytes} B back take {} % of a \
             core,\n  {} % of it in the program (library, ciphers, application) and the rest in the kernel.",
            median_cell(core, 1),
            median_cell(user, 0)
        ));
        let name = format!("ladder: {rate} Hz, {clients} clients, {down_bytes} B down");
        let note = note(&[ours, plain]);
        let is_judged = (clients, down_bytes) == OVER_PLAIN_AT && rate == 1_000;
        let goal = if is_judged { Goal::AtMost(OVER_PLAIN) } else { Goal::Shown };
        results.spread(format!("{name}: server"), core, "% of a core", Goal::Shown, &note);
        results.spread(format!("{name}: CPU over plain datagrams"), over, "x", goal, &note);
    }
    println!("{}\n{}", table.render(), prose.join("\n"));
    Ok(())
}

fn core_percent(report: &Report) -> Option<f64> {
    let cpu: Option<f64> = report.threads.iter().map(ThreadReport::cpu_s).sum();
    Some(cpu? / report.window_s * 100.0)
}

/// What a reader of a figure of these has to know.
pub(crate) fn note(arms: &[&Measured]) -> String {
    let mut words = Vec::new();
    for arm in arms {
        let limited = arm.rounds.iter().filter(|report| report.limited_by.is_some()).count();
        if limited * 2 > arm.rounds.len() {
            words.push(format!("load-limited: {}", arm.name));
        }
        let busy = busy_note(std::slice::from_ref(*arm));
        if !busy.is_empty() && !words.iter().any(|word| word == busy) {
            words.push(busy.to_owned());
        }
    }
    words.join("; ")
}
