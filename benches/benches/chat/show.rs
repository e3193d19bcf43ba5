//! Tables, books and figures for people.

use drumfire_benches::{Goal, Results, Spread, busy_note};
use drumfire_tools::report::Latency;
use drumfire_tools::table::{Align, TextTable};

use crate::plan::Arm;
use crate::round::Run;
use crate::{Amount, Arms};

/// Where every message of a run went, in one line.
pub(crate) fn books(run: &Run) -> String {
    let Ok(books) = &run.books else { return String::new() };
    format!(
        "books: offered {}, not said {}, lost on the way up {}, not broadcast {}; owed {}, missed {}, given up {}, sealed {}, in \
         lost datagrams {}, receive memory {}, heard {}; datagrams dropped by the kernel {}",
        books.offered,
        books.not_said,
        books.lost_up,
        books.not_broadcast,
        books.owed,
        books.missed,
        books.given_up,
        run.last.of_server("sealed"),
        books.lost,
        books.overflowed,
        books.heard,
        books.kernel_receive_queue,
    )
}

fn spread(arm: &Arms, of: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
    Spread::of(arm.runs.iter().filter_map(of))
}

fn millis(arm: &Arms, of: fn(&Latency) -> u64) -> Option<Spread> {
    spread(arm, |run| run.latency().map(|latency| of(&latency) as f64 / 1e6))
}

/// One row for each arm, medians.
pub(crate) fn table(arms: &[Arms]) -> String {
    let mut table = TextTable::new(&[
        ("", Align::Left),
        ("heard/s", Align::Right),
        ("of offered", Align::Right),
        ("broadcasts/s", Align::Right),
        ("dropped", Align::Right),
        ("per datagram", Align::Right),
        ("datagrams per call", Align::Right),
        ("CPU-s per million", Align::Right),
        ("p50 ms", Align::Right),
        ("p99 ms", Align::Right),
        ("p99.9 ms", Align::Right),
        ("server", Align::Right),
        ("clients", Align::Right),
        ("voided", Align::Right),
    ]);
    for arm in arms {
        let cell = |spread: Option<Spread>, digits: usize| {
            spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
        };
        let of = |of: fn(&Run) -> f64, digits| cell(spread(arm, |run| Some(of(run))), digits);
        // A write of the baseline is no datagram.
        let by_datagram = |value: String| if arm.plan.arm == Arm::Tcp { "-".to_owned() } else { value };
        table.row([
            arm.measured.name.clone(),
            of(Run::deliveries_per_second, 0),
            of(|run| run.share_of_offered() * 100.0, 0) + " %",
            of(Run::broadcasts_per_second, 0),
            of(|run| run.dropped() as f64, 0),
            by_datagram(of(Run::deliveries_per_datagram, 1)),
            by_datagram(of(Run::datagrams_per_call, 1)),
            of(Run::cpu_s_per_million, 3),
            cell(millis(arm, |latency| latency.p50), 2),
            cell(millis(arm, |latency| latency.p99), 2),
            cell(millis(arm, |latency| latency.p999), 2),
            of(|run| run.server_cores() * 100.0, 0) + " %",
            of(|run| run.bots_cores() * 100.0, 0) + " %",
            arm.measured.void_cell(),
        ]);
    }
    table.render()
}

