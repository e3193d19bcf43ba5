//! `cargo xtask sim`: the simulator's scenarios over a range of seeds, as they are or with bugs planted.
//!
//! The simulator is built from a copy of the project, in which every sealed packet is audited and bugs are planted. So no published
//! crate has the hooks for that. The simulator decides what has to hold, what it prints, and how many threads run.

mod bugs;
mod tree;

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use crate::ledger;
use crate::run::{CommandLine, Stop, end};
use crate::workspace::Workspace;

use tree::Tree;

/// The first words of the simulator's line of figures.
const COUNTED: &str = "counted: ";
/// The first words of its line that names a seed that failed.
const FAILED: &str = "FAILED: seed ";

/// Which bug is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// All of them, one after the other: each must be found.
    All,
    /// The one of this number. Finding it is a failure like any other.
    One(u32),
}

/// Which scenarios run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Scenarios of some seconds.
    Short,
    /// Scenarios with several workers, whose sockets, threads, and code fail too.
    Workers,
    /// Scenarios of an hour.
    Long,
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Ask<'a> {
    /// Run scenarios as they are.
    Seeds {
        seeds: &'a Range<u64>,
        kind: Kind,
        /// Whether the figures are written into the ledger.
        keeps: bool,
    },
    /// Run the scenarios of a bug's patch with the bug, or those of all bugs.
    Plant {
        plant: Plant,
        /// The seeds, instead of those that the patch names.
        seeds: Option<&'a Range<u64>>,
        /// Whether the figures are written into the ledger.
        keeps: bool,
    },
    /// Run the tests that need the copy: those of the audit, the core's with every packet audited, and those of panics in the code
    /// of connections.
    Tests,
    /// Renew the patch of this name.
    Refresh(&'a str),
}

/// Does what was asked for.
///
/// # Errors
/// [`Stop::Failed`] when a scenario did not hold; the simulator has printed which, why, and how to replay it. With all bugs planted
/// in turn, when one was not found.
pub(crate) fn run(ask: &Ask<'_>) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let root = &workspace.root;
    let tree = Tree::of(root, &workspace.target)?;
    match *ask {
        Ask::Seeds { seeds, kind, keeps } => {
            tree.write(None)?;
            build(&tree)?;
            run_seeds(root, &tree, &kind.flags(seeds), keeps)
        }
        Ask::Plant { plant: Plant::All, seeds, keeps } => bugs::run(root, &tree, seeds, keeps),
        Ask::Plant { plant: Plant::One(number), seeds, .. } => {
            judge(bugs::run_one(&tree, number, seeds)?.status)
        }
        Ask::Tests => {
            tree.write(None)?;
            TESTS.iter().try_for_each(|test| tree.cargo(test).done(&tree.path()))
        }
        Ask::Refresh(name) => tree.refresh(root, name),
    }
}

/// Checks that all patches apply.
///
/// # Errors
/// [`Stop::Failed`] with the first that does not.
pub(crate) fn check_patches(workspace: &Workspace) -> Result<(), Stop> {
    Tree::of(&workspace.root, &workspace.target)?.check()
}

/// Tests that run in the copy. Two kinds of the core's are left out, because their packets share keys and numbers on purpose: the
/// peers of `peer_crowd`, and copies of an endpoint.
const TESTS: [&str; 3] = [
    "test --profile sim -p drumfire-crypto --lib --test audit_nonce -- audit_nonce:: keys_that_outlive",
    "test --profile sim -p drumfire-proto --test core -- --skip peer_crowd:: --skip copies_that_go_on_seal_two_packets_under_one_number",
    "test --profile sim -p drumfire --lib -- worker::tests::panics::",
];

/// Builds the simulator from the copy.
fn build(tree: &Tree) -> Result<(), Stop> {
    let command = tree.cargo("build --profile sim --quiet -p drumfire-sim --bin drumfire-sim");
    let status = command.run(&tree.path(), None)?;
    if status.success() { Ok(()) } else { Err(Stop::failed(format!("{command}: {status}"))) }
}

impl Kind {
    /// Returns the flags that this task and the simulator have in common.
    fn flags(self, seeds: &Range<u64>) -> Vec<String> {
        let range = ["--seeds".to_owned(), format!("{}..{}", seeds.start, seeds.end)];
        let kind = match self {
            Self::Short => None,
            Self::Workers => Some("--worker".to_owned()),
            Self::Long => Some("--long".to_owned()),
        };
        kind.into_iter().chain(range).collect()
    }
}

