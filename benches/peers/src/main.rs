//! The comparison of drumfire with other libraries, see `README.md`.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml` runs each load against each library. Server and client are processes
//! on their own cores. The program fails when the books of a round do not close, and not when a goal is missed.
#![forbid(unsafe_code)]

mod adapter;
mod goals;
mod libraries;
mod loads;
mod relay;
mod round;
mod tasks;

use std::path::Path;
use std::process::ExitCode;

use drumfire_benches::traffic::Shape;
use drumfire_benches::{
    Arm, ArmTable, Bench, Extent, Measured, Part, Program, interleave_all, median_cell, part,
};

use adapter::Library;
use loads::Load;
use round::Row;

/// The command that measures the same libraries.
const COMMAND: &str = if cfg!(feature = "gns") {
    "cargo run --release --manifest-path benches/peers/Cargo.toml --features gns"
} else {
    "cargo run --release --manifest-path benches/peers/Cargo.toml"
};

/// A part for each load. A smoke run measures one of them.
fn parts() -> [Part; 12] {
    Load::ALL.map(|load| {
        part(load.name, run).from(match load.name {
            "C" => Extent::Quick,
            "B-lossy" | "D-lossy" => Extent::Full,
            _ => Extent::Default,
        })
    })
}

fn main() -> ExitCode {
    let parts = parts();
    let program = Program {
        roles: &[(round::SERVER, round::serve), (round::CLIENT, round::connect), (relay::RELAY, relay::run)],
        prepare: |bench| {
            // Reports belong to those of the project, and this package is a workspace of its own.
            let here = Path::new(env!("CARGO_MANIFEST_DIR"));
            let root = here.ancestors().nth(2).unwrap_or(here);
            bench.results.started_by(COMMAND, root.join("target/reports"));
            let lost = relay::LOST_PER_MILLE;
            println!("relay     loses {lost} of 1,000, delays {} ms in each direction", relay::DELAY_MS);
            bench.results.seeded(&format!("{:#x}: which datagrams the relay loses", relay::SEED));
        },
        ..Program::new("peers", &parts)
    };
    program.main()
}

/// Runs the load of the present part.
fn run(bench: &mut Bench) -> Result<(), String> {
    let load = Load::named(bench.part())?;
    let rounds = load.rounds(bench.extent());
    let rows: Vec<Row> =
        adapter::built().iter().flat_map(|library| rows_of(load, library, &rounds)).collect();
    let cores = bench.pin_load()?;
    let is_missing = |row: &&Row| row.tested.missing.is_some();
    let arms = rows.iter().filter(|row| !is_missing(row));
    let arms = arms.map(|row| Arm::new(row.name(), move || round::run(cores, row, &rounds)));
    let measured = interleave_all(arms.collect(), rounds.plan);
    show(&rows, &measured);
    for arm in &measured {
        let failed = if arm.failure.is_some() { ", failed later" } else { "" };
        for report in &arm.rounds {
            bench.results.run(&format!("{}: {}{failed}", load.name, arm.name), report)?;
        }
        if let Some(line) = &arm.failure {
            bench.fail_later(format!("{}: {line}", load.name));
        }
    }
    goals::figures(load, &rows, &measured, &mut bench.results);
    Ok(())
}

/// Returns the rows of a library: one for each way of delivery.
///
/// Gathering is measured with schedules on a direct path. Only connections can be idle.
fn rows_of(load: Load, library: &'static Library, rounds: &loads::Rounds) -> Vec<Row> {
    let gathers = library.setup.gather_us > 0;
    let is_suited = match load.shape {
        Shape::Open { .. } => !load.is_relayed || !gathers,
        Shape::IDLE => !gathers && library.has_connections,
        Shape::Closed { .. } => !gathers,
    };
    let has_reliable = library.has_reliable && !(load.is_unreliable_only && library.has_unreliable);
    let connections = load.connections.min(library.connections_max).min(rounds.connections_max);
    let ways = [(true, has_reliable), (false, library.has_unreliable)];
    let ways = ways.into_iter().filter(|(_, has_it)| is_suited && *has_it);
    // A library that is missing has one row.
    let max = if library.missing.is_some() { 1 } else { 2 };
    ways.take(max).map(|(is_reliable, _)| Row::new(load, library, is_reliable, connections)).collect()
}

/// Prints the table of a load, and why libraries are not in it.
fn show(rows: &[Row], measured: &[Measured]) {
    let text = |arm: &Measured, of: fn(&Row) -> String| {
        rows.iter().find(|row| row.name() == arm.name).map_or_else(String::new, of)
    };
    ArmTable::of_echoes("peer", measured)
        .column("version", |arm| text(arm, |row| row.tested.version.clone()))
        .column("encrypted", |arm| text(arm, |row| row.tested.encrypted.to_owned()))
        .column("connections", |arm| text(arm, |row| row.connections.to_string()))
        .column("keep-alive", |arm| text(arm, |row| row.tested.keep_alive.to_owned()))
        .column("KiB/connection", |arm| median_cell(arm.value("KiB"), 1))
        .print_with_limits();
    for arm in measured.iter().filter(|arm| arm.failure.is_some()) {
        println!("  {}: failed after {} rounds", arm.name, arm.rounds.len());
    }
    for row in rows {
        if let Some(why) = &row.tested.missing {
            println!("  {}: missing: {why}", row.tested.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_library_has_a_row_in_each_load() {
        let libraries: &'static [Library] = adapter::all().leak();
        for load in Load::ALL {
            let rounds = load.rounds(Extent::Default);
            let rows: Vec<Row> =
                libraries.iter().flat_map(|library| rows_of(load, library, &rounds)).collect();
            // Plain UDP has no connections, which can be idle.
            for Library { family, .. } in libraries.iter().filter(|library| library.has_connections) {
                assert!(rows.iter().any(|row| row.tested.family == *family), "{}: {family}", load.name);
            }
        }
    }
}
