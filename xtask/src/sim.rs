//! `cargo xtask sim`: the simulator's scenarios over a range of seeds, in release, as they are or with bugs planted.
//!
//! It builds and runs the simulator; what holds, what is printed, and how many threads run is the simulator's business.

mod plant;

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use crate::cpu;
use crate::ledger;
use crate::run::{CommandLine, Stop, end};
use crate::workspace::Workspace;

/// Seeds within which a planted bug must be found.
const PLANTED_SEEDS: Range<u64> = 0..2_000;
/// What the simulator's line of figures begins with.
const COUNTED: &str = "counted: ";
/// What its line of a finding begins with.
const FAILED: &str = "FAILED: seed ";

/// Which bug is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// All of them, one after the other: each must be found.
    All,
    /// The one of this number, which must be found too, and then is a failure like any other.
    One(u32),
}

/// Which scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of some seconds.
    Short,
    /// With several workers, whose sockets, threads and code fail too.
    Workers,
    /// Of an hour.
    Long,
}

/// What to do.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    /// Where bugs are planted, the first 2,000 when none are named.
    pub(crate) seeds: Option<&'a Range<u64>>,
    pub(crate) kind: Kind,
    pub(crate) plant: Option<Plant>,
    /// Whether the figures are written into the ledger.
    pub(crate) keeps: bool,
}

/// Runs the scenarios of these seeds.
///
/// # Errors
/// [`Stop::Failed`] when one did not hold; the simulator has printed which, why, and how to replay it. With all bugs planted
/// in turn, when one was not found.
pub(crate) fn run(ask: &Ask<'_>) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let root = &workspace.root;
    let Some(package) = workspace.package_in("crates/sim") else {
        return Err(Stop::failed("crates/sim: there is no such package"));
    };
    let features = if ask.plant.is_some() { "plant" } else { "audit-nonce,hostile" };
    let args = ["build", "--release", "--quiet", "-p", &package.name, "--features", features];
    let build = CommandLine::new("cargo", &args).arg("--bin").arg(package.name.clone());
    println!("{build}");
    if !build.run(root, None)?.success() {
        return Err(Stop::failed(format!("{build} failed")));
    }
    let program = workspace.target.join("release").join(&package.name).to_string_lossy().into_owned();
    let seeds = ask.seeds.unwrap_or(&PLANTED_SEEDS);
    let program = CommandLine::new::<&str>(&program, &[]);
    let flags = ask.flags(seeds);
    let with = |flags: &[String]| flags.iter().fold(program.clone(), CommandLine::arg);
    match ask.plant {
        Some(Plant::All) => plant::run(root, &program, seeds, ask.keeps),
        Some(Plant::One(number)) => {
            let kind = plant::kind_of(root, &program, number)?;
            let kind = kind.filter(|kind| !flags.contains(kind));
            let flags: Vec<_> = kind.into_iter().chain(flags).collect();
            judge(watch(root, &with(&flags).arg("--plant").arg(number.to_string()))?.status)
        }
        None => simulate(root, &with(&flags), &flags.join(" "), ask.keeps),
    }
}

impl Ask<'_> {
    /// What the simulator and this task both call it.
    fn flags(&self, seeds: &Range<u64>) -> Vec<String> {
        let range = ["--seeds".to_owned(), format!("{}..{}", seeds.start, seeds.end)];
        let kind = match self.kind {
            Kind::Short => None,
            Kind::Workers => Some("--worker".to_owned()),
            Kind::Long => Some("--long".to_owned()),
        };
        kind.into_iter().chain(range).collect()
    }
}

/// One run as it is, with its line for the ledger.
fn simulate(root: &Path, command: &CommandLine, flags: &str, keeps: bool) -> Result<(), Stop> {
    let heard = watch(root, command)?;
    let figures = match (&heard.counted, heard.failed) {
        (Some(counted), None) => format!("{counted} {} findings=0", cpu::field(heard.cpu_seconds)),
        // The others have run, and are not counted: their figures are lost with the run.
        (_, Some(seed)) => format!("seeds={seed}..{} findings=1", seed.saturating_add(1)),
        (None, None) => return judge(heard.status),
    };
    ledger::note(root, &format!("xtask sim {flags}"), &[figures], keeps)?;
    judge(heard.status)
}

fn judge(status: ExitStatus) -> Result<(), Stop> {
    if status.success() { Ok(()) } else { Err(Stop::failed(format!("sim: {status}"))) }
}

/// What the simulator said.
struct Heard {
    status: ExitStatus,
    /// Its figures.
    counted: Option<String>,
    /// The seed that did not hold.
    failed: Option<u64>,
    /// `None` where the system does not tell.
    cpu_seconds: Option<u64>,
}

/// Runs the simulator, passes on what it says, and listens.
fn watch(root: &Path, command: &CommandLine) -> Result<Heard, Stop> {
    println!("{command}");
    let failed = |why: std::io::Error| Stop::failed(format!("{command}: {why}"));
    let mut child = command.command().current_dir(root).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let (mut counted, mut seed) = (None, None);
    for line in child.stdout.take().into_iter().flat_map(|said| BufReader::new(said).lines()) {
        let Ok(line) = line else { break };
        println!("{line}");
        counted = counted.or_else(|| line.strip_prefix(COUNTED).map(str::to_owned));
        seed = seed.or_else(|| failing(&line).map(|(seed, _)| seed));
    }
    let cpu_seconds = cpu::seconds_of(&child);
    let status = child.wait().map_err(|why| {
        end(&mut child);
        failed(why)
    })?;
    Ok(Heard { status, counted, failed: seed, cpu_seconds })
}

/// The seed of a line that tells of a finding, and what was found.
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
    if text == "all" {
        return Ok(Plant::All);
    }
    match text.parse() {
        Ok(number) if (1..=plant::COUNT).contains(&number) => Ok(Plant::One(number)),
        _ => Err(format!("write a number from 1 to {}, or all", plant::COUNT)),
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
    fn a_bug_is_known_by_its_number() {
        assert_eq!(plant("all"), Ok(Plant::All));
        assert_eq!(plant("24"), Ok(Plant::One(24)));
        for bad in ["", "0", "25", "x", "ALL"] {
            assert!(plant(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_finding_has_a_seed_and_a_reason() {
        assert_eq!(failing("FAILED: seed 7: after 3 s: came twice"), Some((7, "after 3 s: came twice")));
        for other in ["", "100 of 200 seeds held", "FAILED: seed x: y", "FAILED: seed 7"] {
            assert_eq!(failing(other), None, "{other}");
        }
    }

    #[test]
    fn the_simulator_is_listened_to() {
        let script = "echo counted: seeds=0..9; echo 'FAILED: seed 4: it broke'; exit 1";
        let heard = watch(Path::new("."), &CommandLine::new("sh", &["-c", script])).unwrap();
        assert_eq!((heard.counted.as_deref(), heard.failed), (Some("seeds=0..9"), Some(4)));
        assert!(judge(heard.status).is_err());
    }
}