/// Runs scenarios without a bug, and writes a line for the ledger.
fn run_seeds(root: &Path, tree: &Tree, flags: &[String], keeps: bool) -> Result<(), Stop> {
    let heard = simulate(tree, flags, true)?;
    let figures = match (&heard.counted, &heard.failed) {
        (Some(counted), None) => format!("{counted} findings=0"),
        // The other seeds ran, but their figures are lost with the run.
        (_, Some((seed, _))) => format!("seeds={seed}..{} findings=1", seed.saturating_add(1)),
        (None, None) => return judge(heard.status),
    };
    ledger::note(root, &format!("xtask sim {}", flags.join(" ")), &[figures], keeps)?;
    judge(heard.status)
}

fn judge(status: ExitStatus) -> Result<(), Stop> {
    if status.success() { Ok(()) } else { Err(Stop::failed(format!("sim: {status}"))) }
}

/// The outcome of a run of the simulator.
struct Heard {
    status: ExitStatus,
    /// Its figures.
    counted: Option<String>,
    /// The seed that did not hold, and why.
    failed: Option<(u64, String)>,
}

/// Runs the simulator with these flags. Its output is passed on if `is_loud`.
fn simulate(tree: &Tree, flags: &[String], is_loud: bool) -> Result<Heard, Stop> {
    let command = flags.iter().fold(tree.program(), CommandLine::arg);
    if is_loud {
        println!("{command}");
    }
    listen(&tree.path(), &command, is_loud)
}

/// Runs a command and reads its output, which is passed on if `is_loud`.
fn listen(folder: &Path, command: &CommandLine, is_loud: bool) -> Result<Heard, Stop> {
    let failed = |why: std::io::Error| Stop::failed(format!("{command}: {why}"));
    let mut ready = command.command();
    ready.current_dir(folder).stdout(Stdio::piped());
    if !is_loud {
        // Where a bug is planted, panics are expected.
        ready.stderr(Stdio::null());
    }
    let mut child = ready.spawn().map_err(failed)?;
    let (mut counted, mut seed) = (None, None);
    for line in child.stdout.take().into_iter().flat_map(|said| BufReader::new(said).lines()) {
        let Ok(line) = line else { break };
        if is_loud {
            println!("{line}");
        }
        counted = counted.or_else(|| line.strip_prefix(COUNTED).map(str::to_owned));
        seed = seed.or_else(|| failing(&line).map(|(seed, why)| (seed, why.to_owned())));
    }
    let status = child.wait().map_err(|why| {
        end(&mut child);
        failed(why)
    })?;
    Ok(Heard { status, counted, failed: seed })
}

/// Returns the seed and the reason of a line that reports a failure.
fn failing(line: &str) -> Option<(u64, &str)> {
    let (seed, reason) = line.strip_prefix(FAILED)?.split_once(": ")?;
    Some((seed.parse().ok()?, reason))
}

/// Reads `A..B`.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("write it as A..B, from A up to, and without, B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|why| format!("`{text}`: {why}"));
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err("there is no seed in it".to_owned()) } else { Ok(range) }
}

/// Reads a bug's number, or `all`.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn plant(text: &str) -> Result<Plant, String> {
    match text {
        "all" => Ok(Plant::All),
        number => number.parse().map(Plant::One).map_err(|_| "write the number of a bug, or all".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_two_ends_and_a_seed_at_least() {
        assert_eq!(seeds("0..1000"), Ok(0..1_000));
        assert_eq!(seeds("17..18"), Ok(17..18));
        for bad in ["", "7", "7..", "..7", "7..7", "8..7", "a..b", "0..=7", "-1..2"] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bug_has_a_number() {
        assert_eq!(plant("all"), Ok(Plant::All));
        assert_eq!(plant("24"), Ok(Plant::One(24)));
        for bad in ["", "x", "ALL", "-1"] {
            assert!(plant(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_failure_has_a_seed_and_a_reason() {
        assert_eq!(failing("FAILED: seed 7: after 3 s: came twice"), Some((7, "after 3 s: came twice")));
        for other in ["", "100 of 200 seeds held", "FAILED: seed x: y", "FAILED: seed 7"] {
            assert_eq!(failing(other), None, "{other}");
        }
    }

    #[test]
    fn what_the_simulator_prints_is_understood() {
        let script = "echo counted: seeds=0..9; echo 'FAILED: seed 4: it broke'; exit 1";
        let heard = listen(Path::new("."), &CommandLine::new("sh", &["-c", script]), false).unwrap();
        assert_eq!(heard.counted.as_deref(), Some("seeds=0..9"));
        assert_eq!(heard.failed, Some((4, "it broke".to_owned())));
        assert!(judge(heard.status).is_err());
    }
}
