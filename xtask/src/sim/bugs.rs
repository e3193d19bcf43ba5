//! Bugs that are planted in the copy one after the other. The simulator must find each within its seeds, or its checks are too
//! weak.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use super::tree::{Patch, Tree};
use super::{Heard, build, simulate};
use crate::ledger;
use crate::run::{Stop, Stopwatch};

/// Characters of a finding that the table has room for.
const REASON_CHARS: usize = 100;

/// A bug that can be planted.
#[derive(Clone, Debug)]
pub(crate) struct Bug {
    /// The number with which the name of its patch begins.
    pub(crate) number: u32,
    /// The line `Bug: ..` of its patch.
    title: String,
    /// The flag of the scenarios that show it, if they are not those of no flag, and their seeds: the line `Run: sim ..`.
    kind: Option<String>,
    seeds: String,
    pub(crate) patch: Patch,
}

impl Bug {
    /// Reads a patch.
    ///
    /// # Errors
    /// [`Stop::Failed`] names what the patch lacks.
    pub(crate) fn of(patch: Patch) -> Result<Self, Stop> {
        let lacks = |what: &str| Stop::failed(format!("{}: write {what}", patch.path));
        let line = |name| patch.header().lines().find_map(|line| line.strip_prefix(name));
        let number = patch.name().split_once('-').and_then(|(number, _)| number.parse().ok());
        let number = number.ok_or_else(|| lacks("a number and a hyphen first in the name"))?;
        let title = line("Bug: ").ok_or_else(|| lacks("a line `Bug: ..`"))?.to_owned();
        let words: Vec<_> = line("Run: ").unwrap_or_default().split_whitespace().collect();
        let (kind, seeds) = match words[..] {
            ["sim", "--seeds", seeds] => (None, seeds.to_owned()),
            ["sim", kind, "--seeds", seeds] => (Some(kind.to_owned()), seeds.to_owned()),
            _ => return Err(lacks("a line `Run: sim [--worker] --seeds A..B`")),
        };
        Ok(Self { number, title, kind, seeds, patch })
    }

    /// Returns the simulator's flags, with other seeds if some were named.
    fn flags(&self, seeds: Option<&Range<u64>>) -> Vec<String> {
        let seeds =
            seeds.map_or_else(|| self.seeds.clone(), |seeds| format!("{}..{}", seeds.start, seeds.end));
        self.kind.iter().cloned().chain(["--seeds".to_owned(), seeds]).collect()
    }
}

/// Plants every bug in turn, and prints what found it. Before that, the same scenarios must hold without a bug.
///
/// # Errors
/// [`Stop::Failed`] when a bug was not found, or when the copy does not build with it.
pub(super) fn run(root: &Path, tree: &Tree, seeds: Option<&Range<u64>>, keeps: bool) -> Result<(), Stop> {
    tree.check()?;
    control(tree, &tree.bugs.iter().map(|bug| bug.flags(seeds)).collect())?;
    let mut missed = Vec::new();
    let whole = Stopwatch::start();
    for bug in &tree.bugs {
        let heard = plant(tree, bug, seeds, false)?;
        let found = if let Some((seed, reason)) = heard.failed.filter(|_| !heard.status.success()) {
            format!("seed {seed}: {}", reason.chars().take(REASON_CHARS).collect::<String>())
        } else {
            missed.push(bug.number.to_string());
            "NOT FOUND".to_owned()
        };
        println!("{:>2}  {}\n    {found}", bug.number, bug.title);
    }
    tree.write(None)?;
    let (all, caught) = (tree.bugs.len(), tree.bugs.len().saturating_sub(missed.len()));
    println!("{caught} of {all} planted bugs found, in {:.1} s", whole.elapsed().as_secs_f64());
    println!("replay one with: cargo xtask sim --plant N --seeds SEED..SEED+1");
    ledger::note(root, "xtask sim --plant all", &[format!("planted={caught}/{all} findings=0")], keeps)?;
    if missed.is_empty() {
        Ok(())
    } else {
        Err(Stop::failed(format!("found {caught} of {all}, not {}", missed.join(", "))))
    }
}

/// Plants the bug of a number, and runs the scenarios that show it.
///
/// # Errors
/// [`Stop::Failed`] when there is no such bug, its patch does not apply, or the copy does not build.
pub(super) fn run_one(tree: &Tree, number: u32, seeds: Option<&Range<u64>>) -> Result<Heard, Stop> {
    let bug = tree.bugs.iter().find(|bug| bug.number == number);
    let all = tree.bugs.len();
    let bug = bug.ok_or_else(|| Stop::failed(format!("--plant {number}: write a number from 1 to {all}")))?;
    let heard = plant(tree, bug, seeds, true)?;
    tree.write(None)?;
    Ok(heard)
}

fn plant(tree: &Tree, bug: &Bug, seeds: Option<&Range<u64>>, is_loud: bool) -> Result<Heard, Stop> {
    tree.write(Some(bug))?;
    build(tree)?;
    simulate(tree, &bug.flags(seeds), is_loud)
}

/// Runs the scenarios of all bugs without any bug: they must hold.
fn control(tree: &Tree, runs: &BTreeSet<Vec<String>>) -> Result<(), Stop> {
    tree.write(None)?;
    build(tree)?;
    runs.iter().try_for_each(|flags| {
        let heard = simulate(tree, flags, false)?;
        let why =
            || Stop::failed(format!("without a bug, sim {} fails: {:?}", flags.join(" "), heard.failed));
        if heard.status.success() { Ok(()) } else { Err(why()) }
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::tree_of_project;
    use super::*;

    #[test]
    fn a_bug_names_its_scenarios() {
        let tree = tree_of_project("scenarios");
        let flags = |number: usize, seeds| tree.bugs[number - 1].flags(seeds).join(" ");
        assert_eq!(flags(1, None), "--seeds 0..2000");
        assert_eq!(flags(24, Some(&(3..4))), "--worker --seeds 3..4");
        assert!(matches!(run_one(&tree, 25, None), Err(Stop::Failed(why)) if why.contains("from 1 to 24")));
    }

    #[test]
    fn a_patch_without_a_number_a_title_or_scenarios_is_refused() {
        let bug = |name: &str, text: &str| {
            Bug::of(Patch { path: format!("bugs/{name}.patch"), text: text.to_owned() })
        };
        assert!(bug("01-a", "Bug: a\nRun: sim --worker --seeds 0..9\n\ndiff --git\n").is_ok());
        for (name, text) in [
            ("a", "Bug: a\nRun: sim --seeds 0..9\n"),
            ("01-a", "Run: sim --seeds 0..9\n"),
            ("01-a", "Bug: a\n"),
            ("01-a", "Bug: a\nRun: sim 0..9\n"),
            ("01-a", "diff --git\nBug: a\nRun: sim --seeds 0..9\n"),
        ] {
            assert!(
                matches!(bug(name, text), Err(Stop::Failed(why)) if why.contains("write")),
                "{name} {text}"
            );
        }
    }
}
