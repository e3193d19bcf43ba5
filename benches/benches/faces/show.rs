//! The table of one load, and its figures beside their goals.

use drumfire_benches::{Goal, Load, Measured, Results, Spread, busy_note, cell, median_cell, micros};
use drumfire_tools::report::Report;
use drumfire_tools::table::{Align, TextTable};

use crate::round::Beside;
use crate::server::Face;

/// Messages for the same CPU time, handler over naive, at least.
const HANDLER_OVER_NAIVE: f64 = 2.0;

/// Messages there and back for each CPU second of the server's process.
fn per_cpu_second(report: &Report) -> Option<f64> {
    report.cpu_ns_per_packet.map(|nanos| 1e9 / nanos)
}

/// The table for people.
pub(crate) fn table(load: Load, measured: &[Measured], beside: &[Beside]) -> String {
    let mut table = TextTable::new(&[
        ("face", Align::Left),
        ("messages/s", Align::Right),
        ("messages per CPU second", Align::Right),
        ("CPU ns/message", Align::Right),
        ("p50 us", Align::Right),
        ("p99 us", Align::Right),
        ("core", Align::Right),
        ("load's core", Align::Right),
        ("datagrams/message", Align::Right),
        ("lost", Align::Right),
        ("void", Align::Right),
        ("", Align::Left),
    ])
    .indented(2);
    for arm in measured {
        let of_arm = || beside.iter().filter(|beside| beside.face.name() == arm.name);
        table.row([
            arm.name.clone(),
            median_cell(arm.pps(), 0),
            cell(arm.spread(per_cpu_second), 0),
            cell(arm.cpu_ns(), 0),
            median_cell(arm.spread(|report| micros(report, |latency| latency.p50)), 0),
            median_cell(arm.spread(|report| micros(report, |latency| latency.p99)), 0),
            format!("{} %", median_cell(Spread::of(of_arm().map(|beside| beside.core_share * 100.0)), 0)),
            format!("{} %", median_cell(Spread::of(of_arm().map(|beside| beside.load_share * 100.0)), 0)),
            median_cell(Spread::of(of_arm().map(|beside| beside.datagrams_per_message)), 2),
            of_arm().map(|beside| beside.lost).sum::<u64>().to_string(),
            arm.void_cell(),
            arm.limited_by().map_or_else(String::new, |by| format!("{by}-limited")),
        ]);
    }
    format!("  {}\n{}", load.words(), table.render())
}

/// The figures.
pub(crate) fn figures(load: &str, measured: &[Measured], results: &mut Results) {
    let arm = |face: Face| measured.iter().find(|arm| arm.name == face.name());
    let Some(naive) = arm(Face::Naive) else { return };
    for face in [Face::Handler, Face::Tick] {
        let Some(ours) = arm(face) else { continue };
        let ratio = ours
            .spread(per_cpu_second)
            .zip(naive.spread(per_cpu_second))
            .map(|(ours, naive)| ours.median / naive.median);
        let goal = match face {
            Face::Handler => Goal::AtLeast(HANDLER_OVER_NAIVE),
            Face::Tick | Face::Naive => Goal::Shown,
        };
        let name = format!("{load}: messages per CPU second, {} over naive", face.name());
        let both = [ours, naive].map(|arm| busy_note(std::slice::from_ref(arm)));
        results.figure(name, ratio, "x", goal, both.into_iter().find(|note| !note.is_empty()).unwrap_or(""));
    }
}
