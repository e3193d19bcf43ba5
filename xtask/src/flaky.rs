//! `cargo xtask flaky`: repeats the tests while other threads keep the processor busy, and lists every test that failed.
//!
//! It builds once and runs the test programs themselves, twelve at a time, because most of them wait. A test that fails now and
//! then shows up here before it shows up in CI.

mod programs;
mod verdict;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::files::{make_empty, write};
use crate::run::{CommandLine, Stop, Stopwatch, within};
use crate::workspace::Workspace;

use programs::Program;
use verdict::Failure;

/// Threads that do nothing but compute.
const BUSY_THREADS: usize = 4;
/// Test programs that run at the same time.
const AT_ONCE: usize = 12;
/// A test program that is still running after this time hangs.
const DEADLINE: Duration = Duration::from_secs(900);

/// The flags of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct FlakyArgs {
    /// Runs of every test program.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    runs: u32,
    /// The only package whose tests run.
    #[arg(long, value_name = "NAME")]
    package: Option<String>,
    /// Runs of the test programs that open sockets, if there are to be more.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    sockets: u32,
}

/// One run of one program.
#[derive(Clone, Copy)]
struct Job<'a> {
    program: &'a Program,
    run: u32,
}

/// The runs that threads share.
struct Session<'a> {
    folder: &'a Path,
    jobs: &'a [Job<'a>],
    next: AtomicUsize,
    /// Failures by program and test.
    failures: Mutex<BTreeMap<(String, String), Vec<Failure>>>,
    is_over: AtomicBool,
}

/// Builds the test programs and repeats them under load.
///
/// # Errors
/// [`Stop::Failed`] when the build fails, a package does not exist, or a test failed in any run.
pub(crate) fn run(args: &FlakyArgs) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let programs = build(&workspace, args.package.as_deref())?;
    let folder = workspace.target.join("flaky");
    make_empty(&folder)?;
    let jobs = jobs(&programs, args);
    let openers = programs.iter().filter(|program| program.opens_sockets).count();
    println!("{} test programs, {openers} open sockets: {} runs under load", programs.len(), jobs.len());
    let session = Session::new(&folder, &jobs);
    let stopwatch = Stopwatch::start();
    let ended = session.run();
    let failures = session.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    let summary = verdict::summary(&failures, jobs.len(), stopwatch.elapsed());
    print!("{summary}");
    write(&folder.join("summary.txt"), summary.as_bytes())?;
    ended?;
    if failures.is_empty() { Ok(()) } else { Err(Stop::failed(format!("logs: {}", folder.display()))) }
}

/// Builds the tests of a package or of all, and returns their programs.
fn build(workspace: &Workspace, package: Option<&str>) -> Result<Vec<Program>, Stop> {
    let mut command = CommandLine::new("cargo", &["test", "--no-run", "--message-format=json"]);
    command = match package {
        Some(name) if workspace.packages.iter().all(|package| package.name != name) => {
            return Err(Stop::failed(format!("--package {name}: there is no such package")));
        }
        Some(name) => command.arg("--package").arg(name),
        None => command.arg("--workspace"),
    };
    println!("{command}");
    programs::listed(workspace, &command.output(&workspace.root)?)
}

/// All runs, in the order in which they start: the first run of every program, then the second of every program, and so on.
fn jobs<'a>(programs: &'a [Program], args: &FlakyArgs) -> Vec<Job<'a>> {
    let runs_of = |program: &Program| {
        if program.opens_sockets { args.runs.max(args.sockets) } else { args.runs }
    };
    let most = args.runs.max(args.sockets);
    let rounds = (1..=most).flat_map(|run| programs.iter().map(move |program| Job { program, run }));
    rounds.filter(|job| job.run <= runs_of(job.program)).collect()
}

