//! `cargo xtask nightly`: the long forms of all checks that look for faults, within a budget of minutes.
//!
//! A part that fails is a finding. The other parts still run, and then the task fails. It also fails if the time was
//! not enough for all batches of the simulator.

use std::fs;
use std::path::Path;
use std::time::Duration;

use minijinja::context;
use serde::Deserialize;

use crate::fuzz;
use crate::ledger;
use crate::run::{CommandLine, Stop, is_installed};
use crate::steps::{self, Step, Steps};
use crate::workspace::Workspace;

/// The part whose counts go into the ledger.
const MUTANTS: &str = "mutants";
/// The counts of cargo-mutants, below the root.
const MUTANT_COUNTS: &str = "mutants.out/outcomes.json";

/// Every part runs at least once in this number of nights.
const TURNS: u64 = 3;
/// Shards of mutants. One takes about half an hour.
const SHARDS: u64 = 8;
/// The steps that run batches of seeds in the simulator. The ledger keeps those that ran before the time was over.
const BATCH: &str = "simulator";
/// The minimum time for each target of the fuzzer, in seconds.
const FUZZ_SECONDS: u64 = 60;
/// The time for the fuzzer's build, and for starting and ending its targets.
const FUZZ_BUILD: Duration = Duration::from_secs(180);

#[derive(Debug, clap::Args)]
pub(crate) struct NightlyArgs {
    /// The budget in minutes.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Select the parts that run every third night. The default depends on the date.
    #[arg(long, value_name = "0..2", value_parser = clap::value_parser!(u64).range(0..=2))]
    turn: Option<u64>,
}

/// Runs all parts, then batches of the simulator, then the fuzzer for the rest of the time.
pub(crate) fn run(workspace: &Workspace, args: &NightlyArgs) -> Result<(), Stop> {
    let root = &workspace.root;
    let number = args.turn.map_or_else(days_since_1970, Ok)?;
    let release = CommandLine::new("git", &["describe", "--tags", "--abbrev=0"]).output();
    let release = release.ok().map(|tag| tag.trim().to_owned());
    let parts = parts(workspace, number, ledger::next_seed(root)?, release)?;
    // The folder of `packages alone`. The call fails if the folder does not exist.
    drop(fs::remove_dir_all(workspace.target.join("alone")));
    ledger::begin(root)?;
    let mut steps = Steps::new(workspace, parts.len() + 1);
    let budget = Duration::from_secs(60 * args.minutes);
    // Targets that run in parallel take the time of one.
    let turns = fuzz::target_count(root)?.div_ceil(fuzz::threads() as u64);
    let reserve = FUZZ_BUILD + Duration::from_secs(FUZZ_SECONDS * turns);
    let (mut left, mut longest) = (0, Duration::ZERO);
    for part in &parts {
        let before = steps.elapsed();
        // One more batch that takes as long as the longest so far must leave the fuzzer its time.
        if part.name == BATCH && before + longest + reserve > budget {
            left += 1;
            continue;
        }
        run_step(root, &mut steps, part)?;
        if part.name == BATCH {
            longest = longest.max(steps.elapsed().saturating_sub(before));
        }
        if part.name == MUTANTS && is_installed("cargo-mutants") {
            note_mutants(root)?;
        }
    }
    let rest = budget.saturating_sub(steps.elapsed()).saturating_sub(FUZZ_BUILD);
    run_step(root, &mut steps, &fuzzer(rest, turns))?;
    let elapsed = steps.elapsed();
    let outcome = steps.finish();
    ledger::run(workspace)?;
    outcome?;
    if left > 0 {
        return Err(Stop::failed(format!(
            "the time was too short for {left} batches of the simulator: raise --minutes"
        )));
    }
    if elapsed > budget {
        let minutes = elapsed.as_secs().div_ceil(60);
        return Err(Stop::failed(format!("the night took {minutes} minutes instead of {}", args.minutes)));
    }
    Ok(())
}

/// Returns the parts of a night. Its number selects those with a turn, and the shard of mutants.
fn parts(workspace: &Workspace, number: u64, seed: u64, release: Option<String>) -> Result<Vec<Step>, Stop> {
    let shard = format!("{}/{SHARDS}", number / TURNS % SHARDS);
    let mut parts = steps::read(workspace, "nightly", context! { seed, shard, release })?;
    parts.retain(|part| part.turn.is_none_or(|turn| turn == number % TURNS));
    Ok(parts)
}

/// Runs one step. A failure that the step itself did not write into the ledger is written here.
fn run_step(root: &Path, steps: &mut Steps<'_>, step: &Step) -> Result<(), Stop> {
    let before = ledger::findings(root)?;
    let why = match steps.run(step) {
        Err(Stop::Failed(why)) => why,
        outcome => return outcome,
    };
    eprintln!("{why}");
    if ledger::findings(root)? > before {
        return Ok(());
    }
    ledger::note(root, &step.run, "findings=1", true)
}

/// The counts of cargo-mutants. Mutants that do not compile are not counted.
#[derive(Debug, Deserialize)]
struct Mutants {
    caught: u64,
    /// A test that no longer ends has caught its mutant.
    timeout: u64,
    missed: u64,
}

