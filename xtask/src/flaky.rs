//! `cargo xtask flaky`: repeats `cargo test` while other threads keep the processor busy, and lists every test that failed.
//!
//! Several runs are in progress at the same time, because most tests wait. A test that fails now and then fails here before it fails
//! in CI. All tests of a program share its process, as they do in CI.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::files::{failed, make_empty, text, write};
use crate::run::{CommandLine, Stop, Stopwatch, in_parallel};
use crate::workspace::Workspace;

/// A run that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(3_600);
/// The longest message in the summary. The log has all of it.
const MESSAGE_CHARS_MAX: usize = 200;

#[derive(Debug, clap::Args)]
pub(crate) struct FlakyArgs {
    /// The number of runs.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// The number of runs in progress at the same time. Runs of one package are busy and idle together, so they need fewer.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    parallel: u16,
    /// The number of threads that only compute.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(..=1_000))]
    busy_threads: u16,
    /// The only package whose tests run.
    #[arg(long, value_name = "NAME")]
    package: Option<String>,
    /// The targets for `cargo test`, after `--`: `--test it`, for instance.
    #[arg(last = true, default_values = ["--lib", "--bins", "--tests"])]
    args: Vec<String>,
}

/// Failures by program and test, with their messages.
type Failures = BTreeMap<(String, String), Vec<String>>;

/// Builds the tests, repeats them under load, and prints a summary.
pub(crate) fn run(args: &FlakyArgs) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let packages = args.package.as_ref().map_or("--workspace".to_owned(), |name| format!("--package {name}"));
    let test = CommandLine::cargo(&format!("test {packages}")).args(&args.args);
    test.clone().arg("--no-run").done(&workspace.root)?;
    let folder = workspace.target.join("flaky");
    make_empty(&folder)?;
    let stopwatch = Stopwatch::start();
    let test = test.arg("--no-fail-fast");
    println!("{test}");
    let failures = repeat(&workspace.root, &folder, &test, args)?;
    let summary = summary(&failures, args.runs, stopwatch.elapsed());
    print!("{summary}");
    write(&folder.join("summary.txt"), summary)?;
    if failures.is_empty() { Ok(()) } else { Err(Stop::failed(format!("logs: {}", folder.display()))) }
}

/// Repeats a command with busy threads next to it. A log stays in the folder only where something failed.
fn repeat(root: &Path, folder: &Path, test: &CommandLine, args: &FlakyArgs) -> Result<Failures, Stop> {
    let (all, is_over) = (Mutex::new(Failures::new()), AtomicBool::new(false));
    let run = |run: &u32| {
        let path = folder.join(format!("{run}.log"));
        let end = match test.run_logged(root, &path, DEADLINE) {
            Ok(status) if status.success() => {
                return fs::remove_file(&path).map_err(|why| failed(&path, &why));
            }
            Ok(status) => status.to_string(),
            Err(Stop::Failed(why)) => why,
            Err(other) => return Err(other),
        };
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        for (program, name, message) in failures(&text(&path)?, &end) {
            println!("run {run}: {program}: {name}: {message}");
            all.entry((program, name)).or_default().push(message);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..args.busy_threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let outcome = in_parallel(args.parallel.into(), &(1..=args.runs).collect::<Vec<_>>(), run);
        is_over.store(true, Ordering::Relaxed);
        outcome
    })?;
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the program, the test, and the message of each failure in the log of `cargo test`. A log without a failed test has crashed
/// or was killed, and gives one failure with its `end`.
fn failures(log: &str, end: &str) -> Vec<(String, String, String)> {
    let mut failures = Vec::new();
    // Cargo prints "     Running tests/it.rs (target/..)" before the output of each program.
    for part in log.split("     Running ") {
        let program = part.split(" (").next().unwrap_or_default().trim();
        let names = part.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        for name in names.map(|name| name.trim_end_matches(" - should panic")) {
            failures.push((program.to_owned(), name.to_owned(), panic_of(section_of(part, name))));
        }
    }
    if failures.is_empty() {
        let program = log.rsplit("     Running ").next().unwrap_or_default().split(" (").next();
        let program = program.unwrap_or_default().trim().to_owned();
        failures.push((program, "the program".to_owned(), format!("{end}; {}", panic_of(log))));
    }
    failures
}

/// Returns the output of a failed test, which the harness repeats at the end.
fn section_of<'a>(log: &'a str, test: &str) -> &'a str {
    let section = log.split_once(&format!("---- {test} stdout ----")).map_or("", |(_, rest)| rest);
    section.split_once("\n---- ").map_or(section, |(section, _)| section)
}

