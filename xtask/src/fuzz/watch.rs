//! libFuzzer while it runs: its counts, and its last lines when it found something.
//!
//! It decides nothing: the program's exit code says whether something was found.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::run::{CommandLine, Stop, end};

/// Lines that are shown of a run that found something.
const LAST_LINES: usize = 60;

/// The counts of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    inputs: u64,
    /// Places in the program that were reached.
    coverage: u64,
    /// Inputs that the corpus came to.
    corpus: u64,
}

impl fmt::Display for Run {
    /// As in a ledger.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inputs={} coverage={} corpus={}", self.inputs, self.coverage, self.corpus)
    }
}

impl Run {
    /// Takes in a line that libFuzzer said.
    fn hear(&mut self, line: &str) {
        let number_after = |label: &str| {
            let rest = line.split_once(label)?.1.trim_start();
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        if let Some(inputs) = number_after("stat::number_of_executed_units:") {
            self.inputs = inputs;
        }
        if line.starts_with('#') {
            self.coverage = number_after(" cov: ").unwrap_or(self.coverage);
            self.corpus = number_after(" corp: ").unwrap_or(self.corpus);
        }
    }
}

/// Runs one target's search to its end.
///
/// # Errors
/// [`Stop::Failed`] with the last lines and how to repeat it, when something was found or it could not be started.
pub(super) fn run(root: &Path, search: &CommandLine, target: &str) -> Result<Run, Stop> {
    println!("{search}");
    let mut command = search.command();
    command.current_dir(root).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|why| Stop::failed(format!("{search}: {why}")))?;
    let (mut run, mut last) = (Run::default(), VecDeque::new());
    for line in child.stderr.take().into_iter().flat_map(|said| BufReader::new(said).lines()) {
        let Ok(line) = line else { break };
        run.hear(&line);
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    let status = child.wait().map_err(|why| {
        end(&mut child);
        Stop::failed(format!("{search}: {why}"))
    })?;
    if !status.success() {
        let lines = Vec::from(last).join("\n");
        return Err(Stop::failed(format!(
            "{lines}\n{target}: {status}; replay it with the file named above in place of the folders:\n{search}"
        )));
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_fuzzer_says_becomes_a_line_of_a_ledger() {
        let mut run = Run::default();
        for line in [
            "INFO: Seed: 1",
            "#2\tINITED cov: 13 ft: 14 corp: 1/1b exec/s: 0 rss: 41Mb",
            "#4096\tpulse  cov: 112 ft: 205 corp: 17/340b lim: 43 exec/s: 2048 rss: 50Mb",
            "#9000\tDONE   cov: 113 ft: 209 corp: 18/341b lim: 43 exec/s: 900 rss: 50Mb",
            "stat::number_of_executed_units: 9000",
        ] {
            run.hear(line);
        }
        assert_eq!(run.to_string(), "inputs=9000 coverage=113 corpus=18");
    }

    #[test]
    fn a_run_that_found_something_ends_with_its_last_words() {
        let say = CommandLine::new("sh", &["-c", "echo '#1 cov: 5 corp: 1/1b' >&2; exit 77"]);
        let found = run(Path::new("."), &say, "F1");
        assert!(matches!(found, Err(Stop::Failed(said)) if said.contains("cov: 5") && said.contains("F1")));
    }
}
