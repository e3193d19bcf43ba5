//! Bugs that are planted in the copy one after the other. The simulator must find each within its seeds, or its checks are too
//! weak.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use super::copy::{Copy, Patch};
use super::{Heard, build, listen};
use crate::ledger;
use crate::run::{CommandLine, Stop, Stopwatch};

/// Characters of a finding that the table has room for.
const REASON_CHARS: usize = 100;

/// Returns the number with which the name of a bug's patch begins.
pub(super) fn number(bug: &Patch) -> Option<u32> {
    let (_, name) = bug.path.rsplit_once('/')?;
    name.split_once('-')?.0.parse().ok()
}

/// Returns the bug of a number.
///
/// # Errors
/// [`Stop::Failed`] when there is none.
pub(super) fn of(copy: &Copy, wanted: u32) -> Result<&Patch, Stop> {
    let found = copy.bugs.iter().find(|bug| number(bug) == Some(wanted));
    found.ok_or_else(|| Stop::failed(format!("bug {wanted}: write a number from 1 to {}", copy.bugs.len())))
}

/// Plants every bug in turn, and prints what found it. Before that, the same scenarios must hold without a bug.
///
/// # Errors
/// [`Stop::Failed`] when a bug was not found, or when the copy does not build with it.
pub(super) fn run(root: &Path, copy: &Copy, seeds: Option<&Range<u64>>, keeps: bool) -> Result<(), Stop> {
    copy.check_bugs()?;
    let flags = |bug: &Patch| flags(bug, seeds);
    control(copy, &copy.bugs.iter().map(flags).collect::<Result<_, _>>()?)?;
    let mut missed = Vec::new();
    let whole = Stopwatch::start();
    for bug in &copy.bugs {
        let number = number(bug).unwrap_or(0);
        let heard = plant(copy, bug, &flags(bug)?, false)?;
        let found = if let Some((seed, reason)) = heard.failed.filter(|_| !heard.status.success()) {
            format!("seed {seed}: {}", reason.chars().take(REASON_CHARS).collect::<String>())
        } else {
            missed.push(number.to_string());
            "NOT FOUND".to_owned()
        };
        println!("{number:>2}  {}\n    {found}", bug.header("Bug").unwrap_or("no name"));
    }
    copy.write(None)?;
    let (all, caught) = (copy.bugs.len(), copy.bugs.len().saturating_sub(missed.len()));
    println!("{caught} of {all} planted bugs found, in {:.1} s", whole.elapsed().as_secs_f64());
    println!("replay one with: cargo xtask sim --plant N --seeds SEED..SEED+1");
    ledger::note(root, "xtask sim --plant all", &[format!("planted={caught}/{all} findings=0")], keeps)?;
    if missed.is_empty() {
        Ok(())
    } else {
        Err(Stop::failed(format!("found {caught} of {all}, not {}", missed.join(", "))))
    }
}

/// Builds the copy with a bug and runs the simulator; what it prints is passed on if `is_loud`.
///
/// # Errors
/// [`Stop::Failed`] when the patch does not apply or the copy does not build.
pub(super) fn plant(copy: &Copy, bug: &Patch, flags: &[String], is_loud: bool) -> Result<Heard, Stop> {
    copy.write(Some(bug))?;
    build(copy)?;
    listen(&copy.tree(), &flags.iter().fold(copy.program(), CommandLine::arg), is_loud)
}

/// Returns the simulator's flags from the patch's `Run` line, with other seeds where some were named.
///
/// # Errors
/// [`Stop::Failed`] when the line is not of the form `sim [--worker] --seeds A..B`.
pub(super) fn flags(bug: &Patch, seeds: Option<&Range<u64>>) -> Result<Vec<String>, Stop> {
    let line = bug.header("Run").unwrap_or("");
    let flags: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    match &flags[..] {
        [sim, kind @ .., flag, range] if sim == "sim" && flag == "--seeds" => {
            let range =
                seeds.map_or_else(|| range.clone(), |seeds| format!("{}..{}", seeds.start, seeds.end));
            Ok(kind.iter().cloned().chain([flag.clone(), range]).collect())
        }
        _ => Err(Stop::failed(format!("{}: `Run: {line}`: write sim [--worker] --seeds A..B", bug.path))),
    }
}

/// Runs the scenarios of all bugs without any bug: they must hold.
fn control(copy: &Copy, runs: &BTreeSet<Vec<String>>) -> Result<(), Stop> {
    copy.write(None)?;
    build(copy)?;
    runs.iter().try_for_each(|flags| {
        let heard = listen(&copy.tree(), &flags.iter().fold(copy.program(), CommandLine::arg), false)?;
        let why =
            || Stop::failed(format!("without a bug, sim {} fails: {:?}", flags.join(" "), heard.failed));
        if heard.status.success() { Ok(()) } else { Err(why()) }
    })
}

#[cfg(test)]
mod tests {
    use super::super::copy::tests::project;
    use super::*;

    #[test]
    fn a_bug_names_its_scenarios() {
        let copy = project("scenarios");
        let flags = |number, seeds| flags(of(&copy, number).unwrap(), seeds).unwrap().join(" ");
        assert_eq!(flags(1, None), "--seeds 0..2000");
        assert_eq!(flags(24, Some(&(3..4))), "--worker --seeds 3..4");
        assert!(matches!(of(&copy, 25), Err(Stop::Failed(why)) if why.contains("from 1 to 24")));
    }
}
