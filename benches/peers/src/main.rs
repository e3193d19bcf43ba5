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
#[cfg(any(feature = "kcp", feature = "quinn"))]
mod tasks;

use std::path::Path;
use std::process::ExitCode;

use drumfire_benches::traffic::Shape;
use drumfire_benches::{
    Arm, Bench, Extent, Measured, Part, Pick, Program, cell, column, ending, interleave_all, median_cell,
    micros, part, print_table,
};

use adapter::{Library, Setup};
use loads::Load;
use round::Row;

/// The command that measures the same libraries.
const COMMAND: &str = if cfg!(feature = "gns") {
    "cargo run --release --manifest-path benches/peers/Cargo.toml --features gns"
} else {
    "cargo run --release --manifest-path benches/peers/Cargo.toml"
};

/// Percentiles of the table.
const PERCENTILES: [(&str, Pick); 3] = [
    ("p50 us", |latency| latency.p50),
    ("p99 us", |latency| latency.p99),
    ("p99.9 us", |latency| latency.p999),
];

/// The loads in the order of [`Load::ALL`]. A smoke run measures one of them.
const PARTS: [Part; 12] = [
    part("A", run::<0>).from(Extent::Default),
    part("B", run::<1>).from(Extent::Default),
    part("C", run::<2>),
    part("D", run::<3>).from(Extent::Default),
    part("E", run::<4>).from(Extent::Default),
    part("F", run::<5>).from(Extent::Default),
    part("S", run::<6>).from(Extent::Default),
    part("A-lossy", run::<7>).from(Extent::Default),
    part("B-lossy", run::<8>).from(Extent::Full),
    part("C-lossy", run::<9>).from(Extent::Default),
    part("D-lossy", run::<10>).from(Extent::Full),
    part("F-lossy", run::<11>).from(Extent::Default),
];

fn main() -> ExitCode {
    let program = Program {
        name: "peers",
        parts: &PARTS,
        roles: &[(round::SERVER, round::serve), (round::CLIENT, round::connect), (relay::RELAY, relay::run)],
        numbers: &[],
        prepare: |bench| {
            // Reports belong to those of the project, and this package is a workspace of its own.
            let here = Path::new(env!("CARGO_MANIFEST_DIR"));
            let root = here.ancestors().nth(2).unwrap_or(here);
            bench.results.started_by(COMMAND, root.join("target/reports"));
            let lost = relay::LOST_PER_MILLE;
            println!("relay     loses {lost} of 1,000, delays {} ms in each direction", relay::DELAY_MS);
            bench.results.seeded(&format!("{:#x}: which datagrams the relay loses", relay::SEED));
        },
    };
    match without_peers(std::env::args().skip(1)) {
        Ok((args, _)) => program.main_with(&args),
        Err(line) => {
            let _ = ending(Err(line));
            ExitCode::from(2)
        }
    }
}

/// Splits the arguments into the families after `--peers` and the rest.
fn without_peers(args: impl Iterator<Item = String>) -> Result<(Vec<String>, Vec<String>), String> {
    let (mut args, mut rest, mut peers) = (args.peekable(), Vec::new(), Vec::new());
    let families: Vec<&str> = adapter::all().iter().map(|library| library.family).collect();
    while let Some(arg) = args.next() {
        if arg != "--peers" {
            rest.push(arg);
            continue;
        }
        while let Some(name) = args.next_if(|name| families.contains(&name.as_str())) {
            peers.push(name);
        }
        if peers.is_empty() || args.peek().is_some_and(|arg| !arg.starts_with("--")) {
            let mut families = families;
            families.dedup();
            return Err(format!("--peers: takes some of {}", families.join(", ")));
        }
    }
    Ok((rest, peers))
}

