//! drumfire and its rivals in one table.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml` runs the loads A to F and S of `README.md` against every rival,
//! reliable and unreliable, and some of them again through a relay that loses and delays; prints how long it will take, a table
//! for each load and every figure beside its goal; and writes `peers.json` among the reports. Flags: `--quick` (a smoke run),
//! `--full`, `--only LOAD...`, `--peers NAME...`. Server and client run in processes of their own, each on its own core; this
//! process only looks at their clocks. It ends with a failure when some books do not close, and not when a goal is missed.
#![forbid(unsafe_code)]

mod effort;
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

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::{Cores, Options, Results, ending, print_machine};

use effort::Effort;
use flags::Flags;
use load::Load;
use measure::{Missing, Row, State};
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

fn bench(flags: &Flags) -> Result<(), String> {
    let cores = Cores::of_this_process()?;
    let options = Options { extent: flags.extent, only: flags.part() };
    let mut results = Results::new("peers", &options).with_command(flags::COMMAND);
    results.pinned(cores);
    let mut rivals: Vec<Rival> =
        rivals::all().into_iter().filter(|rival| flags.wants_peer(rival.family)).collect();
    let missing = build_programs(&mut rivals);
    let mut plan = plan(flags, &rivals, &missing);
    print_machine();
    println!("extent    {}, {}", flags.extent.name(), time_of(&plan));
    println!(
        "relay     on core {}, loses {} of 1,000 and holds {:?} in each direction, seed {:#x}",
        cores.between,
        relay::LOST_PER_MILLE,
        relay::HELD,
        relay::SEED
    );
    let mut failures = Vec::new();
    for (load, effort, rows) in &mut plan {
        measure::measure(cores, *load, rows, effort);
        println!("\n{}", show::table(*load, effort, rows));
        report(*load, rows, &mut results)?;
        goals::figures(*load, rows, &mut results);
        let failed = rows.iter().filter(|row| matches!(row.state, State::Failed(_)));
        failures.extend(failed.map(|row| format!("{}: {}", load.name, row.name())));
    }
    println!("\n{}", results.table());
    println!("written to {}", write(&results)?);
    if failures.is_empty() { Ok(()) } else { Err(format!("these failed: {}", failures.join("; "))) }
}

/// What is to be measured, in order.
type Plan = Vec<(Load, Effort, Vec<Row>)>;

fn plan(flags: &Flags, rivals: &[Rival], missing: &Missing) -> Plan {
    let of_load = |load| {
        let effort = Effort::of(flags.extent, load);
        (load, effort, measure::rows(load, rivals, effort.connections_max, missing))
    };
    Load::ALL.into_iter().filter(|load| flags.wants_load(load)).map(of_load).collect()
}

/// How long it takes, for people.
fn time_of(plan: &Plan) -> String {
    let of_load = |(load, effort, rows): &(Load, Effort, Vec<Row>)| -> Duration {
        rows.iter().map(|row| row.time(*load, effort)).sum()
    };
    let seconds = plan.iter().map(of_load).sum::<Duration>().as_secs();
    let time = if seconds < 100 { format!("{seconds} s") } else { format!("{} minutes", seconds / 60) };
    let rows = plan.iter().flat_map(|(_, _, rows)| rows).filter(|row| row.state == State::Measured).count();
    format!("{rows} rows of a load and a library: about {time}, and longer where rounds are void")
}

fn report(load: Load, rows: &[Row], results: &mut Results) -> Result<(), String> {
    for row in rows {
        for report in &row.measured.rounds {
            results.run(&format!("{}: {}", load.name, row.name_of_runs()), report)?;
        }
    }
    Ok(())
}

/// Builds the servers that are programs of other languages, which tell their versions; answers why not, by the rival's name.
fn build_programs(rivals: &mut [Rival]) -> Missing {
    let mut missing = Missing::new();
    for rival in rivals {
        if let Serve::Program(program) = rival.serve {
            match programs::build(program) {
                Ok(version) => rival.version = version,
                Err(line) => drop(missing.insert(rival.name, line)),
            }
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