fn note_mutants(root: &Path) -> Result<(), Stop> {
    let Ok(text) = fs::read_to_string(root.join(MUTANT_COUNTS)) else { return Ok(()) };
    let Mutants { caught, timeout, missed } =
        serde_json::from_str(&text).map_err(|why| format!("{MUTANT_COUNTS}: {why}"))?;
    let caught = caught + timeout;
    ledger::note(root, MUTANTS, &format!("mutants={caught}/{} findings=0", caught + missed), true)
}

/// Returns the step of the fuzzer, which has `rest` for all its turns.
fn fuzzer(rest: Duration, turns: u64) -> Step {
    let seconds = (rest.as_secs() / turns.max(1)).max(FUZZ_SECONDS);
    // Twice the time, for the builds and for targets that are slow to start.
    let deadline = 4 * FUZZ_BUILD.as_secs() + 2 * seconds * turns;
    Step::new("fuzzer", &format!("cargo xtask fuzz all --seconds {seconds} --ledger"), deadline.div_ceil(60))
}

fn days_since_1970() -> Result<u64, Stop> {
    let seconds = CommandLine::new("date", &["-u", "+%s"]).output()?;
    let seconds: u64 = seconds.trim().parse().map_err(|why| format!("date: {seconds}: {why}"))?;
    Ok(seconds / (24 * 60 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{self, root};
    use std::collections::BTreeSet;
    use std::ops::Range;

    /// Returns the commands of some nights.
    fn commands(numbers: Range<u64>, release: Option<&str>) -> BTreeSet<String> {
        let workspace = &Workspace::load().unwrap();
        let parts =
            numbers.flat_map(|number| parts(workspace, number, 7_000, release.map(str::to_owned)).unwrap());
        parts.map(|step| step.command().to_string()).collect()
    }

    #[test]
    fn every_part_has_its_night_and_continues_with_new_seeds() {
        let all = commands(0..TURNS * SHARDS, Some("v1"));
        for start in [
            "cargo xtask sim --seeds 7000..17000 --ledger",
            "cargo xtask sim --seeds 97000..107000 --ledger",
            "cargo xtask sim --worker --seeds 7000..27000 --ledger",
            "cargo check -p drumfire --no-default-features --features tokio",
            "cargo xtask example chat",
            "cargo package --offline --allow-dirty --target-dir target/alone/7000 -p drumfire",
            "cargo semver-checks --baseline-rev v1 -p drumfire",
        ] {
            assert!(all.iter().any(|command| command.starts_with(start)), "{start}: {all:#?}");
        }
        assert!(!all.contains("cargo xtask example shared_port"), "it has one end");
        assert_eq!(all.iter().filter(|command| command.starts_with("cargo mutants")).count() as u64, SHARDS);
        assert!(!commands(0..TURNS, None).iter().any(|command| command.contains("semver")));
    }

    #[test]
    fn the_fuzzer_has_the_rest_of_the_time_or_a_minute_per_target() {
        let run = |rest| fuzzer(Duration::from_secs(rest), 18).run;
        assert_eq!(run(3_600), "cargo xtask fuzz all --seconds 200 --ledger");
        assert_eq!(run(0), "cargo xtask fuzz all --seconds 60 --ledger");
        assert!(fuzzer(Duration::from_secs(3_600), 18).minutes > Some(60));
    }

    #[test]
    fn the_variables_of_full_tests_are_those_that_tests_read() {
        let folder = root().join("crates");
        let all = Vec::from_iter(commands(0..1, None)).join(" ");
        for (path, name) in [
            ("tries/src/lib.rs", "DRUMFIRE_FULL"),
            ("proto/tests/core/connection/paths.rs", "DRUMFIRE_SEEDS"),
            ("proto/tests/core/hostile/strategies.rs", "STRATEGY_SEEDS"),
            ("proto/tests/hostile_traffic/seeds.rs", "HOSTILE_SEEDS"),
            ("proto/tests/hostile_traffic/cost.rs", "HOSTILE_COUNTED_SEEDS"),
        ] {
            assert!(all.contains(&format!("{name}=")), "{name}");
            assert!(files::text(&folder.join(path)).unwrap().contains(&format!("\"{name}\"")), "{path}");
        }
    }

    #[test]
    fn a_part_that_fails_is_a_finding_and_mutants_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        files::write(&folder.join(ledger::PATH), files::read(&root().join(ledger::PATH)).unwrap()).unwrap();
        let script = "git init -q && git -c user.name=x -c user.email=x commit -q --allow-empty -m x";
        CommandLine::new("sh", &["-c", script]).in_folder(folder).done().unwrap();
        ledger::begin(folder).unwrap();
        let before = ledger::findings(folder).unwrap();
        let workspace = Workspace::load().unwrap();
        let mut steps = Steps::new(&workspace, 1);
        run_step(folder, &mut steps, &Step::new("fails", "cargo no-such-command", 1)).unwrap();
        assert!(steps.finish().is_err());
        assert_eq!(ledger::findings(folder).unwrap(), before + 1);

        let counts = r#"{"total_mutants":9,"caught":4,"timeout":1,"missed":2,"unviable":2}"#;
        files::write(&folder.join(MUTANT_COUNTS), counts).unwrap();
        note_mutants(folder).unwrap();
        assert!(files::text(&folder.join(ledger::PATH)).unwrap().contains("mutants = \"5/7\""));
        files::write(&folder.join(MUTANT_COUNTS), "{}").unwrap();
        assert!(note_mutants(folder).is_err());
    }
}
