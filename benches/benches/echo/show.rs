//! The table of one load, and its figures beside their goals.

use drumfire_benches::traffic::Shape;
use drumfire_benches::{Goal, Measured, Pick, Results, Spread, cell, median_cell, micros, ratio_note};
use drumfire_tools::report::Report;
use drumfire_tools::table::{Align, TextTable};

use crate::load::{Load, MESSAGE_BYTES};
use crate::peer::Peer;
use crate::round::Beside;

/// CPU per message over raw in F, at most.
const F_RELIABLE: f64 = 1.35;
const F_UNRELIABLE: f64 = 1.2;

/// Latency over raw in A, at most; stretch 1.1.
const A_LATENCY: f64 = 1.3;

const TIMES: [(&str, Pick); 4] = [
    ("p50", |latency| latency.p50),
    ("p90", |latency| latency.p90),
    ("p99", |latency| latency.p99),
    ("p99.9", |latency| latency.p999),
];

/// The table for people.
pub(crate) fn table(load: Load, measured: &[Measured], beside: &[Beside]) -> String {
    let mut table = TextTable::new(&[
        ("peer", Align::Left),
        ("messages/s", Align::Right),
        ("CPU ns/message", Align::Right),
        ("p50 us", Align::Right),
        ("p90 us", Align::Right),
        ("p99 us", Align::Right),
        ("p99.9 us", Align::Right),
        ("core", Align::Right),
        ("client's", Align::Right),
        ("RSS MiB", Align::Right),
        ("lost", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    for arm in measured {
        let of_arm = || beside.iter().filter(|beside| beside.peer.name() == arm.name);
        let mut cells = vec![arm.name.clone(), median_cell(arm.pps(), 0), cell(arm.cpu_ns(), 0)];
        cells.extend(TIMES.map(|(_, pick)| median_cell(arm.spread(|report| micros(report, pick)), 0)));
        for share in [|beside: &Beside| beside.server_core_share, |beside: &Beside| beside.client_core_share]
        {
            let share = Spread::of(of_arm().map(|beside| share(beside) * 100.0));
            cells.push(share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share.median)));
        }
        cells.push(median_cell(Spread::of(of_arm().map(|beside| beside.rss_mib)), 1));
        cells.push(of_arm().map(|beside| beside.lost).sum::<u64>().to_string());
        cells.push(arm.void_cell());
        table.row(cells);
    }
    format!("  {}\n{}", words(load), table.render())
}

fn words(load: Load) -> String {
    let how = match load.shape {
        Shape::Closed { outstanding } => format!("{outstanding} outstanding, {MESSAGE_BYTES} B, closed loop"),
        Shape::Open { rate } => {
            format!("{rate}/s, {MESSAGE_BYTES} B, open loop; latency from the intended send time")
        }
        Shape::Idle => "nothing".to_owned(),
    };
    format!("{} connections x {how}", load.connections)
}

/// The figures.
pub(crate) fn figures(load: Load, measured: &[Measured], results: &mut Results) {
    let arm = |peer: Peer| measured.iter().find(|arm| arm.name == peer.name());
    for peer in Peer::all() {
        let Some((ours, raw)) = arm(peer).zip(arm(Peer::Raw)) else { continue };
        if peer == Peer::Raw {
            continue;
        }
        let note = ratio_note(&[ours, raw]);
        let name = |what: &str| format!("{}: {what} over raw, {}", load.name(), peer.name());
        let cpu = ratio(ours, raw, |report| report.cpu_ns_per_packet);
        let is_closed = matches!(load.shape, Shape::Closed { .. });
        let goal = match is_closed {
            true if !peer.answers_where_it_reads() => Goal::Shown,
            true if peer.may_lose() => Goal::AtMost(F_UNRELIABLE),
            true => Goal::AtMost(F_RELIABLE),
            false => Goal::Shown,
        };
        results.spread(name("CPU per message"), cpu, "x", goal, &note);
        if is_closed {
            continue;
        }
        for (time, pick) in TIMES {
            let has_goal = peer.has_time_goal() && matches!(time, "p50" | "p90");
            let goal = if has_goal { Goal::AtMost(A_LATENCY) } else { Goal::Shown };
            let value = ratio(ours, raw, |report| micros(report, pick));
            results.spread(name(time), value, "x", goal, &note);
        }
    }
}

/// The ratios of two rounds that followed each other.
fn ratio(over: &Measured, under: &Measured, of: impl Fn(&Report) -> Option<f64>) -> Option<Spread> {
    let pairs = over.rounds.iter().zip(&under.rounds);
    let ratios: Option<Vec<f64>> = pairs.map(|(over, under)| Some(of(over)? / of(under)?)).collect();
    Spread::of(ratios?)
}
