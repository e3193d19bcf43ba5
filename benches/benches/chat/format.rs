//! The tables, and the figures with their goals.

use drumfire_benches::{
    BUSY, Column, Fanout, Goal, Measured, Pick, Results, Spread, column, median_cell, micros, print_table,
};

use crate::plan::{Arm, Plan};
use crate::round::Run;

/// Deliveries per CPU second over those of the baseline, at least.
const OVER_TCP: f64 = 5.0;

/// The delay of the other clients that a stalled client may cause, in milliseconds.
const STALL_MS: f64 = 1.0;

const TIMES: [(&str, Pick); 3] =
    [("p50", |latency| latency.p50), ("p99", |latency| latency.p99), ("p99.9", |latency| latency.p999)];

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
    let is_tcp = |arm: &Measured| arm.name == Arm::Tcp.name();
    let value = |name: &'static str, digits: usize| {
        column(name, move |arm: &Measured| median_cell(arm.value(name), digits))
    };
    // A write of the baseline is no datagram.
    let datagrams = |name: &'static str| {
        column(
            name,
            move |arm: &Measured| if is_tcp(arm) { "-".to_owned() } else { median_cell(arm.value(name), 1) },
        )
    };
    let mut columns: Vec<Column<'_>> = vec![
        column("heard/s", |arm| median_cell(arm.value("deliveries"), 0)),
        value("% of offered", 0),
        column("broadcasts/s", |arm| median_cell(arm.value("broadcasts"), 0)),
        value("dropped", 0),
        datagrams("per datagram"),
        datagrams("datagrams per call"),
        column("CPU-s per million", |arm| median_cell(cpu_s_per_million(arm), 3)),
    ];
    columns.extend(
        TIMES
            .map(|(_, pick)| pick)
            .into_iter()
            .zip(["p50 ms", "p99 ms", "p99.9 ms"])
            .map(|(pick, heading)| column(heading, move |arm| median_cell(millis(arm, pick), 2))),
    );
    columns.extend([value("server %", 0), value("clients %", 0)]);
    print_table("", &part.measured, &columns);
}

/// Adds the figures of a part that compares servers.
pub(crate) fn servers(name: &str, clients: u32, part: &Part, results: &mut Results) {
    let tcp = part.arm(Arm::Tcp);
    for (plan, arm) in part.iter() {
        let busy = if arm.is_busy { BUSY } else { "" };
        let named = |what: &str| format!("{name}, {clients} clients: {}: {what}", arm.name);
        let mut figure = |what: &str, value, unit, goal| results.spread(named(what), value, unit, goal, busy);
        // A server that does not gather misses deliveries, which is the reason to gather.
        let must_hold = !matches!(plan.arm, Arm::Tcp | Arm::AtOnce);
        let none = if must_hold { Goal::AtMost(0.0) } else { Goal::Shown };
        figure("deliveries", arm.value("deliveries"), "/s", Goal::Shown);
        figure("dropped", arm.value("dropped"), "", none);
        figure("skipped or refused at the clients", arm.value("refused"), "", none);
        figure("CPU per million deliveries", cpu_s_per_million(arm), "s", Goal::Shown);
        for (time, pick) in TIMES {
            figure(time, millis(arm, pick), "ms", Goal::Shown);
        }
        if plan.arm != Arm::Tcp {
            figure("deliveries per datagram", arm.value("per datagram"), "", Goal::Shown);
            figure("datagrams per call", arm.value("datagrams per call"), "", Goal::Shown);
        }
    }
    let Some(tcp) = tcp else { return };
    let share = tcp.value("% of offered").map_or(0.0, |share| share.median);
    for (plan, arm) in part.iter().filter(|(plan, _)| plan.arm != Arm::Tcp) {
        // Rounds that followed each other are compared.
        let pairs = arm.rounds.iter().zip(&tcp.rounds);
        let ratios = pairs.filter_map(|(ours, tcp)| Some(tcp.cpu_ns_per_packet? / ours.cpu_ns_per_packet?));
        let goal = if plan.arm == Arm::AtOnce { Goal::Shown } else { Goal::AtLeast(OVER_TCP) };
        let busy = if arm.is_busy || tcp.is_busy { BUSY } else { "" };
        let note = format!("stretch 20; TCP delivered {share:.0} % of what was offered; {busy}");
        let name = format!("{name}, {clients} clients: {}: deliveries per CPU second over TCP's", arm.name);
        results.spread(name, Spread::of(ratios), "times", goal, &note);
    }
}

/// Adds the figures of what a client that stops reading costs the others.
pub(crate) fn stall(part: &Part, results: &mut Results) {
    let [without, with] = part.measured.as_slice() else { return };
    let busy = if without.is_busy || with.is_busy { BUSY } else { "" };
    let note = |with: Option<Spread>, without: Option<Spread>| {
        let [with, without] = [with, without].map(|spread| median_cell(spread, 2));
        format!("{with} ms with it, {without} ms without; {busy}")
    };
    for (time, pick) in TIMES {
        let pairs = without.rounds.iter().zip(&with.rounds);
        let more =
            pairs.filter_map(|(without, with)| Some((micros(with, pick)? - micros(without, pick)?) / 1e3));
        let goal = if time == "p99" { Goal::AtMost(STALL_MS) } else { Goal::Shown };
        let name = format!("stall: one client stops reading: {time} of the others, more by");
        let note = note(millis(with, pick), millis(without, pick));
        results.spread(name, Spread::of(more), "ms", goal, &note);
    }
    let means = [with, without].map(|arm| arm.value("slowest mean ms"));
    let more = means[0].zip(means[1]).map(|(with, without)| with.median - without.median);
    let name = "stall: one client stops reading: the slowest other client's mean, more by";
    results.figure(name, more, "ms", Goal::AtMost(STALL_MS), &note(means[0], means[1]));
    let missed = with.value("missed").map(|missed| missed.median);
    let name = "stall: deliveries that the stalled client missed";
    results.figure(name, missed, "", Goal::Shown, "all of them are its own");
}
