//! `cargo xtask fuzz`: builds libFuzzer in front of the fuzz targets and lets it look for a while, one target on each core after
//! the other, from the committed corpus on.
//!
//! `crates/fuzz` decides what a target does and what must hold, and its tests replay earlier findings. Not every compiler takes the
//! flags for coverage and the address sanitizer. The task is skipped when they are refused.

mod corpus;
mod watch;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::ledger;
use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// The workspace of the fuzzer, below the root.
const FUZZER: &str = "crates/fuzz/libfuzzer";
/// The name of its one program.
const PROGRAM: &str = "drumfire-libfuzzer";
/// The variable that tells the program its target.
const VARIABLE: &str = "DRUMFIRE_FUZZ_TARGET";
/// The committed corpora, below the root: a folder for each target.
const CORPORA: &str = "crates/fuzz/corpus";

/// Coverage by counters in line and by the operands of comparisons, as libFuzzer wants it, and the address sanitizer.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Zsanitizer=address",
];
/// Lets the compiler that is there take them.
const UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");
/// The packages whose code is watched: with key agreement watched too, handshakes would take nearly all of the time.
const WATCHED: [&str; 7] = [
    "drumfire",
    "drumfire-crypto",
    "drumfire-fuzz",
    "drumfire-libfuzzer",
    "drumfire-proto",
    "drumfire-socket",
    "drumfire-wire",
];

/// The longest input that is tried; most finds are far shorter.
const INPUT_MAX_BYTES: u32 = 4_096;
/// An input that takes longer is a finding.
const INPUT_MAX_SECONDS: u32 = 20;
/// A target that takes more memory, with the sanitizer's, is a finding.
const MEMORY_MAX_MIB: u32 = 2_048;

/// The flags of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArgs {
    /// F1, F2 and so on, or `all`.
    targets: Vec<String>,
    /// How long to look, in seconds for each target.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seconds: u32,
    /// Add the inputs that were found to the committed corpora, minimized.
    #[arg(long)]
    keep: bool,
    /// Add the figures of each target to the ledger.
    #[arg(long)]
    ledger: bool,
}

/// Where one target's files are.
#[derive(Debug)]
struct Target {
    /// `F1`.
    name: String,
    /// The committed inputs.
    corpus: PathBuf,
    /// The inputs that this machine found.
    found: PathBuf,
    /// The prefix of the paths of its findings.
    findings: PathBuf,
}

/// Builds, and runs the targets that were asked for.
///
/// # Errors
/// [`Stop::Needs`] where the compiler refuses the flags or there is no C++ compiler; [`Stop::Failed`] when a target that
/// was asked for does not exist, or does not hold for some input.
pub(crate) fn run(args: &FuzzArgs) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let folder = workspace.target.join("fuzz");
    let all = all(&workspace.root, &folder)?;
    let targets = wanted(&all, &args.targets)?;
    let program = build(&workspace, &folder)?;
    let search = Search {
        root: &workspace.root,
        program: &program,
        targets: &targets,
        args,
        next: AtomicUsize::new(0),
        broken: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once()).map(|_| scope.spawn(|| search.run())).collect();
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Stop::failed("fuzz: a thread fell"))));
        ends.collect::<Vec<_>>().into_iter().collect::<Result<(), Stop>>()
    })?;
    let broken = search.broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    for target in targets.iter().filter(|target| args.keep && !broken.contains(&target.name)) {
        let merge = |into: &Path| merge(&program, target, into);
        corpus::renew(&workspace.root, &target.corpus, &folder.join("kept"), merge)?;
    }
    if broken.is_empty() {
        Ok(())
    } else {
        Err(Stop::failed(format!("found something: {}", broken.join(", "))))
    }
}

/// How many targets are looked at side by side.
pub(crate) fn at_once() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// A search of several targets, which threads share.
struct Search<'a> {
    root: &'a Path,
    program: &'a Path,
    targets: &'a [&'a Target],
    args: &'a FuzzArgs,
    next: AtomicUsize,
    /// Names of targets that did not hold. It is locked too while a row is written.
    broken: Mutex<Vec<String>>,
}

impl Search<'_> {
    /// Looks at one target after the other, as long as there is one that no other thread has.
    fn run(&self) -> Result<(), Stop> {
        while let Some(target) = self.targets.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let found =
                watch::run(self.root, &search(self.program, target, self.args.seconds)?, &target.name);
            let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
            let figures = match found {
                Ok(run) => format!("target={} {run} findings=0", target.name),
                // The other targets have their turn all the same.
                Err(Stop::Failed(why)) => {
                    eprintln!("{why}");
                    broken.push(target.name.clone());
                    format!("target={} findings=1", target.name)
                }
                Err(other) => return Err(other),
            };
            let command = format!("xtask fuzz --seconds {}", self.args.seconds);
            ledger::note(self.root, &command, &[figures], self.args.ledger)?;
        }
        Ok(())
    }
}

/// The targets that have a corpus, in their order.
fn all(root: &Path, folder: &Path) -> Result<Vec<Target>, Stop> {
    let corpora = root.join(CORPORA);
    let mut names = corpus::names_in(&corpora)?;
    names.sort();
    let targets = names.into_iter().map(|name| Target {
        name: name.replace("f0", "F").replace('f', "F"),
        corpus: corpora.join(&name),
        found: folder.join("found").join(&name),
        findings: folder.join(format!("{name}-")),
    });
    Ok(targets.collect())
}

