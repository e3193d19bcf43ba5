//! `cargo xtask ledger`: prints the sums of all nights in the ledger.
//!
//! The ledger is a file of nights and findings, which explains its figures. A task with `--ledger` adds its figures to the last night, or
//! to a new one when the last night was another commit. `cargo xtask nightly` begins a new one. Tidy checks that the file is what this
//! module writes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::de::{IntoDeserializer, value};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

pub(crate) const PATH: &str = "crates/sim/docs/LEDGER.toml";

/// A figure that is added up. The tasks use the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Sum {
    Audited,
    Faults,
    Findings,
    Hostile,
    Hours,
    Inputs,
    Packets,
    Seeds,
}

/// Figures that the tasks print and the ledger leaves out.
const OMITTED: [&str; 4] = ["handshakes", "target", "coverage", "corpus"];

#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Ledger {
    #[serde(default, rename = "night")]
    nights: Vec<Night>,
    #[serde(default, rename = "finding")]
    findings: Vec<Finding>,
}

/// The figures of one night. A figure that no task has noted is absent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
struct Night {
    date: String,
    commit: String,
    next_seed: Option<u64>,
    least: Option<u64>,
    planted: Option<String>,
    mutants: Option<String>,
    #[serde(flatten)]
    sums: BTreeMap<Sum, u64>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Finding {
    date: String,
    commit: String,
    command: String,
    /// The seed, the target, or `failed`.
    what: String,
}

pub(crate) fn run(workspace: &Workspace) -> Result<(), Stop> {
    let sums = Ledger::load(&workspace.root)?.sums();
    print!("{}", toml::to_string(&sums).map_err(|why| why.to_string())?);
    Ok(())
}

pub(crate) fn begin(root: &Path) -> Result<(), Stop> {
    let mut ledger = Ledger::load(root)?;
    ledger.nights.push(Night { date: today()?, commit: commit(root)?, ..Night::default() });
    ledger.save(root)
}

/// Prints the figures of a run, a text of `key=value`, and adds them to the file if `is_kept`.
pub(crate) fn note(root: &Path, command: &str, figures: &str, is_kept: bool) -> Result<(), Stop> {
    let (date, commit) = (today()?, commit(root)?);
    let mut ledger = if is_kept { Ledger::load(root)? } else { Ledger::default() };
    println!("ledger: {figures} commit={commit}");
    ledger.add(&date, &commit, command, figures).map_err(|why| format!("ledger: {why}"))?;
    if is_kept { ledger.save(root) } else { Ok(()) }
}

pub(crate) fn findings(root: &Path) -> Result<usize, Stop> {
    Ok(Ledger::load(root)?.findings.len())
}

/// Returns the first seed that was not tried yet.
pub(crate) fn next_seed(root: &Path) -> Result<u64, Stop> {
    Ok(Ledger::load(root)?.sums().next_seed.unwrap_or(0))
}

/// Checks the text of the file: it is what this module writes, and each finding is counted.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let ledger: Ledger = toml::from_str(text).map_err(|why| why.to_string())?;
    if files::with_tables(text, &ledger)? != text {
        return Err("differs from what `cargo xtask` writes: do not edit it by hand".to_owned());
    }
    let (counted, listed) = (ledger.sums().findings(), ledger.findings.len() as u64);
    if counted == listed { Ok(()) } else { Err(format!("lists {listed} findings and counts {counted}")) }
}

/// Parses `A..B`, the seeds from A up to and without B, or returns the mistake in the text.
pub(crate) fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("write the seeds as A..B; B is not included")?;
    let number = |text: &str| text.parse::<u64>().map_err(|why| format!("`{text}`: {why}"));
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err("the range is empty".to_owned()) } else { Ok(range) }
}

fn today() -> Result<String, Stop> {
    Ok(CommandLine::new("date", &["-u", "+%Y-%m-%d"]).output()?.trim().to_owned())
}

/// Returns the commit, with a mark if files differ from it. Changes of the ledger are ignored, because the previous
/// task may have written it.
fn commit(root: &Path) -> Result<String, Stop> {
    let commit = CommandLine::new("git", &["describe", "--always"]).in_folder(root).output()?;
    let exclude = format!(":(top,exclude){PATH}");
    let status = ["status", "--porcelain", "--untracked-files=no", "--", ":(top)", &exclude];
    let changed = CommandLine::new("git", &status).in_folder(root).output()?;
    let mark = if changed.is_empty() { "" } else { "-dirty" };
    Ok(format!("{}{mark}", commit.trim()))
}

impl Ledger {
    fn load(root: &Path) -> Result<Self, Stop> {
        files::parsed(&root.join(PATH))
    }

    fn save(&self, root: &Path) -> Result<(), Stop> {
        files::write_tables(&root.join(PATH), self)
    }

    /// Adds the figures of one run to the last night, or to a new one for another commit.
    fn add(&mut self, date: &str, commit: &str, command: &str, figures: &str) -> Result<(), String> {
        let [date, commit, command] = [date, commit, command].map(str::to_owned);
        let run = Night { date: date.clone(), commit: commit.clone(), ..Night::of_run(figures)? };
        if run.findings() > 0 {
            let what: Vec<_> =
                figures.split_whitespace().filter(|part| !part.starts_with("findings=")).collect();
            let what = if what.is_empty() { "failed".to_owned() } else { what.join(" ") };
            self.findings.push(Finding { date, commit, command, what });
        }
        match self.nights.last_mut().filter(|night| night.commit == run.commit) {
            Some(night) => night.add(&run),
            None => self.nights.push(run),
        }
        Ok(())
    }

