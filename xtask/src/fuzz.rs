//! `cargo xtask fuzz`: builds libFuzzer with the fuzz targets, and runs them from the committed corpora, one target on each core.
//!
//! `crates/fuzz` decides what a target does and what must hold, and its tests replay earlier findings. The task is skipped where the
//! compiler refuses the flags for coverage and the address sanitizer. Inputs that reach new code stay in `target/fuzz/found`; libFuzzer
//! adds the fewest of them to a corpus with `-set_cover_merge=1`.

use std::fs;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use minijinja::context;

use crate::files::{self, failed, regex};
use crate::ledger;
use crate::run::{CommandLine, Stop, fail_for};
use crate::steps;
use crate::workspace::Workspace;

const PROGRAM: &str = "drumfire-libfuzzer";
/// The variable that selects the target of the program.
const VARIABLE: &str = "DRUMFIRE_FUZZ_TARGET";
/// The committed corpora, below the root: a folder for each target.
const CORPORA: &str = "crates/fuzz/corpus";
/// The name of all targets.
const ALL: &str = "all";

/// The longest input. Most findings are far shorter.
const INPUT_MAX_BYTES: u32 = 4_096;
/// An input that takes longer is a finding.
const INPUT_MAX_SECONDS: u32 = 20;
/// A target that takes more memory, including the sanitizer's, is a finding.
const MEMORY_MAX_MIB: u32 = 2_048;
/// A target that still runs this long after its time counts as hung.
const END_DEADLINE: Duration = Duration::from_secs(120);
/// The number of lines that are shown of a run with a finding.
const LAST_LINES: usize = 60;

#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArgs {
    /// The targets, such as F1, or `all`.
    targets: Vec<String>,
    /// The time for each target in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seconds: u32,
    /// Add the figures of each target to the ledger.
    #[arg(long)]
    ledger: bool,
}

/// The program with all targets, and its runs.
struct Fuzzer<'a> {
    root: &'a Path,
    program: PathBuf,
    /// The folder of inputs, findings, and logs.
    folder: PathBuf,
    args: &'a FuzzArgs,
}

pub(crate) fn run(workspace: &Workspace, args: &FuzzArgs) -> Result<(), Stop> {
    let corpora = select(files::names(Path::new(CORPORA))?, &args.targets)?;
    let folder = workspace.target.join("fuzz");
    steps::task(workspace, "fuzz", context! {})?;
    let program = folder.join(workspace.host()?).join("release").join(PROGRAM);
    Fuzzer { root: &workspace.root, program, folder, args }.run(&corpora)
}

/// Returns the number of targets that run in parallel.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

pub(crate) fn target_count(root: &Path) -> Result<u64, Stop> {
    Ok(files::names(&root.join(CORPORA))?.len() as u64)
}

/// Returns the name of the target with this corpus: `F1` for `f01`.
fn name_of(corpus: &str) -> String {
    corpus.replace("f0", "F").replace('f', "F")
}

/// Returns the corpora of the targets with these names, or all.
fn select(corpora: Vec<String>, asked: &[String]) -> Result<Vec<String>, Stop> {
    let is = |corpus: &String, name: &String| name == ALL || name_of(corpus).eq_ignore_ascii_case(name);
    if let Some(name) = asked.iter().find(|name| !corpora.iter().any(|corpus| is(corpus, name))) {
        let names: Vec<String> = corpora.iter().map(|corpus| name_of(corpus)).collect();
        return Err(Stop::failed(format!("there is no target `{name}`, only {}", names.join(", "))));
    }
    let is_asked = |corpus: &String| asked.is_empty() || asked.iter().any(|name| is(corpus, name));
    Ok(corpora.into_iter().filter(is_asked).collect())
}

