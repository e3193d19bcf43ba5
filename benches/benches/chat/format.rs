//! The status line in the journal's format, the table, the figures with their goals, and the ladder.

use drumfire_benches::{
    ArmTable, Bench, CONNECTIONS_ENDED, Extent, Goal, Measured, Pick, Plan, Results, busy_note,
    interleave_all, median_cell,
};

use crate::round::MessageCounts;
use crate::{Load, Mode, arms};

/// The goal for deliveries per CPU second over those of the baseline: at least this.
const OVER_TCP: f64 = 5.0;

/// The delay of the other clients that a stalled client may cause, in milliseconds.
const STALL_MS: f64 = 1.0;

const P99: Pick = |latency| latency.p99;

/// The bytes of one Mb in the status line, which has the journal's unit.
const MEGABYTE: f64 = 1e6;

/// The status line of the interval between two samples: clients, total and rate of bytes, messages and broadcasts per second, total and
/// rate of drops. A broadcast is a message that a client sent. A drop is a message that is missing between two of its sender.
pub(crate) fn status(clients: u32, from: &MessageCounts, to: &MessageCounts) -> String {
    format!(
        "c[{clients:4}] s\u{3a3}[{:8.2}Mb] ss[{:5.2}Mb] ms[{:7.0}] bs[{:7.2}] d\u{3a3}[{}] ds[{:.2}]",
        to.received_bytes as f64 / MEGABYTE,
        to.rate(from, |counts| counts.received_bytes) / MEGABYTE,
        to.rate(from, |counts| counts.received),
        to.rate(from, |counts| counts.sent),
        to.gaps,
        to.rate(from, |counts| counts.gaps),
    )
}

/// Prints a row per arm, and adds the rounds.
pub(crate) fn show(bench: &mut Bench, part: &str, measured: &[Measured]) -> Result<(), String> {
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
    let tcp = measured.iter().find(|arm| arm.name == Mode::Tcp.name());
    for arm in measured {
        let is_tcp = arm.name == Mode::Tcp.name();
        let mut figure = |what: &str, value, unit, goal, note: &str| {
            results.figure(format!("{part}: {}: {what}", arm.name), value, unit, goal, note);
        };
        let none = if is_tcp { Goal::Shown } else { Goal::AtMost(0.0) };
        let busy = busy_note([arm]);
        figure("deliveries", arm.value("deliveries"), "/s", Goal::Shown, busy);
        figure("dropped", arm.value("dropped"), "", none, busy);
        figure("skipped or refused at the clients", arm.value("skipped"), "", none, busy);
        figure("p99", arm.millis(P99), "ms", Goal::Shown, busy);
        if let Some(tcp) = tcp.filter(|_| !is_tcp) {
            // Rounds that followed each other are compared.
            let ratio = tcp.over(arm, |report| report.cpu_ns_per_packet);
            let share = median_cell(tcp.value("% of offered"), 0);
            let note = format!("TCP delivered {share} % of what was offered; {}", busy_note([arm, tcp]));
            let what = "deliveries per CPU second over TCP's";
            figure(what, ratio, "times", Goal::AtLeast(OVER_TCP), &note);
        }
    }
}

/// Adds the figure of the delay that a client causes when it stops reading.
pub(crate) fn stall(measured: &[Measured], results: &mut Results) {
    let [without, with] = measured else { return };
    let [high, low] = [with, without].map(|arm| arm.millis(P99));
    let more = high.zip(low).map(|(high, low)| high.median - low.median);
    let [high, low] = [high, low].map(|spread| median_cell(spread, 2));
    let note = format!("{high} ms with it, {low} ms without; {}", busy_note(measured));
    let name = "stall: one client stops reading: p99 of the others, more by";
    results.figure(name, more, "ms", Goal::AtMost(STALL_MS), &note);
}

const CLIENTS: [u32; 5] = [256, 512, 1_024, 2_048, 4_096];

