//! drumfire and its rivals in one table.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml` runs the loads A to F and S of `README.md` against every rival,
//! reliable and unreliable, and some of them again through a relay that loses and delays; prints a table for each load and every
//! figure beside its goal; and writes `peers.json` among the reports. Flags: `--quick` (a smoke run), `--full`, `--only LOAD...`,
//! `--peers NAME...`. Server and client run in processes of their own, each on its own core; this process only looks at their
//! clocks. It ends with a failure when some books do not close, and not when a goal is missed.
#![forbid(unsafe_code)]

mod face;
mod flags;
mod goals;
mod load;
mod measure;
mod process;
mod programs;
mod relay;
mod rivals;
mod round;
mod show;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::{Cores, Extent, Options, Results, ending, print_machine};

use flags::Flags;
use load::Load;
use measure::{Effort, Row, State};
use rivals::{Rival, Serve};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(code) = process::main(&args) {
        return code;
    }
    match flags::parse(args) {
        Ok(flags) => ending(bench(&flags)),
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}

fn effort(extent: Extent) -> Effort {
    let millis = Duration::from_millis;
    let effort = |rounds, warm_ups, warm_up, counted| Effort {
        rounds,
        warm_ups,
        warm_up: millis(warm_up),
        counted: millis(counted),
        connections_max: usize::MAX,
        may_void: true,
    };
    match extent {
        Extent::Quick => Effort { connections_max: 64, may_void: false, ..effort(1, 0, 50, 100) },
        Extent::Default => effort(5, 1, 300, 1_000),
        Extent::Full => effort(7, 1, 300, 1_500),
    }
}

fn bench(flags: &Flags) -> Result<(), String> {
    let (cores, effort) = (Cores::of_this_process()?, effort(flags.extent));
    let options = Options { extent: flags.extent, only: flags.part() };
    let mut results = Results::new("peers", &options).with_command(flags::COMMAND);
    print_machine();
    println!("extent    {}: {} rounds of {:?}, medians", flags.extent.name(), effort.rounds, effort.counted);
    println!("pinned    server to core {}, client to core {}", cores.server, cores.load);
    println!(
        "relay     on core {}, loses {} of 1,000 and holds {:?} in each direction, seed {:#x}",
        cores.between,
        relay::LOST_PER_MILLE,
        relay::HELD,
        relay::SEED
    );
    let rivals: Vec<Rival> =
        rivals::all().into_iter().filter(|rival| flags.wants_peer(rival.family)).collect();
    let missing = build_programs(&rivals);
    let why = |rival: &Rival| missing.get(rival.name).cloned();
    let mut failures = Vec::new();
    for load in Load::ALL.into_iter().filter(|load| flags.wants_load(load)) {
        let rows = measure::rows(load, &rivals, effort.connections_max);
        let rows = measure::measure(cores, load, rows, &effort, &why);
        println!("\n{}", show::table(load, &rows));
        report(load, &rows, &mut results)?;
        goals::figures(load, &rows, &mut results);
        let failed = rows.iter().filter(|row| matches!(row.state, State::Failed(_)));
        failures.extend(failed.map(|row| format!("{}: {}", load.name, row.name())));
    }
    println!("\n{}", results.table());
    println!("written to {}", write(&results)?);
    if failures.is_empty() { Ok(()) } else { Err(format!("these failed: {}", failures.join("; "))) }
}

fn report(load: Load, rows: &[Row], results: &mut Results) -> Result<(), String> {
    for row in rows {
        for report in &row.measured.rounds {
            results.run(&format!("{}: {}", load.name, row.name()), report)?;
        }
    }
    Ok(())
}

/// Builds the servers that are programs of other languages; answers why not, by the rival's name.
fn build_programs(rivals: &[Rival]) -> HashMap<&'static str, String> {
    let mut missing = HashMap::new();
    for rival in rivals {
        if let Serve::Program(program) = rival.serve
            && let Err(line) = programs::build(program)
        {
            missing.insert(rival.name, line);
        }
    }
    missing
}

/// Among the reports of the whole project, unless the target folder is somewhere else altogether.
fn write(results: &Results) -> Result<String, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let path = match here.ancestors().nth(2) {
        Some(root) if program.starts_with(here) => results.write_in(&root.join("target/reports"))?,
        _ => results.write()?,
    };
    Ok(path.display().to_string())
}