impl Fuzzer<'_> {
    /// Runs targets in parallel, and fails with the names of those with a finding. A finding does not stop the other targets.
    fn run(&self, corpora: &[String]) -> Result<(), Stop> {
        let command = format!("xtask fuzz --seconds {}", self.args.seconds);
        let mut broken = Vec::new();
        // All targets take the same time.
        for turn in corpora.chunks(threads()) {
            let outcomes: Vec<_> = thread::scope(|scope| {
                let searches: Vec<_> =
                    turn.iter().map(|corpus| scope.spawn(|| self.search(corpus))).collect();
                searches.into_iter().map(thread::ScopedJoinHandle::join).collect()
            });
            for (corpus, outcome) in turn.iter().zip(outcomes) {
                let name = name_of(corpus);
                let figures = match outcome.unwrap_or_else(|panic| resume_unwind(panic)) {
                    Ok(counts) => format!("target={name} {counts} findings=0"),
                    Err(why) => {
                        eprintln!("{why}");
                        broken.push(name.clone());
                        format!("target={name} findings=1")
                    }
                };
                ledger::note(self.root, &command, &figures, self.args.ledger)?;
            }
        }
        fail_for("findings", &broken)
    }

    /// Runs a target, and adds the inputs that reach new code to those that this machine found. Returns the figures for the ledger.
    fn search(&self, corpus: &str) -> Result<String, Stop> {
        let (name, seconds) = (name_of(corpus), self.args.seconds);
        let found = self.folder.join("found").join(corpus);
        fs::create_dir_all(&found).map_err(|why| failed(&found, &why))?;
        let flags = [
            format!("-max_total_time={seconds}"),
            format!("-max_len={INPUT_MAX_BYTES}"),
            format!("-timeout={INPUT_MAX_SECONDS}"),
            format!("-rss_limit_mb={MEMORY_MAX_MIB}"),
            format!("-artifact_prefix={}-", self.folder.join(corpus).display()),
            "-print_final_stats=1".to_owned(),
        ];
        let line = CommandLine::new(&self.program, &flags).env(VARIABLE, &name);
        let line = line.arg(&found).arg(self.root.join(CORPORA).join(corpus));
        println!("{line}");
        let log = self.folder.join(format!("{corpus}-log.txt"));
        let status = line.run_logged(&log, END_DEADLINE + Duration::from_secs(seconds.into()))?;
        let text = String::from_utf8_lossy(&files::read(&log)?).into_owned();
        if status.success() {
            let last = |word| {
                let number = regex(&format!("{word} *([0-9]+)"));
                number.captures_iter(&text).last().map_or("0".to_owned(), |found| found[1].to_owned())
            };
            let [inputs, coverage, corpus] = ["stat::number_of_executed_units:", " cov:", " corp:"].map(last);
            return Ok(format!("inputs={inputs} coverage={coverage} corpus={corpus}"));
        }
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        let replay = "replay it with the file named above instead of the folders";
        Err(Stop::failed(format!("{last}\n{name}: {status}; {replay}:\n{line}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::root;

    fn corpora() -> Vec<String> {
        files::names(&root().join(CORPORA)).unwrap()
    }

    #[test]
    fn targets_are_the_folders_of_corpora_and_selected_by_name() {
        let selected = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            select(corpora(), &asked).map_err(|_| ())
        };
        assert_eq!(selected(&["f2", "F1", "F10"]).unwrap(), ["f01", "f02", "f10"]);
        assert_eq!((selected(&[]), selected(&["all"])), (Ok(corpora()), Ok(corpora())));
        assert!(selected(&["F999"]).is_err());
    }

    #[test]
    fn a_finding_stops_no_other_target_and_output_becomes_figures() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, program) = (folder.path().to_owned(), folder.path().join("program"));
        let args = FuzzArgs { targets: Vec::new(), seconds: 1, ledger: false };
        let fuzzer = Fuzzer { root: root(), program: program.clone(), folder, args: &args };
        let write = |lines: &str, code: u8| {
            files::write(&program, format!("#!/bin/sh\ncat >&2 <<END\n{lines}\nEND\nexit {code}\n")).unwrap();
            CommandLine::new("chmod", &["+x"]).arg(&program).output().unwrap();
        };
        write(
            "INFO: Seed: 1\n#2\tINITED cov: 13 ft: 14 corp: 1/1b exec/s: 0 rss: 41Mb\n\
            #9000\tDONE   cov: 113 ft: 209 corp: 18/341b lim: 43 exec/s: 900 rss: 50Mb\n\
            stat::number_of_executed_units: 9000",
            0,
        );
        assert_eq!(fuzzer.search("f01").unwrap(), "inputs=9000 coverage=113 corpus=18");
        assert!(fuzzer.run(&corpora()[..5]).is_ok());
        write("#1 cov: 5 corp: 1/1b", 77);
        let found = fuzzer.search("f01");
        assert!(matches!(found, Err(Stop::Failed(why)) if why.contains("cov: 5") && why.contains("F1: ")));
        let broken = fuzzer.run(&corpora()[..5]);
        assert!(matches!(broken, Err(Stop::Failed(why)) if why == "findings: F1, F2, F3, F4, F5"));
    }
}