/// Rates in percent of the journal's.
const SPEEDS: [u32; 6] = [150, 200, 300, 400, 600, 800];

/// The goal for deliveries per second at the last step: at least this.
const DELIVERIES: f64 = 10e6;

/// A server with a longer p99 does not keep up. It gathers for a fifth of this time.
const LATE_MS: f64 = 250.0;

/// First more clients, then a higher rate, until a counter shows that the server no longer keeps up. Each step runs once, because a
/// ladder takes long. A step that other work on the machine disturbed is marked.
pub(crate) fn climb(bench: &mut Bench) -> Result<(), String> {
    let is_quick = bench.extent() == Extent::Quick;
    let (clients, speeds) = if is_quick { (&[16, 32][..], &[200][..]) } else { (&CLIENTS[..], &SPEEDS[..]) };
    let cores = bench.pin_load()?;
    for mode in if is_quick { &Mode::ALL[..1] } else { &Mode::ALL[..2] } {
        let load = Load::of(bench, *mode);
        let more: Vec<Load> = clients.iter().map(|clients| Load { clients: *clients, ..load }).collect();
        let faster = speeds.iter().map(|speed| Load { speed: *speed, ..load }).collect();
        for (direction, loads) in [("clients up", more), ("rate up", faster)] {
            let name = format!("ladder: {}: {direction}", mode.name());
            println!("  {name}");
            let (mut steps, mut broken) = (Vec::new(), None);
            for load in loads {
                let place = format!("{} clients, {} %", load.clients, load.speed);
                steps.extend(interleave_all(arms(cores, [(place, load)]), Plan::once()));
                broken = steps.last().and_then(broken_by);
                if broken.is_some() {
                    break;
                }
            }
            // A server that loses connections no longer keeps up. Any other failure is one of the bench.
            let failure = steps.last().and_then(|step| step.failure.clone());
            if let Some(failure) = failure.filter(|line| !line.contains(CONNECTIONS_ENDED)) {
                return Err(failure);
            }
            show(bench, &name, &steps)?;
            ladder(&name, &steps, broken, &mut bench.results);
        }
    }
    Ok(())
}

/// Returns the first counter that shows that a message was not received in time, if any.
fn broken_by(step: &Measured) -> Option<String> {
    let Some(report) = step.rounds.first() else { return step.failure.clone() };
    let dropped = report.books.drops.iter().find(|(_, count)| **count > 0);
    let late = step.millis(P99).filter(|p99| p99.median > LATE_MS);
    let late = late.map(|p99| format!("latency: p99 is {:.0} ms", p99.median));
    dropped.map(|(name, count)| format!("{name}: {count}")).or(late)
}

fn ladder(name: &str, steps: &[Measured], broken: Option<String>, results: &mut Results) {
    let mut figure = |what: &str, value, goal, note: &str| {
        let note = format!("{note}; {}", busy_note(steps));
        let name = format!("{name}: {what}, deliveries");
        results.figure(name, value, "/s", goal, note.trim_end_matches("; "));
    };
    let deliveries = |step: &Measured| Some(step.value("deliveries")?.median);
    let held = steps.iter().rfind(|step| broken_by(step).is_none() && !step.rounds.is_empty());
    let place = held.map_or("none", |step| step.name.as_str());
    figure("the last that held", held.and_then(deliveries), Goal::Shown, place);
    // Where nothing broke, the last step is not the end of the ladder.
    let (goal, note) = match steps.last().zip(broken) {
        None => (Goal::Shown, "the server kept up at every step".to_owned()),
        Some((step, counter)) => {
            let clients = median_cell(step.value("clients %"), 0);
            let note = format!("{}: {counter}; the clients' process at {clients} %", step.name);
            (Goal::AtLeast(DELIVERIES), note)
        }
    };
    let max = steps.iter().filter_map(deliveries).reduce(f64::max);
    figure("at the break", max, goal, &note);
}
