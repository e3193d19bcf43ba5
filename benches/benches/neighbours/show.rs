//! The table of all arms, and their figures beside their goals.

use drumfire_benches::{Goal, Load, Measured, Results, Spread, busy_note, cell, median_cell};
use drumfire_tools::report::{Latency, Report};
use drumfire_tools::table::{Align, TextTable};

use crate::role::{MEMORY_BYTES, Role};
use crate::round::{Beside, Seen};

/// How much later the players' 99th in a hundred may come for one who does not behave.
const P99_MS: f64 = 2.0;

/// How much more than its memory a connection may hold.
const MEMORY_RATIO: f64 = 1.10;

/// What the players may lose to an abuser, in percent.
const LOST_PERCENT: f64 = 0.1;

/// Of the packets that the abuser is to send, at least.
const RATE_SHARE: f64 = 0.95;

/// One percentile of a round, in milliseconds.
fn millis(report: &Report, of: impl Fn(Latency) -> u64) -> Option<f64> {
    Some(of(report.latency_ns?) as f64 / 1e6)
}

/// Of one arm's rounds, those that were repeated too: what may not happen may not happen in them either.
fn rounds(beside: &[Beside], role: Role) -> impl Iterator<Item = &Beside> + Clone {
    beside.iter().filter(move |round| round.role == role)
}

fn guests(beside: &[Beside], role: Role) -> impl Iterator<Item = Seen> + Clone {
    rounds(beside, role).filter_map(|round| round.guest)
}

/// In percent of what they sent.
fn lost_percent(beside: &[Beside], role: Role) -> f64 {
    let sum = |of: fn(&Beside) -> u64| rounds(beside, role).map(of).sum::<u64>();
    sum(|round| round.lost) as f64 / sum(|round| round.sent).max(1) as f64 * 100.0
}

/// The most of both ends' bytes, over the memory of a connection.
fn memory_ratio(beside: &[Beside], role: Role) -> [Option<f64>; 2] {
    let over = |bytes: u64| bytes as f64 / MEMORY_BYTES as f64;
    let most = |of: fn(Seen) -> u64| guests(beside, role).map(of).max().map(over);
    [most(|guest| guest.kept_bytes), most(|guest| guest.memory_most_bytes)]
}

fn role_of(arm: &Measured) -> Role {
    Role::ALL.into_iter().find(|role| role.name() == arm.name).unwrap_or(Role::Quiet)
}

/// The table for people.
pub(crate) fn table(load: Load, measured: &[Measured], beside: &[Beside]) -> String {
    let mut table = TextTable::new(&[
        ("beside them", Align::Left),
        ("p50 ms", Align::Right),
        ("p99 ms", Align::Right),
        ("p99.9 ms", Align::Right),
        ("late by, p99 ms", Align::Right),
        ("lost %", Align::Right),
        ("core %", Align::Right),
        ("load's core %", Align::Right),
        ("guest's datagrams/s", Align::Right),
        ("heard of it", Align::Right),
        ("policy acted", Align::Right),
        ("void", Align::Right),
        ("", Align::Left),
    ])
    .indented(2);
    for arm in measured {
        let role = role_of(arm);
        let guest = |of: fn(Seen) -> f64| Spread::of(guests(beside, role).map(of));
        table.row([
            arm.name.clone(),
            median_cell(arm.spread(|report| millis(report, |latency| latency.p50)), 3),
            cell(arm.spread(|report| millis(report, |latency| latency.p99)), 3),
            cell(arm.spread(|report| millis(report, |latency| latency.p999)), 3),
            median_cell(Spread::of(rounds(beside, role).filter_map(|round| round.late_ms)), 3),
            format!("{:.4}", lost_percent(beside, role)),
            median_cell(Spread::of(rounds(beside, role).map(|round| round.core_share * 100.0)), 0),
            median_cell(Spread::of(rounds(beside, role).map(|round| round.load_share * 100.0)), 0),
            median_cell(guest(|guest| guest.sent_per_second), 0),
            median_cell(guest(|guest| guest.heard as f64), 0),
            median_cell(guest(|guest| guest.acted as f64), 0),
            arm.void_cell(),
            arm.limited_by().map_or_else(String::new, |by| format!("{by}-limited")),
        ]);
    }
    format!("  {}\n{}", load.words(), table.render())
}

/// The figures.
pub(crate) fn figures(
    measured: &[Measured],
    beside: &[Beside],
    abuse_per_second: f64,
    results: &mut Results,
) {
    let p99 = |arm: &Measured| arm.spread(|report| millis(report, |latency| latency.p99));
    let Some(quiet) = measured.iter().find(|arm| role_of(arm) == Role::Quiet) else { return };
    let shown = [
        ("p50", median(quiet, |latency| latency.p50)),
        ("p99", median(quiet, |latency| latency.p99)),
        ("p99.9", median(quiet, |latency| latency.p999)),
    ];
    for (name, value) in shown {
        results.figure(format!("quiet: players' {name}"), value, "ms", Goal::Shown, note(quiet, quiet));
    }
    for arm in measured {
        let role = role_of(arm);
        if role == Role::Quiet {
            continue;
        }
        let later = p99(arm).zip(p99(quiet)).map(|(guest, quiet)| guest.median - quiet.median);
        let name = format!("{}: players' p99 over that of quiet", arm.name);
        results.figure(name, later, "ms", Goal::AtMost(P99_MS), note(quiet, arm));
        let name = format!("{}: players' messages lost", arm.name);
        let goal = match role {
            Role::Abuser => Goal::AtMost(LOST_PERCENT),
            Role::Spender => Goal::AtMost(0.0),
            _ => Goal::Shown,
        };
        results.figure(name, Some(lost_percent(beside, role)), "%", goal, "of all rounds");
        of_guest(&arm.name, role, beside, abuse_per_second, results);
    }
}

/// What a reader of a figure of these two must know.
fn note(quiet: &Measured, arm: &Measured) -> &'static str {
    let busy = [quiet, arm].map(|arm| busy_note(std::slice::from_ref(arm)));
    match busy.into_iter().find(|note| !note.is_empty()) {
        Some(note) => note,
        None if quiet.limited_by().or(arm.limited_by()).is_some() => "the load's own thread was late",
        None => "",
    }
}

fn of_guest(name: &str, role: Role, beside: &[Beside], abuse_per_second: f64, results: &mut Results) {
    if let Role::Stalled(_) = role {
        let [server, sender] = memory_ratio(beside, role);
        let ends = [
            ("the server", server, "the most of all rounds; reliable messages may take half of it"),
            ("its sender", sender, "the most of all rounds"),
        ];
        for (end, ratio, note) in ends {
            let name = format!("{name}: bytes that {end} kept, over its memory");
            results.figure(name, ratio, "x", Goal::AtMost(MEMORY_RATIO), note);
        }
        let acted = Spread::of(guests(beside, role).map(|guest| guest.acted as f64));
        let name = format!("{name}: times that the policy acted");
        let note = "as its counter says, which is what its receipts say";
        results.figure(name, acted.map(|acted| acted.median), "", Goal::Shown, note);
    } else {
        let rate = Spread::of(guests(beside, role).map(|guest| guest.sent_per_second));
        let name = format!("{name}: packets in a second");
        // A flood that was none proves nothing.
        let goal = Goal::AtLeast(abuse_per_second * RATE_SHARE);
        results.figure(name, rate.map(|rate| rate.median), "", goal, "that its sender reached");
    }
}

fn median(arm: &Measured, of: impl Fn(Latency) -> u64) -> Option<f64> {
    arm.spread(|report| millis(report, &of)).map(|spread| spread.median)
}