impl<'a> Session<'a> {
    fn new(folder: &'a Path, jobs: &'a [Job<'a>]) -> Self {
        Self {
            folder,
            jobs,
            next: AtomicUsize::new(0),
            failures: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Runs all jobs, with busy threads next to them.
    fn run(&self) -> Result<(), Stop> {
        std::thread::scope(|scope| {
            for _ in 0..BUSY_THREADS {
                scope.spawn(|| {
                    while !self.is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| self.work())).collect();
            let ends = workers.into_iter().map(|worker| {
                worker.join().unwrap_or_else(|_| Err(Stop::failed("flaky: a thread panicked")))
            });
            let ends: Vec<_> = ends.collect();
            self.is_over.store(true, Ordering::Relaxed);
            ends.into_iter().collect()
        })
    }

    /// Runs one job after the other until none is left.
    fn work(&self) -> Result<(), Stop> {
        while let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let failures = job.run(self.folder)?;
            let mut all = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            for failure in failures {
                println!("run {} of {}: {failure}", job.run, job.program.name);
                let test = (job.program.name.clone(), failure.test.clone());
                all.entry(test).or_default().push(failure);
            }
        }
        Ok(())
    }
}

impl Job<'_> {
    /// Runs the program once and returns what failed in it. The log stays only where something did.
    fn run(self, folder: &Path) -> Result<Vec<Failure>, Stop> {
        let Self { program, run } = self;
        let path = folder.join(format!("{}-{run}.log", program.name.replace(['/', ' '], "-")));
        let failed = |why: std::io::Error| Stop::failed(format!("{}: {why}", path.display()));
        let log = File::create(&path).map_err(failed)?;
        let mut command = program.command().command();
        command.current_dir(&program.folder).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(failed)?).stderr(log);
        let mut child = command.spawn().map_err(failed)?;
        let status = within(&mut child, DEADLINE);
        if matches!(&status, Ok(status) if status.success()) {
            fs::remove_file(&path).map_err(failed)?;
            return Ok(Vec::new());
        }
        let end = match status {
            Ok(status) => status.to_string(),
            Err(Stop::Failed(why)) => why,
            Err(other) => return Err(other),
        };
        let said = String::from_utf8_lossy(&fs::read(&path).map_err(failed)?).into_owned();
        Ok(verdict::failures(&said, &end))
    }
}

#[cfg(test)]
mod tests {
    use super::programs::samples::shell;
    use super::*;

    #[test]
    fn programs_with_sockets_run_more_often() {
        let programs =
            [("a", false), ("b", true)].map(|(name, opens_sockets)| shell(name, "", opens_sockets));
        let order = |runs, sockets| {
            let args = FlakyArgs { runs, sockets, package: None };
            let jobs = jobs(&programs, &args);
            jobs.iter().map(|job| format!("{}{}", job.program.name, job.run)).collect::<Vec<_>>()
        };
        assert_eq!(order(2, 0), ["a1", "b1", "a2", "b2"]);
        assert_eq!(order(1, 3), ["a1", "b1", "b2", "b3"]);
        assert_eq!(order(0, 2), ["b1", "b2"]);
    }

    #[test]
    fn a_run_that_fails_leaves_its_log_and_its_message() {
        let folder = std::env::temp_dir().join(format!("drumfire-flaky-{}", std::process::id()));
        make_empty(&folder).unwrap();
        let script = "echo 'test one ... FAILED'; echo '---- one stdout ----'; echo \"thread 'one' (7) panicked at a.rs:1:2:\"; \
                      echo 'too late'; exit 101";
        let programs = [shell("good", "exit 0", false), shell("bad", script, false)];
        let jobs = jobs(&programs, &FlakyArgs { runs: 2, sockets: 0, package: None });
        let session = Session::new(&folder, &jobs);
        session.run().unwrap();
        let failures = session.failures.into_inner().unwrap();
        let [(_, failures)] = &failures.iter().collect::<Vec<_>>()[..] else { panic!("{failures:?}") };
        assert_eq!(failures.len(), 2);
        assert_eq!(failures[0].to_string(), "one: too late (a.rs:1:2)");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "the logs of the runs that failed");
        fs::remove_dir_all(&folder).unwrap();
    }
}
