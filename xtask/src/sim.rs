//! `cargo xtask sim`: the simulator's scenarios over a range of seeds, unchanged or with planted bugs.
//!
//! The simulator is built from a copy of the project, in which every sealed packet is audited and bugs are planted. So
//! no published crate has hooks for that. The checks, the output, and the number of threads are those of the simulator.

mod patches;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use self::patches::{Bug, PatchedCopy};
use crate::ledger;
use crate::run::{FOREVER, Stop, fail_for, now};
use crate::workspace::Workspace;

/// The prefix of the simulator's line of figures.
const COUNTED: &str = "counted: ";
/// The prefix of its line with a seed that failed and the reason.
const FAILED: &str = "FAILED: seed ";
/// The name of all bugs.
const ALL: &str = "all";
/// The characters of a reason that the list of planted bugs shows.
const REASON_CHARS: usize = 100;
/// Tests that run in the copy. Two kinds of tests of the core are left out, because their packets share keys and numbers on purpose:
/// the peers of `hostile::many_peers`, and copies of an endpoint.
const TESTS: [&str; 3] = [
    "test --profile sim -p drumfire-crypto --lib --test audit_nonce -- audit_nonce:: keys_that_outlive",
    "test --profile sim -p drumfire-proto --test core -- --skip hostile::many_peers:: --skip copied_processes_seal_two_packets_under_one_number",
    "test --profile sim -p drumfire --lib -- worker::tests::panics::",
];

#[derive(Debug, clap::Args)]
pub(crate) struct SimArgs {
    /// The seeds from A to B; B is not included. A planted bug has seeds of its own.
    #[arg(long, value_name = "A..B", value_parser = ledger::parse_seeds, required_unless_present_any = ["plant", "tests"])]
    seeds: Option<Range<u64>>,
    /// Run scenarios with several workers, in which sockets, threads, and application code fail too.
    #[arg(long, conflicts_with = "plant")]
    worker: bool,
    /// Run scenarios with many clients that join and leave, for an hour of virtual time each.
    #[arg(long, conflicts_with_all = ["plant", "worker"])]
    long: bool,
    /// Plant the bug with this number, which the run must find; `all` plants one bug after the other.
    #[arg(long, value_name = "N")]
    plant: Option<String>,
    /// Run tests in the copy instead of scenarios: those of the core with every packet audited, and those of panics.
    #[arg(long, conflicts_with_all = ["seeds", "plant", "worker", "long"])]
    tests: bool,
    /// Add the figures to the ledger.
    #[arg(long, conflicts_with = "tests")]
    ledger: bool,
}

/// Runs scenarios or tests in the copy.
pub(crate) fn run(workspace: &Workspace, args: &SimArgs) -> Result<(), Stop> {
    let root = &workspace.root;
    let copy = PatchedCopy::of(root, &workspace.target)?;
    if args.tests {
        copy.write(None)?;
        return TESTS.iter().try_for_each(|test| copy.cargo(test).done());
    }
    let seeds = args.seeds.as_ref();
    match args.plant.as_deref() {
        Some(ALL) => plant_all(root, &copy, seeds, args.ledger),
        // A bug that is found is a failure like any other.
        Some(number) => {
            let outcome = plant(&copy, bug(&copy, number)?, seeds, true)?;
            copy.write(None)?;
            check_status(outcome.status)
        }
        None => {
            let kind =
                [args.worker.then_some("--worker"), args.long.then_some("--long")].into_iter().flatten();
            let seeds = seeds.map_or(String::new(), |seeds| format!("{seeds:?}"));
            let flags: Vec<String> = kind.chain(["--seeds", &seeds]).map(str::to_owned).collect();
            run_seeds(root, &copy, &flags, args.ledger)
        }
    }
}

pub(crate) fn check_patches(workspace: &Workspace) -> Result<(), Stop> {
    PatchedCopy::of(&workspace.root, &workspace.target)?.check()
}

fn bug<'a>(copy: &'a PatchedCopy, number: &str) -> Result<&'a Bug, Stop> {
    let all = copy.bugs.len();
    let bug = copy.bugs.iter().find(|bug| bug.number == number);
    Ok(bug.ok_or_else(|| format!("--plant {number}: write a number from 1 to {all}, or {ALL}"))?)
}

/// Returns the flags for the scenarios that show a bug, with other seeds if some were given.
fn flags_of(bug: &Bug, seeds: Option<&Range<u64>>) -> Vec<String> {
    let mut flags = bug.flags.clone();
    if let Some((last, seeds)) = flags.last_mut().zip(seeds) {
        *last = format!("{seeds:?}");
    }
    flags
}

/// Runs scenarios without a bug, and writes their figures to the ledger.
fn run_seeds(root: &Path, copy: &PatchedCopy, flags: &[String], keeps: bool) -> Result<(), Stop> {
    copy.build(None)?;
    let Outcome { status, counted, failed } = simulate(copy, flags, true)?;
    let figures = match (counted, failed) {
        (Some(counted), None) => format!("{counted} findings=0"),
        // The figures of the other seeds are lost with the run.
        (_, Some((seed, _))) => format!("seeds={seed}..{} findings=1", seed.saturating_add(1)),
        (None, None) => return check_status(status),
    };
    ledger::note(root, &format!("xtask sim {}", flags.join(" ")), &figures, keeps)?;
    check_status(status)
}

