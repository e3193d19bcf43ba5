//! The table of a load: one row for each rival and way of delivery, the missing ones too.

use drumfire_benches::drive::Shape;
use drumfire_benches::{Pick, Spread, cell, median_cell, micros, ratio_note};

use crate::load::Load;
use crate::measure::{Row, State};

const TIMES: [Pick; 3] = [|latency| latency.p50, |latency| latency.p99, |latency| latency.p999];

const HEAD: [&str; 12] = [
    "peer",
    "version",
    "encrypted",
    "messages/s",
    "CPU ns/message",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "core %",
    "KiB/connection",
    "lost",
    "void",
];

/// The table, as Markdown has it.
pub(crate) fn table(load: Load, rows: &[Row]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    lines.push(HEAD.map(|_| "---".to_owned()).to_vec());
    lines.extend(rows.iter().map(|row| cells(load, row)));
    let is_whole = |line: &&Vec<String>| line.len() == HEAD.len();
    let width = |at: usize| lines.iter().filter(is_whole).map(|line| line[at].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let text = lines.iter().map(|line| {
        if line.len() < HEAD.len() {
            return format!("| {} |", line.join(" | "));
        }
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("| {} |", padded.collect::<Vec<_>>().join(" | "))
    });
    format!("{}: {}\n\n{}\n", load.name, load.words(), text.collect::<Vec<_>>().join("\n"))
}

fn cells(load: Load, row: &Row) -> Vec<String> {
    let mut cells = vec![row.name(), row.rival.version.clone(), row.rival.encrypted.to_owned()];
    match &row.state {
        State::Missing(why) => return vec![row.rival.name.to_owned(), format!("missing: {why}")],
        State::Failed(line) => return vec![row.name(), format!("error: {line}")],
        State::Measured => {}
    }
    if row.connections < load.connections {
        cells[0] = format!("{} ({} connections)", cells[0], row.connections);
    }
    let is_idle = load.shape == Shape::Idle;
    let measured = &row.measured;
    cells.push(if is_idle { "-".to_owned() } else { median_cell(measured.pps(), 0) });
    cells.push(if is_idle { "-".to_owned() } else { cell(measured.cpu_ns(), 0) });
    cells.extend(TIMES.map(|pick| median_cell(measured.spread(|report| micros(report, pick)), 0)));
    cells.push(median_cell(core_percent(row), 1));
    cells.push(median_cell(kib(row), 1));
    cells.push(row.beside.iter().map(|beside| beside.lost).sum::<u64>().to_string());
    cells.push(measured.void_cell());
    cells
}

/// Share of its core that the server took, in percent.
pub(crate) fn core_percent(row: &Row) -> Option<Spread> {
    Spread::of(row.beside.iter().map(|beside| beside.core_share * 100.0))
}

/// KiB that the server's process grew by, for each connection.
pub(crate) fn kib(row: &Row) -> Option<Spread> {
    Spread::of(row.beside.iter().map(|beside| beside.kib_per_connection))
}

/// What a reader of a ratio of these rows has to know.
pub(crate) fn note(rows: &[&Row]) -> String {
    ratio_note(&rows.iter().map(|row| &row.measured).collect::<Vec<_>>())
}