/// Runs the load with this index.
fn run<const INDEX: usize>(bench: &mut Bench) -> Result<(), String> {
    let load = Load::ALL[INDEX];
    let (_, peers) = without_peers(std::env::args().skip(1))?;
    let wanted = |library: &&Library| {
        // Plain UDP is the floor of all figures.
        peers.is_empty() || library.family == "raw" || peers.iter().any(|peer| peer == library.family)
    };
    let (cores, rounds) = (bench.pin_load()?, load.rounds(bench.extent()));
    let rows: Vec<Row> =
        adapter::built().iter().filter(wanted).flat_map(|library| rows_of(load, library, &rounds)).collect();
    let is_missing = |row: &&Row| why_missing(load, row.tested).is_some();
    println!("  {}\n  {} rounds of {:?}, medians", load.words(), rounds.rounds, rounds.counted);
    let arms = rows.iter().filter(|row| !is_missing(row));
    let arms = arms.map(|row| Arm::with_values(row.name(), move || round::run(cores, row, &rounds)));
    let measured = interleave_all(arms.collect(), rounds.warm_ups, rounds.rounds, rounds.may_void);
    show(load, &rows, &measured);
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

/// Returns why a library has no part in a load.
fn why_missing(load: Load, library: &Library) -> Option<String> {
    let is_tcp = load.is_relayed && !library.is_udp;
    library.missing.clone().or_else(|| is_tcp.then(|| "TCP does not go through the relay".to_owned()))
}

/// Returns the rows of a library: one for each way of delivery.
///
/// Gathering is measured with schedules on a direct path. Only connections can be idle.
fn rows_of(load: Load, library: &'static Library, rounds: &loads::Rounds) -> Vec<Row> {
    let gathers = library.setup.gather_us > 0;
    let is_suited = match load.shape {
        Shape::Open { .. } => !load.is_relayed || !gathers,
        Shape::Closed { .. } => !gathers,
        Shape::Idle => !gathers && library.has_connections,
    };
    let has_reliable = library.has_reliable && !(load.is_unreliable_only && library.has_unreliable);
    let Library { setup, .. } = *library;
    let row = |is_reliable| Row {
        load,
        tested: library,
        setup: Setup { is_reliable, answer_bytes: load.answer_bytes, ..setup },
        connections: load.connections.min(library.connections_max).min(rounds.connections_max),
    };
    let ways = [(true, has_reliable), (false, library.has_unreliable)];
    let ways = ways.into_iter().filter(|(_, has_it)| is_suited && *has_it);
    // A library that is missing has one row.
    let most = if library.missing.is_some() { 1 } else { 2 };
    ways.take(most).map(|(is_reliable, _)| row(is_reliable)).collect()
}

/// Prints the table of a load, and why libraries are not in it.
fn show(load: Load, rows: &[Row], measured: &[Measured]) {
    let row_of = |arm: &Measured| rows.iter().find(|row| row.name() == arm.name);
    let text = |arm: &Measured, of: fn(&Row) -> String| row_of(arm).map_or_else(String::new, of);
    let is_idle = load.shape == Shape::Idle;
    let mut columns = vec![
        column("version", move |arm| text(arm, |row| row.tested.version.clone())),
        column("encrypted", move |arm| text(arm, |row| row.tested.encrypted.to_owned())),
        column("connections", move |arm| text(arm, |row| row.connections.to_string())),
    ];
    if is_idle {
        columns.push(column("keep-alive", move |arm| text(arm, |row| row.tested.keep_alive.to_owned())));
    } else {
        columns.push(column("messages/s", |arm| median_cell(arm.pps(), 0)));
        columns.push(column("CPU ns/message", |arm| cell(arm.cpu_ns(), 0)));
        for (heading, pick) in PERCENTILES {
            columns
                .push(column(heading, move |arm| median_cell(arm.spread(|report| micros(report, pick)), 0)));
        }
    }
    columns.push(column("core %", |arm| median_cell(arm.core_percent(), 1)));
    columns.push(column("client's core %", |arm| median_cell(arm.value("client %"), 1)));
    columns.push(column("KiB/connection", |arm| median_cell(arm.value("KiB"), 1)));
    columns.push(column("lost", |arm| format!("{:.0}", arm.sum("lost"))));
    print_table("peer", measured, &columns);
    for arm in measured.iter().filter(|arm| arm.failure.is_some()) {
        println!("  {}: failed after {} rounds", arm.name, arm.rounds.len());
    }
    for row in rows {
        if let Some(why) = why_missing(load, row.tested) {
            println!("  {}: missing: {why}", row.tested.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_loads_have_the_same_order() {
        let parts = PARTS.map(|part| part.name());
        assert_eq!(parts, Load::ALL.map(|load| load.name));
    }

    #[test]
    fn families_are_taken_from_the_arguments() {
        let split = |args: &[&str]| without_peers(args.iter().map(|arg| (*arg).to_owned()));
        let (rest, peers) =
            split(&["--only", "A", "--peers", "enet", "quinn", "--quick"]).expect("good flags");
        assert_eq!(
            (rest.join(" "), peers.join(" ")),
            ("--only A --quick".to_owned(), "enet quinn".to_owned())
        );
        for bad in [&["--peers"][..], &["--peers", "none"], &["--peers", "enet", "none"]] {
            assert!(split(bad).expect_err("refused").contains("takes some of raw, drumfire"));
        }
    }

    #[test]
    fn each_library_has_a_row_in_each_load() {
        let libraries: &'static [Library] = adapter::all().leak();
        for load in Load::ALL {
            let rounds = load.rounds(Extent::Default);
            let rows: Vec<Row> =
                libraries.iter().flat_map(|library| rows_of(load, library, &rounds)).collect();
            for family in ["drumfire", "enet", "quinn", "renet", "gns", "kcp", "laminar", "nbio"] {
                assert!(rows.iter().any(|row| row.tested.family == family), "{}: {family}", load.name);
            }
            let tcp = rows.iter().find(|row| row.tested.family == "nbio").expect("found above");
            assert_eq!(why_missing(load, tcp.tested).is_some(), load.is_relayed, "{}", load.name);
        }
    }
}