/// Returns the message and the place of the first panic.
fn panic_of(text: &str) -> String {
    let mut lines = text.lines();
    let place = lines.find_map(|line| line.split_once(" panicked at "));
    let message = lines.next().unwrap_or_default().chars().take(MESSAGE_CHARS_MAX).collect::<String>();
    place.map_or("no panic".to_owned(), |(_, place)| format!("{message} ({})", place.trim_end_matches(':')))
}

/// Returns a line for each test that failed, with the number of failures and the first message, and the totals.
fn summary(failures: &Failures, runs: u32, elapsed: Duration) -> String {
    let mut summary = String::new();
    for ((program, test), messages) in failures {
        // Writing to a String cannot fail.
        let _ = writeln!(summary, "{:4} x {program}: {test}: {}", messages.len(), messages[0]);
    }
    let count: usize = failures.values().map(Vec::len).sum();
    let _ = writeln!(summary, "{runs} runs in {} s, {count} failures", elapsed.as_secs());
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{names, samples::TestFolder};

    const LOG: &str = "     Running tests/it/main.rs (target/debug/deps/it-1)
running 3 tests
test good ... ok
test a::bad ... FAILED
test b::worse - should panic ... FAILED

failures:

---- a::bad stdout ----

thread 'a::bad' (123) panicked at tests/a.rs:7:9:
assertion failed: left == right
stack backtrace:

---- b::worse stdout ----
thread 'a helper' (9) panicked at src/lib.rs:1:1:
on another thread

test result: FAILED. 1 passed; 2 failed
";

    fn lines(log: &str, end: &str) -> Vec<String> {
        failures(log, end)
            .into_iter()
            .map(|(program, test, why)| format!("{program}: {test}: {why}"))
            .collect()
    }

    #[test]
    fn failures_have_their_program_test_and_panic() {
        let expected = [
            "tests/it/main.rs: a::bad: assertion failed: left == right (tests/a.rs:7:9)",
            "tests/it/main.rs: b::worse: on another thread (src/lib.rs:1:1)",
        ];
        assert_eq!(lines(LOG, "killed"), expected);
    }

    #[test]
    fn a_crash_is_a_failure_of_its_program() {
        let log = "     Running tests/a.rs (t)\ntest one ... ok\n     Running tests/main.rs (t)\n\
                   thread 'main' (1) panicked at tests/main.rs:3:5:\nnot in time\n";
        let crash = "tests/main.rs: the program: exit status: 101; not in time (tests/main.rs:3:5)";
        assert_eq!(lines(log, "exit status: 101"), [crash]);
        assert_eq!(lines("", "signal: 11"), [": the program: signal: 11; no panic"]);
    }

    #[test]
    fn only_runs_that_fail_leave_a_log() {
        let folder = TestFolder::new("flaky");
        write(&folder.join("log"), LOG).unwrap();
        let script = "mkdir once 2>/dev/null && exit 0; cat log; exit 101";
        let logs = folder.join("logs");
        make_empty(&logs).unwrap();
        let args = FlakyArgs { runs: 3, parallel: 12, busy_threads: 4, package: None, args: Vec::new() };
        let failures = repeat(&folder, &logs, &CommandLine::new("sh", &["-c", script]), &args).unwrap();
        assert_eq!((names(&logs).unwrap().len(), failures.len()), (2, 2));
        let summary = summary(&failures, 3, Duration::from_secs(90));
        assert!(summary.starts_with("   2 x tests/it/main.rs: a::bad: assertion failed"), "{summary}");
        assert!(summary.ends_with("3 runs in 90 s, 4 failures\n"), "{summary}");
    }
}