fn check_status(status: ExitStatus) -> Result<(), Stop> {
    if status.success() { Ok(()) } else { Err(Stop::failed(format!("sim: {status}"))) }
}

/// Plants every bug in turn, and prints the seed that found it. Before that, the same scenarios must hold without a bug, because a
/// scenario that fails by itself would find every bug.
fn plant_all(root: &Path, copy: &PatchedCopy, seeds: Option<&Range<u64>>, keeps: bool) -> Result<(), Stop> {
    copy.check()?;
    copy.build(None)?;
    for flags in copy.bugs.iter().map(|bug| flags_of(bug, seeds)).collect::<BTreeSet<_>>() {
        let Outcome { status, failed, .. } = simulate(copy, &flags, false)?;
        if !status.success() {
            return Err(Stop::failed(format!("without a bug, sim {} fails: {failed:?}", flags.join(" "))));
        }
    }
    let mut missed = Vec::new();
    let start = now();
    for bug in &copy.bugs {
        let outcome = plant(copy, bug, seeds, false)?;
        let found = if let Some((seed, reason)) = outcome.failed.filter(|_| !outcome.status.success()) {
            format!("seed {seed}: {}", reason.chars().take(REASON_CHARS).collect::<String>())
        } else {
            missed.push(&*bug.number);
            "NOT FOUND".to_owned()
        };
        println!("{:>2}  {}\n    {found}", bug.number, bug.title);
    }
    copy.write(None)?;
    let (all, found) = (copy.bugs.len(), copy.bugs.len() - missed.len());
    println!("{found} of {all} planted bugs found, in {:.1} s", start.elapsed().as_secs_f64());
    println!("replay one with: cargo xtask sim --plant N --seeds SEED..SEED+1");
    ledger::note(root, "xtask sim --plant all", &format!("planted={found}/{all} findings=0"), keeps)?;
    fail_for(&format!("found {found} of {all}, not"), &missed)
}

/// Plants a bug and runs the scenarios that show it. A copy that does not build is an error and does not count as
/// found.
fn plant(copy: &PatchedCopy, bug: &Bug, seeds: Option<&Range<u64>>, is_loud: bool) -> Result<Outcome, Stop> {
    copy.build(Some(bug))?;
    simulate(copy, &flags_of(bug, seeds), is_loud)
}

struct Outcome {
    status: ExitStatus,
    counted: Option<String>,
    /// The first seed that failed, and the reason.
    failed: Option<(u64, String)>,
}

/// Runs the simulator, and passes its output on if `is_loud`.
fn simulate(copy: &PatchedCopy, flags: &[String], is_loud: bool) -> Result<Outcome, Stop> {
    let line = copy.simulator().args(flags);
    if is_loud {
        println!("{line}");
    }
    // Where a bug is planted, panics are expected.
    let errors = if is_loud { Stdio::inherit() } else { Stdio::null() };
    let (mut counted, mut failed) = (None, None);
    let status = line.each_line(errors, FOREVER, |_, line| {
        if is_loud {
            println!("{line}");
        }
        counted = counted.take().or_else(|| line.strip_prefix(COUNTED).map(str::to_owned));
        failed = failed.take().or_else(|| parse_failure(line));
        Ok(())
    })?;
    Ok(Outcome { status, counted, failed })
}

/// Returns the seed and the reason of a line that reports a failure.
fn parse_failure(line: &str) -> Option<(u64, String)> {
    let (seed, reason) = line.strip_prefix(FAILED)?.split_once(": ")?;
    Some((seed.parse().ok()?, reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_names_its_scenarios() {
        let copy = PatchedCopy::of(crate::files::root(), Path::new("target")).unwrap();
        // Tidy checks that all of them can be planted.
        let numbers: Vec<&str> = copy.bugs.iter().map(|bug| &*bug.number).collect();
        assert_eq!(numbers, (1..=24).map(|number| number.to_string()).collect::<Vec<_>>());
        let flags = |number: usize, seeds| flags_of(&copy.bugs[number - 1], seeds).join(" ");
        assert_eq!(flags(1, None), "--seeds 0..2000");
        assert_eq!(flags(24, Some(&(3..4))), "--worker --seeds 3..4");
        assert_eq!(bug(&copy, "24").unwrap().flags, ["--worker", "--seeds", "0..2000"]);
        for bad in ["", "x", "ALL", "-1", "25"] {
            assert!(
                matches!(bug(&copy, bad), Err(Stop::Failed(why)) if why.contains("from 1 to 24")),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_failure_has_a_seed_and_a_reason() {
        let failed = parse_failure("FAILED: seed 7: after 3 s: came twice");
        assert_eq!(failed, Some((7, "after 3 s: came twice".to_owned())));
        for other in ["", "100 of 200 seeds held", "FAILED: seed x: y", "FAILED: seed 7"] {
            assert_eq!(parse_failure(other), None, "{other}");
        }
    }
}
