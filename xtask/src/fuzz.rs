//! `cargo xtask fuzz`: builds libFuzzer with the fuzz targets, and runs them from the committed corpora, one target on each core.
//!
//! `crates/fuzz` decides what a target does and what must hold, and its tests replay earlier findings. The task is skipped where the
//! compiler refuses the flags for coverage and the address sanitizer. Inputs that reach new code stay in `target/fuzz/found`; libFuzzer
//! adds the fewest of them to a corpus with `-set_cover_merge=1`.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files::{self, failed, regex};
use crate::ledger;
use crate::run::{CommandLine, Stop, in_parallel, word};
use crate::workspace::Workspace;

const FUZZER: &str = "crates/fuzz/libfuzzer";
const PROGRAM: &str = "drumfire-libfuzzer";
/// The variable that selects the target of the program.
const VARIABLE: &str = "DRUMFIRE_FUZZ_TARGET";
/// The committed corpora, below the root: a folder for each target.
const CORPORA: &str = "crates/fuzz/corpus";

/// Coverage by inline counters and by the operands of comparisons, which libFuzzer reads, and the address sanitizer.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Zsanitizer=address",
];
/// Makes a stable compiler accept the flags.
const UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");
/// The packages with coverage. With coverage in the crates of key agreement, handshakes would take nearly all of the time.
const COVERED: [&str; 7] = [
    "drumfire",
    "drumfire-crypto",
    "drumfire-fuzz",
    "drumfire-libfuzzer",
    "drumfire-proto",
    "drumfire-socket",
    "drumfire-wire",
];

/// The longest input. Most findings are far shorter.
const INPUT_MAX_BYTES: u32 = 4_096;
/// An input that takes longer is a finding.
const INPUT_MAX_SECONDS: u32 = 20;
/// A target that takes more memory, including the sanitizer's, is a finding.
const MEMORY_MAX_MIB: u32 = 2_048;
/// A target that still runs so long after its time hangs.
const END_DEADLINE: Duration = Duration::from_secs(120);
/// Lines that are shown of a run with a finding.
const LAST_LINES: usize = 60;

#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArgs {
    /// F1, F2, and so on, or `all`.
    targets: Vec<String>,
    /// The time for each target in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seconds: u32,
    /// Add the figures of each target to the ledger.
    #[arg(long)]
    ledger: bool,
}

#[derive(Debug)]
struct FuzzTarget {
    /// `F1`.
    name: String,
    /// The folder of the committed inputs.
    corpus: PathBuf,
    /// The folder of the inputs that this machine found.
    found: PathBuf,
    /// The prefix of the paths of findings, and of the path of the output.
    findings: String,
}

pub(crate) fn run(workspace: &Workspace, args: &FuzzArgs) -> Result<(), Stop> {
    let root = &workspace.root;
    let folder = workspace.target.join("fuzz");
    let all = targets(root, &folder)?;
    let selected = select(&all, &args.targets)?;
    let program = build(workspace, &folder)?;
    run_all(root, &program, &selected, args)
}

/// Returns the number of targets that run in parallel.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

pub(crate) fn target_count(root: &Path) -> Result<u64, Stop> {
    Ok(files::names(&root.join(CORPORA))?.len() as u64)
}

/// Runs targets in parallel, and fails with the names of those with a finding. A finding does not stop the other targets.
fn run_all(root: &Path, program: &Path, targets: &[&FuzzTarget], args: &FuzzArgs) -> Result<(), Stop> {
    let mut broken = Vec::new();
    let work = |target: &&FuzzTarget| search(program, target, args.seconds);
    in_parallel(threads(), targets, work, |target, outcome| {
        let name = &target.name;
        let figures = match outcome {
            Ok(counts) => format!("target={name} {counts} findings=0"),
            Err(Stop::Failed(why)) => {
                eprintln!("{why}");
                broken.push(name.as_str());
                format!("target={name} findings=1")
            }
            Err(other) => return Err(other),
        };
        ledger::note(root, &format!("xtask fuzz --seconds {}", args.seconds), &figures, args.ledger)
    })?;
    broken.sort_unstable();
    if broken.is_empty() { Ok(()) } else { Err(Stop::failed(format!("findings: {}", broken.join(", ")))) }
}

/// Returns the targets that have a corpus.
fn targets(root: &Path, folder: &Path) -> Result<Vec<FuzzTarget>, Stop> {
    let names = files::names(&root.join(CORPORA))?.into_iter();
    let targets = names.map(|name| FuzzTarget {
        name: name.replace("f0", "F").replace('f', "F"),
        corpus: root.join(CORPORA).join(&name),
        found: folder.join("found").join(&name),
        findings: word(&folder.join(format!("{name}-"))),
    });
    Ok(targets.collect())
}

