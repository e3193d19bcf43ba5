//! The tables, and the figures with their goals.

use drumfire_benches::{
    ArmTable, Fanout, Goal, Measured, Pick, Results, Spread, busy_note, median_cell, micros,
};

use crate::plan::{Arm, Plan};
use crate::round::Run;

/// Deliveries per CPU second over those of the baseline, at least.
const OVER_TCP: f64 = 5.0;

/// The delay of the other clients that a stalled client may cause, in milliseconds.
const STALL_MS: f64 = 1.0;

const P99: Pick = |latency| latency.p99;

/// The plans of a part with their rounds.
pub(crate) struct Part {
    pub(crate) plans: Vec<Plan>,
    pub(crate) measured: Vec<Measured>,
}

impl Part {
    fn iter(&self) -> impl Iterator<Item = (&Plan, &Measured)> {
        self.plans.iter().zip(&self.measured)
    }

    fn arm(&self, arm: Arm) -> Option<&Measured> {
        self.iter().find(|(plan, _)| plan.arm == arm).map(|(_, measured)| measured)
    }
}

/// The books of a run in one line.
pub(crate) fn books(run: &Run) -> String {
    let Ok(books) = &run.books else { return String::new() };
    let Fanout { offered, not_said, lost_up, not_broadcast, owed, missed, given_up, .. } = books;
    let Fanout { lost, overflowed, heard, kernel_receive_queue, .. } = books;
    format!(
        "books: offered {offered}, not said {not_said}, lost on the way up {lost_up}, not broadcast {not_broadcast}; owed {owed}, \
         missed {missed}, given up {given_up}, sealed {}, in lost datagrams {lost}, receive memory {overflowed}, heard {heard}; \
         datagrams dropped by the kernel {kernel_receive_queue}",
        run.last.of_server("messages sealed"),
    )
}

fn millis(arm: &Measured, pick: Pick) -> Option<Spread> {
    arm.spread(|report| Some(micros(report, pick)? / 1e3))
}

/// The server's CPU time per million deliveries, in seconds.
fn cpu_s_per_million(arm: &Measured) -> Option<Spread> {
    arm.spread(|report| Some(report.cpu_ns_per_packet? / 1e3))
}

/// Prints a row per arm.
pub(crate) fn table(part: &Part) {
    let value = |arm: &Measured, name, digits| median_cell(arm.value(name), digits);
    // A write of the baseline is no datagram.
    let datagrams = |arm: &Measured, name| {
        if arm.name == Arm::Tcp.name() { "-".to_owned() } else { value(arm, name, 1) }
    };
    ArmTable::new("", &part.measured)
        .column("heard/s", |arm| value(arm, "deliveries", 0))
        .column("% of offered", |arm| value(arm, "% of offered", 0))
        .column("broadcasts/s", |arm| value(arm, "broadcasts", 0))
        .column("dropped", |arm| value(arm, "dropped", 0))
        .column("per datagram", |arm| datagrams(arm, "per datagram"))
        .column("datagrams per call", |arm| datagrams(arm, "datagrams per call"))
        .column("CPU-s per million", |arm| median_cell(cpu_s_per_million(arm), 3))
        .column("p50 ms", |arm| median_cell(millis(arm, |latency| latency.p50), 2))
        .column("p99 ms", |arm| median_cell(millis(arm, P99), 2))
        .column("p99.9 ms", |arm| median_cell(millis(arm, |latency| latency.p999), 2))
        .column("server %", |arm| value(arm, "server %", 0))
        .column("clients %", |arm| value(arm, "clients %", 0))
        .print_with_limits();
}

/// Adds the figures of a part that compares servers.
pub(crate) fn servers(name: &str, clients: u32, part: &Part, results: &mut Results) {
    let tcp = part.arm(Arm::Tcp);
    for (plan, arm) in part.iter() {
        let mut figure = |what: &str, value, unit, goal| {
            let name = format!("{name}, {clients} clients: {}: {what}", arm.name);
            results.spread(name, value, unit, goal, arm.busy_or(""));
        };
        let none = if plan.arm == Arm::Tcp { Goal::Shown } else { Goal::AtMost(0.0) };
        figure("deliveries", arm.value("deliveries"), "/s", Goal::Shown);
        figure("dropped", arm.value("dropped"), "", none);
        figure("skipped or refused at the clients", arm.value("refused"), "", none);
        figure("p99", millis(arm, P99), "ms", Goal::Shown);
    }
    let Some(tcp) = tcp else { return };
    let share = tcp.value("% of offered").map_or(0.0, |share| share.median);
    for (_, arm) in part.iter().filter(|(plan, _)| plan.arm != Arm::Tcp) {
        // Rounds that followed each other are compared.
        let ratio = tcp.over(arm, |report| report.cpu_ns_per_packet);
        let note =
            format!("stretch 20; TCP delivered {share:.0} % of what was offered; {}", busy_note([arm, tcp]));
        let name = format!("{name}, {clients} clients: {}: deliveries per CPU second over TCP's", arm.name);
        results.spread(name, ratio, "times", Goal::AtLeast(OVER_TCP), &note);
    }
}

/// Adds the figures of what a client that stops reading costs the others.
pub(crate) fn stall(part: &Part, results: &mut Results) {
    let [without, with] = part.measured.as_slice() else { return };
    let note = |with: Option<Spread>, without: Option<Spread>| {
        let [with, without] = [with, without].map(|spread| median_cell(spread, 2));
        format!("{with} ms with it, {without} ms without; {}", busy_note(&part.measured))
    };
    let pairs = without.rounds.iter().zip(&with.rounds);
    let more = pairs.filter_map(|(without, with)| Some((micros(with, P99)? - micros(without, P99)?) / 1e3));
    let name = "stall: one client stops reading: p99 of the others, more by";
    let words = note(millis(with, P99), millis(without, P99));
    results.spread(name, Spread::of(more), "ms", Goal::AtMost(STALL_MS), &words);
    let means = [with, without].map(|arm| arm.value("slowest mean ms"));
    let more = means[0].zip(means[1]).map(|(with, without)| with.median - without.median);
    let name = "stall: one client stops reading: the slowest other client's mean, more by";
    results.figure(name, more, "ms", Goal::AtMost(STALL_MS), &note(means[0], means[1]));
    let missed = with.value("missed").map(|missed| missed.median);
    let name = "stall: deliveries that the stalled client missed";
    results.figure(name, missed, "", Goal::Shown, "all of them are its own");
}
