//! The status line in the journal's format, the table, and the figures with their goals.

use drumfire_benches::{
    ArmTable, Bench, Goal, Measured, Pick, Results, Spread, busy_note, median_cell, micros,
};

use crate::Mode;
use crate::round::Sample;

/// The goal for deliveries per CPU second over those of the baseline: at least this.
const OVER_TCP: f64 = 5.0;

/// The delay of the other clients that a stalled client may cause, in milliseconds.
const STALL_MS: f64 = 1.0;

const P99: Pick = |latency| latency.p99;

/// The bytes of one Mb in the status line, which has the journal's unit.
const MEGABYTE: f64 = 1e6;

/// The status line of the interval between two samples. `percent` is the CPU time of server and clients.
///
/// The journal's fields come first: clients, total and rate of bytes, messages and broadcasts per second, total and rate of drops. The
/// bench adds the total and the rate of offered messages, the messages that were not sent, and the CPU of both processes.
pub(crate) fn status(from: &Sample, to: &Sample, [server, clients]: [f64; 2]) -> String {
    let rate = |name: &str| to.rate(from, name);
    let dropped = to.dropped().saturating_sub(from.dropped()) as f64 / to.seconds_since(from);
    format!(
        "c[{:4}] s\u{3a3}[{:8.2}Mb] ss[{:5.2}Mb] ms[{:7.0}] bs[{:7.2}] d\u{3a3}[{}] ds[{dropped:.2}] | \
         o\u{3a3}[{}] os[{:.2}] skip\u{3a3}[{}] cpu[{server:.0}% {clients:.0}%]",
        to.of("members"),
        to.of("heard bytes") as f64 / MEGABYTE,
        rate("heard bytes") / MEGABYTE,
        rate("heard"),
        to.rate(from, "broadcasts"),
        to.dropped(),
        to.of("said") + to.of("not said"),
        rate("said") + rate("not said"),
        to.of("not said"),
    )
}

/// Prints a row per arm, and adds the rounds. Fails where an arm failed.
pub(crate) fn show(bench: &mut Bench, part: &str, measured: &[Measured]) -> Result<(), String> {
    if let Some(failure) = measured.iter().find_map(|arm| arm.failure.clone()) {
        return Err(failure);
    }
    ArmTable::new("", measured)
        .values(&[("deliveries", 0), ("% of offered", 0), ("dropped", 0)])
        .column("CPU ns", |arm| median_cell(arm.cpu_ns(), 0))
        .column("p99 ms", |arm| median_cell(arm.millis(P99), 2))
        .values(&[("server %", 0), ("clients %", 0)])
        .print();
    bench.results.rounds(part, measured)
}

/// Adds the figures of a part that compares servers.
pub(crate) fn servers(part: &str, measured: &[Measured], results: &mut Results) {
    let is_tcp = |arm: &Measured| arm.name == Mode::Tcp.name();
    for arm in measured {
        let mut figure = |what: &str, value, unit, goal| {
            let name = format!("{part}: {}: {what}", arm.name);
            results.spread(name, value, unit, goal, arm.busy_or(""));
        };
        let none = if is_tcp(arm) { Goal::Shown } else { Goal::AtMost(0.0) };
        figure("deliveries", arm.value("deliveries"), "/s", Goal::Shown);
        figure("dropped", arm.value("dropped"), "", none);
        figure("skipped or refused at the clients", arm.value("not said"), "", none);
        figure("p99", arm.millis(P99), "ms", Goal::Shown);
    }
    let Some(tcp) = measured.iter().find(|arm| is_tcp(arm)) else { return };
    let share = tcp.value("% of offered").map_or(0.0, |share| share.median);
    for arm in measured.iter().filter(|arm| !is_tcp(arm)) {
        // Rounds that followed each other are compared.
        let ratio = tcp.over(arm, |report| report.cpu_ns_per_packet);
        let note =
            format!("stretch 20; TCP delivered {share:.0} % of what was offered; {}", busy_note([arm, tcp]));
        let name = format!("{part}: {}: deliveries per CPU second over TCP's", arm.name);
        results.spread(name, ratio, "times", Goal::AtLeast(OVER_TCP), &note);
    }
}

/// Adds the figures of what a client that stops reading costs the others.
pub(crate) fn stall(measured: &[Measured], results: &mut Results) {
    let [without, with] = measured else { return };
    let note = |with: Option<Spread>, without: Option<Spread>| {
        let [with, without] = [with, without].map(|spread| median_cell(spread, 2));
        format!("{with} ms with it, {without} ms without; {}", busy_note(measured))
    };
    let pairs = without.rounds.iter().zip(&with.rounds);
    let more = pairs.filter_map(|(without, with)| Some((micros(with, P99)? - micros(without, P99)?) / 1e3));
    let name = "stall: one client stops reading: p99 of the others, more by";
    let words = note(with.millis(P99), without.millis(P99));
    results.spread(name, Spread::of(more), "ms", Goal::AtMost(STALL_MS), &words);
    let means = [with, without].map(|arm| arm.value("slowest mean ms"));
    let more = means[0].zip(means[1]).map(|(with, without)| with.median - without.median);
    let name = "stall: one client stops reading: the slowest other client's mean, more by";
    results.figure(name, more, "ms", Goal::AtMost(STALL_MS), &note(means[0], means[1]));
}