/// The figures of a part with several servers.
pub(crate) fn nominal(part: &str, arms: &[Arms], amount: Amount, results: &mut Results) {
    let tcp = arms.iter().find(|arm| arm.plan.arm == Arm::Tcp);
    for arm in arms {
        let name = |what: &str| format!("{part}, {} clients: {}: {what}", amount.clients, arm.measured.name);
        let busy = if arm.measured.is_busy { drumfire_benches::BUSY } else { "" };
        let mut figure = |what: &str, value: Option<Spread>, unit, goal| {
            results.spread(name(what), value, unit, goal, busy);
        };
        let is_ours = arm.plan.arm != Arm::Tcp;
        // What it misses when it is not gathered is the point of gathering.
        let holds = is_ours && arm.plan.arm != Arm::AtOnce;
        let none = if holds { Goal::AtMost(0.0) } else { Goal::Shown };
        figure("deliveries", spread(arm, |run| Some(run.deliveries_per_second())), "/s", Goal::Shown);
        figure("dropped", spread(arm, |run| Some(run.dropped() as f64)), "", none);
        let skipped =
            spread(arm, |run| Some((run.last.of_bots("skipped") + run.last.of_bots("refused")) as f64));
        figure("skipped or refused at the clients", skipped, "", none);
        figure(
            "CPU per million deliveries",
            spread(arm, |run| Some(run.cpu_s_per_million())),
            "s",
            Goal::Shown,
        );
        figure("p50", millis(arm, |latency| latency.p50), "ms", Goal::Shown);
        figure("p99", millis(arm, |latency| latency.p99), "ms", Goal::Shown);
        figure("p99.9", millis(arm, |latency| latency.p999), "ms", Goal::Shown);
        if is_ours {
            let per_datagram = spread(arm, |run| Some(run.deliveries_per_datagram()));
            figure("deliveries per datagram", per_datagram, "", Goal::Shown);
            figure("datagrams per call", spread(arm, |run| Some(run.datagrams_per_call())), "", Goal::Shown);
        }
    }
    let Some(tcp) = tcp else { return };
    for arm in arms.iter().filter(|arm| arm.plan.arm != Arm::Tcp) {
        // Rounds of one turn are held against each other.
        let pairs = arm.runs.iter().zip(&tcp.runs);
        let times = Spread::of(pairs.map(|(ours, tcp)| tcp.cpu_s_per_million() / ours.cpu_s_per_million()));
        let share = spread(tcp, |run| Some(run.share_of_offered() * 100.0)).map_or(0.0, |share| share.median);
        let goal = if arm.plan.arm == Arm::AtOnce { Goal::Shown } else { Goal::AtLeast(5.0) };
        let busy = if arm.measured.is_busy || tcp.measured.is_busy { drumfire_benches::BUSY } else { "" };
        let name = format!(
            "{part}, {} clients: {}: deliveries per CPU second over TCP's",
            amount.clients, arm.measured.name
        );
        let note = format!("stretch 20; TCP delivered {share:.0} % of what was offered; {busy}");
        results.spread(name, times, "times", goal, &note);
    }
}

/// What one client that stops reading costs the others.
pub(crate) fn stall(arms: &[Arms], results: &mut Results) {
    let [without, with] = arms else { return };
    let measured = || arms.iter().map(|arm| &arm.measured);
    let busy = if measured().any(|arm| arm.is_busy) { busy_note_of(arms) } else { "" };
    for (name, of) in [
        ("p50", (|latency: &Latency| latency.p50) as fn(&Latency) -> u64),
        ("p99", |latency| latency.p99),
        ("p99.9", |latency| latency.p999),
    ] {
        let both = without.runs.iter().zip(&with.runs).filter_map(|(without, with)| {
            Some((of(&with.latency()?) as f64 - of(&without.latency()?) as f64) / 1e6)
        });
        let more = Spread::of(both);
        let note = millis(with, of).zip(millis(without, of)).map_or_else(String::new, |(with, without)| {
            format!("{:.2} ms with it, {:.2} ms without; {busy}", with.median, without.median)
        });
        let goal = if name == "p99" { Goal::AtMost(1.0) } else { Goal::Shown };
        let name = format!("stall: one client stops reading: {name} of the others, more by");
        results.spread(name, more, "ms", goal, &note);
    }
    let both = without.runs.iter().zip(&with.runs);
    let more = Spread::of(both.map(|(without, with)| with.slowest_mean_ms() - without.slowest_mean_ms()));
    let slowest = |arm: &Arms| spread(arm, |run| Some(run.slowest_mean_ms())).map_or(0.0, |s| s.median);
    let note = format!("{:.2} ms with it, {:.2} ms without; {busy}", slowest(with), slowest(without));
    let name = "stall: one client stops reading: the slowest other client's mean, more by";
    results.spread(name, more, "ms", Goal::AtMost(1.0), &note);
    let missed = spread(with, |run| Some(run.last.of_server("missed") as f64));
    let name = "stall: deliveries that the stalled client missed";
    results.figure(name, missed.map(|spread| spread.median), "", Goal::Shown, "all of them are its own");
}

fn busy_note_of(arms: &[Arms]) -> &'static str {
    arms.iter()
        .map(|arm| busy_note(std::slice::from_ref(&arm.measured)))
        .find(|note| !note.is_empty())
        .unwrap_or("")
}
