//! The table of a load: one row for each rival and way of delivery, the missing ones too.

use drumfire_benches::traffic::Shape;
use drumfire_benches::{Pick, Spread, cell, median_cell, micros, ratio_note};

use crate::effort::Effort;
use crate::load::Load;
use crate::measure::{Row, State};

const TIMES: [Pick; 3] = [|latency| latency.p50, |latency| latency.p99, |latency| latency.p999];

const HEAD: [&str; 13] = [
    "peer",
    "version",
    "encrypted",
    "messages/s",
    "CPU ns/message",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "core %",
    "client's core %",
    "KiB/connection",
    "lost",
    "void",
];

/// The table, as Markdown has it.
pub(crate) fn table(load: Load, effort: &Effort, rows: &[Row]) -> String {
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
    let lines = text.collect::<Vec<_>>().join("\n");
    format!("{}: {}; {}\n\n{lines}\n", load.name, load.words(), effort.words())
}

fn cells(load: Load, row: &Row) -> Vec<String> {
    let mut cells = vec![row.name(), row.rival.version.clone(), row.rival.encrypted.to_owned()];
    if let Some(why) = row.why_not() {
        // What is missing is so in both ways of delivery.
        let is_missing = matches!(row.state, State::Missing(_));
        return vec![if is_missing { row.rival.name.to_owned() } else { row.name() }, why];
    }
    if row.connections < load.connections {
        cells[0] = format!("{} ({} connections)", cells[0], row.connections);
    }
    let is_idle = load.shape == Shape::Idle;
    if is_idle {
        cells[0] = format!("{}, keep-alive {}", cells[0], row.rival.keep_alive);
    }
    let measured = &row.measured;
    cells.push(if is_idle { "-".to_owned() } else { median_cell(measured.pps(), 0) });
    cells.push(if is_idle { "-".to_owned() } else { cell(measured.cpu_ns(), 0) });
    cells.extend(TIMES.map(|pick| median_cell(measured.spread(|report| micros(report, pick)), 0)));
    cells.push(median_cell(core_percent(row), 1));
    cells.push(median_cell(client_core_percent(row), 1));
    cells.push(median_cell(kib(row), 1));
    cells.push(row.beside.iter().map(|beside| beside.lost).sum::<u64>().to_string());
    cells.push(measured.void_cell());
    cells
}

/// Share of its core that the server took, in percent.
pub(crate) fn core_percent(row: &Row) -> Option<Spread> {
    Spread::of(row.beside.iter().map(|beside| beside.core_share * 100.0))
}

/// Share of its own core that the client took, in percent.
fn client_core_percent(row: &Row) -> Option<Spread> {
    Spread::of(row.beside.iter().map(|beside| beside.client_core_share * 100.0))
}

/// KiB that the server's process grew by, for each connection.
pub(crate) fn kib(row: &Row) -> Option<Spread> {
    Spread::of(row.beside.iter().map(|beside| beside.kib_per_connection))
}

/// What a reader of a figure of these rows has to know after these words: why one was not measured, else the latency of each, what
/// the client held down, and whether the machine was busy.
pub(crate) fn note(first: Option<String>, rows: &[&Row]) -> String {
    let mut words = Vec::from_iter(first);
    words.extend(rows.iter().filter_map(|row| Some(format!("{}: {}", row.rival.name, row.why_not()?))));
    if rows.iter().all(|row| row.state == State::Measured) {
        words.extend(rows.iter().filter_map(|row| latency(row)));
    }
    let warning = ratio_note(&rows.iter().map(|row| &row.measured).collect::<Vec<_>>());
    words.extend((!warning.is_empty()).then_some(warning));
    words.join("; ")
}

/// The latency of a row, for people; nothing where no message came back.
fn latency(row: &Row) -> Option<String> {
    let time = |pick| Some(row.measured.spread(|report| micros(report, pick))?.median);
    let (p50, p99) = (time(|latency| latency.p50)?, time(|latency| latency.p99)?);
    Some(format!("{}: p50 {p50:.0} us, p99 {p99:.0} us", row.rival.name))
}