fn wanted<'a>(all: &'a [Target], names: &[String]) -> Result<Vec<&'a Target>, Stop> {
    if names.is_empty() || names.iter().any(|name| name == "all") {
        return Ok(all.iter().collect());
    }
    let find = |name: &String| {
        let found = all.iter().find(|target| target.name.eq_ignore_ascii_case(name));
        let known = || all.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| Stop::failed(format!("`{name}` is no target; there are: {}", known())))
    };
    names.iter().map(find).collect()
}

/// Builds the program and returns its path.
fn build(workspace: &Workspace, folder: &Path) -> Result<PathBuf, Stop> {
    let host = workspace.host()?;
    let probe = [&FLAGS[..], &["--target", &host, "--print", "cfg"]].concat();
    let probe = CommandLine::new("rustc", &probe).env(UNSTABLE.0, UNSTABLE.1);
    probe.needed(&workspace.root, "a compiler that takes the flags of a fuzzer")?;
    CommandLine::new("c++", &["--version"]).needed(&workspace.root, "a C++ compiler")?;
    let build = ["build", "--release", "--target", &host, "-Zprofile-rustflags"];
    let build = CommandLine::new("cargo", &build)
        .env(UNSTABLE.0, UNSTABLE.1)
        .env("CARGO_TARGET_DIR", &folder.to_string_lossy());
    let watched = |build: CommandLine, name: &&str| {
        build.arg("--config").arg(format!("profile.release.package.{name}.rustflags={FLAGS:?}"))
    };
    let build = WATCHED.iter().fold(build, watched);
    println!("{build}");
    let status = build.run(&workspace.root.join(FUZZER), None)?;
    if !status.success() {
        return Err(Stop::failed(format!("{FUZZER}: {status}")));
    }
    Ok(folder.join(host).join("release").join(PROGRAM))
}

/// Searches for some seconds, and adds the inputs that reach new code to those that this machine found.
fn search(program: &Path, target: &Target, seconds: u32) -> Result<CommandLine, Stop> {
    corpus::make(&target.found)?;
    let flags = [
        format!("-max_total_time={seconds}"),
        format!("-max_len={INPUT_MAX_BYTES}"),
        format!("-timeout={INPUT_MAX_SECONDS}"),
        format!("-rss_limit_mb={MEMORY_MAX_MIB}"),
        format!("-artifact_prefix={}", target.findings.display()),
        "-print_final_stats=1".to_owned(),
        target.found.display().to_string(),
        target.corpus.display().to_string(),
    ];
    Ok(command(program, target, &flags))
}

/// Puts into a folder the least files that reach what the committed ones and those found on this machine reach.
fn merge(program: &Path, target: &Target, into: &Path) -> CommandLine {
    let folders = [into, &target.corpus, &target.found].map(|folder| folder.display().to_string());
    let flags = ["-set_cover_merge=1".to_owned(), format!("-max_len={INPUT_MAX_BYTES}")];
    command(program, target, &[&flags[..], &folders].concat())
}

fn command(program: &Path, target: &Target, flags: &[String]) -> CommandLine {
    CommandLine::new(&program.to_string_lossy(), flags).env(VARIABLE, &target.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Vec<Target> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        all(root, Path::new("target")).unwrap()
    }

    #[test]
    fn every_folder_of_a_corpus_is_a_target() {
        let targets = targets();
        assert_eq!(targets[0].name, "F1");
        assert!(targets.iter().any(|target| target.name == "F10" && target.corpus.ends_with("f10")));
    }

    #[test]
    fn targets_are_asked_for_by_name_or_all_at_once() {
        let targets = targets();
        let names = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            let found = wanted(&targets, &asked).map_err(|_| ())?;
            Ok::<_, ()>(found.iter().map(|target| target.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(names(&["f2", "F1"]).unwrap(), ["F2", "F1"]);
        assert_eq!(names(&[]).unwrap().len(), targets.len());
        assert_eq!(names(&["all"]), names(&[]));
        assert!(names(&["F999"]).is_err());
    }

    #[test]
    fn each_target_is_looked_at_once_whoever_does_it_and_what_breaks_holds_up_no_other() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folder = std::env::temp_dir().join(format!("drumfire-fuzz-{}", std::process::id()));
        let targets = all(root, &folder).unwrap();
        let some: Vec<&Target> = targets.iter().take(5).collect();
        let args = FuzzArgs { targets: Vec::new(), seconds: 1, keep: false, ledger: false };
        let broken = |program: &str| {
            let program = Path::new(program);
            let (next, broken) = (AtomicUsize::new(0), Mutex::default());
            let search = Search { root, program, targets: &some, args: &args, next, broken };
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| search.run().unwrap());
                }
            });
            let mut broken = search.broken.into_inner().unwrap();
            broken.sort();
            broken
        };
        let ends = (broken("true"), broken("false"));
        std::fs::remove_dir_all(&folder).unwrap();
        let names: Vec<_> = some.iter().map(|target| target.name.clone()).collect();
        assert_eq!(ends, (Vec::new(), names));
    }
}