    /// Returns all nights as one, with the date and the commit of the last.
    fn sums(&self) -> Night {
        let Some(Night { date, commit, .. }) = self.nights.last().cloned() else { return Night::default() };
        let mut sums = Night { date, commit, ..Night::default() };
        self.nights.iter().for_each(|night| sums.add(night));
        sums
    }
}

impl Night {
    /// Parses the figures of a task, a text of `key=value`.
    fn of_run(figures: &str) -> Result<Self, String> {
        let mut run = Self::default();
        for figure in figures.split_whitespace() {
            let (key, value) = figure.split_once('=').ok_or_else(|| format!("`{figure}` has no value"))?;
            match key {
                "planted" => run.planted = Some(value.to_owned()),
                "mutants" => run.mutants = Some(value.to_owned()),
                "seeds" => {
                    let seeds = parse_seeds(value)?;
                    run.next_seed = Some(seeds.end);
                    run.sums.insert(Sum::Seeds, seeds.end - seeds.start);
                }
                key if OMITTED.contains(&key) || key.ends_with("_faults") => {}
                key => {
                    let name = Sum::deserialize(key.into_deserializer());
                    let name = name.map_err(|why: value::Error| why.to_string())?;
                    // Hours have a fraction. Counts are far below 2^53, so that a float holds each of them exactly.
                    let number = value.parse::<f64>().ok().filter(|number| (0.0..1e15).contains(number));
                    let whole = number.and_then(|number| format!("{number:.0}").parse().ok());
                    run.sums.insert(name, whole.ok_or_else(|| format!("{key}: `{value}` is not a number"))?);
                }
            }
        }
        run.least = run.sums.get(&Sum::Inputs).copied();
        Ok(run)
    }

    fn findings(&self) -> u64 {
        self.sums.get(&Sum::Findings).copied().unwrap_or(0)
    }

    /// Adds the figures of a later night or run. Its shares replace earlier ones.
    fn add(&mut self, other: &Self) {
        for (name, figure) in &other.sums {
            *self.sums.entry(*name).or_default() += figure;
        }
        self.next_seed = self.next_seed.max(other.next_seed);
        self.least = self.least.into_iter().chain(other.least).min();
        self.planted = other.planted.clone().or(self.planted.take());
        self.mutants = other.mutants.clone().or(self.mutants.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nights_add_up_and_findings_are_kept() {
        let mut ledger = Ledger::default();
        let simulated = "hours=221.97 packets=3000 faults=40 handshakes=17 hostile=9 audited=250 lost_faults=4 findings=0";
        for (commit, figures) in [
            ("abc", format!("seeds=7000..9000 {simulated}")),
            ("abc", format!("seeds=0..50 {simulated}")),
            ("abc", "target=F1 inputs=5000 coverage=12 corpus=3 findings=0".to_owned()),
            ("abc", "target=F2 inputs=70 coverage=12 corpus=3 findings=0".to_owned()),
            ("abc", "planted=24/24 findings=0".to_owned()),
            ("def", "seeds=17..18 findings=1".to_owned()),
            ("def", "findings=1".to_owned()),
        ] {
            ledger.add("2026-01-02", commit, "xtask it", &figures).unwrap();
        }
        let [night, other] = &ledger.nights[..] else { panic!("{ledger:?}") };
        assert_eq!(
            (night.next_seed, night.least, night.planted.as_deref()),
            (Some(9_000), Some(70), Some("24/24"))
        );
        assert_eq!(
            (night.sums[&Sum::Seeds], night.sums[&Sum::Hours], night.sums[&Sum::Inputs]),
            (2_050, 444, 5_070)
        );
        assert_eq!((other.sums[&Sum::Seeds], other.sums[&Sum::Findings]), (1, 2));
        let sums = ledger.sums();
        assert_eq!((sums.sums[&Sum::Seeds], sums.next_seed, sums.least), (2_051, Some(9_000), Some(70)));
        let what: Vec<&str> = ledger.findings.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(what, ["seeds=17..18", "failed"]);
        assert_eq!(check(&toml::to_string(&ledger).unwrap()), Ok(()));
        ledger.findings.pop();
        assert!(check(&toml::to_string(&ledger).unwrap()).is_err(), "a finding is lost");
    }

    #[test]
    fn unknown_figures_are_refused() {
        for bad in ["seeds=9..7", "packets=many", "packets=-1", "hours=NaN", "luck=3", "packets"] {
            assert!(Ledger::default().add("", "", "", bad).is_err(), "{bad}");
        }
        let night = "[[night]]\ndate = ''\ncommit = ''\n";
        assert!(toml::from_str::<Ledger>(night).is_ok());
        for bad in ["luck = 3", "packets = -1", "packets = 'many'"] {
            assert!(toml::from_str::<Ledger>(&format!("{night}{bad}\n")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_range_of_seeds_has_two_ends_and_at_least_one_seed() {
        assert_eq!((parse_seeds("0..1000"), parse_seeds("17..18")), (Ok(0..1_000), Ok(17..18)));
        for bad in ["", "7", "7..", "..7", "7..7", "8..7", "a..b", "0..=7", "-1..2"] {
            assert!(parse_seeds(bad).is_err(), "{bad}");
        }
    }
}
