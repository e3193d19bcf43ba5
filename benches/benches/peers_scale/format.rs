//! The tables and figures of the ladder, and the list of slots, rate, and share of a core in prose, as in the report on ENet.

use drumfire_benches::{
    Bench, Goal, Measured, Ramped, Spread, cell, column, median_cell, micros, print_table, ratio_note,
};
use drumfire_tools::report::ThreadReport;

use crate::ladder::DOWN_BYTES;

/// CPU over that of a plain server which gathers as long, with the clients and answers of [`OVER_PLAIN_AT`].
const OVER_PLAIN: f64 = 1.4;

/// Ticks per second, clients, and bytes of answers.
const OVER_PLAIN_AT: (u32, u32, u16) = (1_000, 1_000, 64);

/// The share of the server's CPU time that it spent in the program, in percent. The kernel counts it in ticks of 10 ms, so only the
/// sum over all rounds says something.
fn program_percent(arm: &Measured) -> f64 {
    let threads = || arm.rounds.iter().flat_map(|report| &report.threads);
    let user: f64 = threads().filter_map(|thread| thread.cpu_user_s).sum();
    user / threads().filter_map(ThreadReport::cpu_s).sum::<f64>() * 100.0
}

/// Prints the arms of a part and adds their reports.
pub(crate) fn arms(bench: &mut Bench, part: &str, measured: &[Measured]) -> Result<(), String> {
    let micros_of = |arm: &Measured, pick| median_cell(arm.spread(|report| micros(report, pick)), 0);
    print_table(
        part,
        measured,
        &[
            column("% of a core", |arm| cell(arm.core_percent(), 1)),
            column("in the program, %", |arm| format!("{:.0}", program_percent(arm))),
            column("ns/message", |arm| cell(arm.cpu_ns(), 0)),
            column("p50 us", |arm| micros_of(arm, |latency| latency.p50)),
            column("p99 us", |arm| micros_of(arm, |latency| latency.p99)),
            column("late by, us", |arm| median_cell(arm.value("late us"), 0)),
            column("datagrams/message", |arm| median_cell(arm.value("datagrams/message"), 2)),
            column("lost", |arm| format!("{:.0}", arm.sum("lost"))),
            column("load, % of a core", |arm| median_cell(arm.value("load %"), 0)),
        ],
    );
    bench.results.rounds(part, measured)
}

/// Adds the figures of the batches that connected.
pub(crate) fn batches(bench: &mut Bench, rate: u32, clients: u32, batches: &[Ramped]) {
    let took = Spread::of(batches.iter().map(|batch| batch.took.as_secs_f64() * 1e3));
    let failed: u64 = batches.iter().map(Ramped::failed_count).sum();
    let name = format!("ladder: {rate} Hz: until {clients} clients were connected");
    if took.is_some() {
        println!("\n  to {clients} clients in {} batches: {} ms each", batches.len(), cell(took, 0));
        let note = "at most 500 at the same time";
        bench.results.spread(format!("{name}, a batch"), took, "ms", Goal::Shown, note);
    }
    let goal = Goal::AtMost(0.0);
    bench.results.figure(format!("{name}: failures"), Some(failed as f64), "", goal, "");
}

/// Prints a step of the ladder and adds its figures. Each arm is followed by that of as many plain datagrams.
pub(crate) fn step(
    bench: &mut Bench,
    (slots, rate, clients): (u32, u32, u32),
    measured: &[Measured],
) -> Result<(), String> {
    arms(bench, &format!("ladder, {rate} Hz"), measured)?;
    for (pair, down_bytes) in measured.chunks_exact(2).zip(DOWN_BYTES) {
        let [ours, plain] = pair else { continue };
        let core = ours.core_percent();
        println!(
            "  With {slots} slots and a service call rate of {rate} Hz, {clients} clients with {down_bytes} B back take {} % of a \
             core,\n  {:.0} % of it in the program (library, ciphers, application) and the rest in the kernel.",
            median_cell(core, 1),
            program_percent(ours),
        );
        let name = format!("ladder: {rate} Hz, {clients} clients, {down_bytes} B down");
        let note = ratio_note(&[ours, plain]);
        let is_judged = (rate, clients, down_bytes) == OVER_PLAIN_AT;
        let goal = if is_judged { Goal::AtMost(OVER_PLAIN) } else { Goal::Shown };
        let over = ours.over(plain, |report| report.cpu_ns_per_packet);
        bench.results.spread(format!("{name}: server"), core, "% of a core", Goal::Shown, &note);
        bench.results.spread(format!("{name}: CPU over plain datagrams"), over, "x", goal, &note);
    }
    Ok(())
}