fn select<'a>(all: &'a [FuzzTarget], names: &[String]) -> Result<Vec<&'a FuzzTarget>, Stop> {
    if names.is_empty() || names.iter().any(|name| name == "all") {
        return Ok(all.iter().collect());
    }
    let find = |name: &String| {
        let found = all.iter().find(|target| target.name.eq_ignore_ascii_case(name));
        let known = || all.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| Stop::failed(format!("there is no target `{name}`; there are: {}", known())))
    };
    names.iter().map(find).collect()
}

fn build(workspace: &Workspace, folder: &Path) -> Result<PathBuf, Stop> {
    let host = workspace.host()?;
    let probe = CommandLine::new("rustc", &FLAGS).args(&["--target", &host, "--print", "cfg"]);
    let probe = probe.env(UNSTABLE.0, UNSTABLE.1);
    probe.needed("a compiler that accepts the flags of a fuzzer")?;
    CommandLine::new("c++", &["--version"]).needed("a C++ compiler")?;
    let build = CommandLine::cargo("build --release -Zprofile-rustflags").args(&["--target", &host]);
    let build = build.env(UNSTABLE.0, UNSTABLE.1).env("CARGO_TARGET_DIR", folder);
    let covered = |build: CommandLine, name: &&str| {
        build.arg("--config").arg(format!("profile.release.package.{name}.rustflags={FLAGS:?}"))
    };
    COVERED.iter().fold(build, covered).in_folder(Path::new(FUZZER)).done()?;
    Ok(folder.join(host).join("release").join(PROGRAM))
}

/// Runs a target for some seconds, and adds the inputs that reach new code to those that this machine found. Returns the figures for
/// the ledger.
fn search(program: &Path, target: &FuzzTarget, seconds: u32) -> Result<String, Stop> {
    fs::create_dir_all(&target.found).map_err(|why| failed(&target.found, &why))?;
    let flags = [
        format!("-max_total_time={seconds}"),
        format!("-max_len={INPUT_MAX_BYTES}"),
        format!("-timeout={INPUT_MAX_SECONDS}"),
        format!("-rss_limit_mb={MEMORY_MAX_MIB}"),
        format!("-artifact_prefix={}", target.findings),
        "-print_final_stats=1".to_owned(),
    ];
    let line = CommandLine::new(program, &flags).env(VARIABLE, &target.name);
    let line = line.arg(&target.found).arg(&target.corpus);
    println!("{line}");
    let log = PathBuf::from(format!("{}log.txt", target.findings));
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
    Err(Stop::failed(format!("{last}\n{}: {status}; {replay}:\n{line}", target.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::root;

    #[test]
    fn targets_are_the_folders_of_corpora_and_selected_by_name() {
        let targets = targets(root(), Path::new("target")).unwrap();
        assert_eq!(targets[0].name, "F1");
        assert!(targets.iter().any(|target| target.name == "F10" && target.corpus.ends_with("f10")));
        let names = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            let selected = select(&targets, &asked).map_err(|_| ())?;
            Ok::<_, ()>(selected.iter().map(|target| target.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(names(&["f2", "F1"]).unwrap(), ["F2", "F1"]);
        assert_eq!((names(&[]).unwrap().len(), names(&["all"])), (targets.len(), names(&[])));
        assert!(names(&["F999"]).is_err());
    }

    #[test]
    fn a_finding_stops_no_other_target() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let targets = targets(root(), folder).unwrap();
        let some: Vec<&FuzzTarget> = targets.iter().take(5).collect();
        let args = FuzzArgs { targets: Vec::new(), seconds: 1, ledger: false };
        let outcome = |program| run_all(root(), Path::new(program), &some, &args);
        assert!(outcome("true").is_ok());
        let broken = outcome("false");
        assert!(matches!(broken, Err(Stop::Failed(why)) if why == "findings: F1, F2, F3, F4, F5"));
    }

    #[test]
    fn output_of_the_fuzzer_becomes_figures_or_a_finding() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let run = |lines: &str, code: u8| {
            let program = folder.join("program");
            files::write(&program, format!("#!/bin/sh\ncat >&2 <<END\n{lines}\nEND\nexit {code}\n")).unwrap();
            CommandLine::new("chmod", &["+x"]).arg(&program).output().unwrap();
            let targets = targets(root(), folder).unwrap();
            search(&program, &targets[0], 1)
        };
        let lines = "INFO: Seed: 1\n#2\tINITED cov: 13 ft: 14 corp: 1/1b exec/s: 0 rss: 41Mb\n\
            #9000\tDONE   cov: 113 ft: 209 corp: 18/341b lim: 43 exec/s: 900 rss: 50Mb\n\
            stat::number_of_executed_units: 9000";
        assert_eq!(run(lines, 0).unwrap(), "inputs=9000 coverage=113 corpus=18");
        let found = run("#1 cov: 5 corp: 1/1b", 77);
        assert!(matches!(found, Err(Stop::Failed(why)) if why.contains("cov: 5") && why.contains("F1: ")));
    }
}
