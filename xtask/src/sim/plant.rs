//! Every bug that can be planted, planted in turn: each must be found within the seeds, or the simulator's checks are too weak.
//!
//! Each has a process of its own, for one that repeats a nonce spoils the books of all that runs beside it.

use std::ops::Range;
use std::path::Path;

use super::failing;
use crate::ledger;
use crate::run::{CommandLine, Stop, Stopwatch};

/// How many there are.
pub(super) const COUNT: u32 = 24;
/// Characters of what was found that the table has room for.
const REASON_CHARS: usize = 100;

/// A bug, as the simulator names it.
#[derive(Debug, PartialEq, Eq)]
struct Planted {
    number: String,
    name: String,
    what: String,
    file: String,
    /// The flag of the scenarios that show it; none of the short ones.
    kind: Option<String>,
}

/// Plants each and prints what found it.
///
/// # Errors
/// [`Stop::Failed`] when one was not found.
pub(super) fn run(root: &Path, program: &CommandLine, seeds: &Range<u64>, keeps: bool) -> Result<(), Stop> {
    let planted = list(root, program)?;
    let range = format!("{}..{}", seeds.start, seeds.end);
    let mut missed = Vec::new();
    let whole = Stopwatch::start();
    for Planted { number, name, what, file, kind } in &planted {
        let flags = kind.as_deref().into_iter().chain(["--seeds", &range, "--plant", number]);
        let command = flags.fold(program.clone(), CommandLine::arg);
        // What a panic says on the way to being found is of no interest here.
        let output = command.command().current_dir(root).output();
        let output = output.map_err(|why| Stop::failed(format!("{command}: {why}")))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let found = said.lines().find_map(failing).filter(|_| !output.status.success());
        let found = if let Some((seed, reason)) = found {
            format!("seed {seed}: {}", reason.chars().take(REASON_CHARS).collect::<String>())
        } else {
            missed.push(number.as_str());
            "NOT FOUND".to_owned()
        };
        println!("{number:>2}  {name:<16}  {what} ({file})\n    {found}");
    }
    let caught = planted.len().saturating_sub(missed.len());
    let seconds = whole.elapsed().as_secs_f64();
    println!("{caught} of {COUNT} planted bugs found within seeds {range}, in {seconds:.1} s");
    println!("replay one with: cargo xtask sim --plant N --seeds SEED..SEED+1");
    ledger::note(root, "xtask sim --plant all", &[format!("planted={caught}/{COUNT} findings=0")], keeps)?;
    if caught == usize::try_from(COUNT).unwrap_or(usize::MAX) {
        Ok(())
    } else {
        Err(Stop::failed(format!("found {caught} of {COUNT}, not {}", missed.join(", "))))
    }
}

/// The flag of the scenarios that show the bug of this number; none of the short ones.
///
/// # Errors
/// [`Stop::Failed`] when the simulator does not answer.
pub(super) fn kind_of(root: &Path, program: &CommandLine, number: u32) -> Result<Option<String>, Stop> {
    let number = number.to_string();
    Ok(list(root, program)?
        .into_iter()
        .find(|planted| planted.number == number)
        .and_then(|planted| planted.kind))
}

fn list(root: &Path, program: &CommandLine) -> Result<Vec<Planted>, Stop> {
    let list = program.clone().arg("--list-plants").output(root)?;
    Ok(list.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Planted> {
    let mut fields = line.split('\t').map(str::to_owned);
    let (number, name) = (fields.next()?, fields.next()?);
    let (what, file, kind) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Planted { number, name, what, file, kind: Some(kind).filter(|kind| !kind.is_empty()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulator(script: &str) -> CommandLine {
        CommandLine::new("sh", &["-c", script, "simulator"])
    }

    #[test]
    fn one_that_is_not_found_is_named_and_so_is_a_list_that_is_too_short() {
        let list = "[ $1 = --list-plants ] && { for n in $(seq 24); do printf \"$n\\tA\\tb\\tc\\t\\n\"; done; exit; }";
        let root = Path::new(".");
        let all = simulator(&format!("{list}\necho 'FAILED: seed 3: so'; exit 1"));
        assert!(run(root, &all, &(0..9), false).is_ok());
        let most = simulator(&format!("{list}\n[ $4 = 7 ] && exit; echo 'FAILED: seed 3: so'; exit 1"));
        let missed = run(root, &most, &(0..9), false);
        assert!(matches!(missed, Err(Stop::Failed(why)) if why.starts_with("found 23 of 24, not 7")));
        assert!(run(root, &simulator("exit 0"), &(0..9), false).is_err());
    }

    #[test]
    fn one_of_workers_is_planted_where_there_are_some() {
        let program = simulator("printf '1\\tA\\tb\\tc\\t\\n2\\tB\\tb\\tc\\t--worker\\n'");
        let kind = |number| kind_of(Path::new("."), &program, number).ok().flatten();
        assert_eq!((kind(1), kind(2), kind(3)), (None, Some("--worker".to_owned()), None));
    }
}
