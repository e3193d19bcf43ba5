//! `cargo xtask flaky`: repeats `cargo test` while other threads keep the processor busy, and lists every test that failed.
//!
//! Several runs are in progress at the same time, because most tests wait. A test that fails now and then fails here before it fails
//! in CI. All tests of a program share its process, as they do in CI. The log of a run that failed has the messages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::files::{failed, make_empty, regex, text};
use crate::run::{CommandLine, Stop, in_parallel, now};
use crate::workspace::Workspace;

/// A run that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(3_600);

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

/// The number of failures of each test, after its program.
type Failures = BTreeMap<String, u32>;

/// Builds the tests, repeats them under load, and prints each failure and their numbers.
pub(crate) fn run(workspace: &Workspace, args: &FlakyArgs) -> Result<(), Stop> {
    let packages = args.package.as_ref().map_or("--workspace".to_owned(), |name| format!("--package {name}"));
    let test = CommandLine::cargo(&format!("test {packages}")).args(&args.args);
    test.clone().arg("--no-run").done()?;
    let folder = workspace.target.join("flaky");
    make_empty(&folder)?;
    let start = now();
    let test = test.arg("--no-fail-fast");
    println!("{test}");
    let failures = repeat(&folder, &test, args)?;
    failures.iter().for_each(|(test, count)| println!("{count:4} x {test}"));
    println!("{} runs in {} s", args.runs, start.elapsed().as_secs());
    if failures.is_empty() { Ok(()) } else { Err(Stop::failed(format!("logs: {}", folder.display()))) }
}

/// Repeats a command with busy threads next to it. A log stays in the folder only where something failed.
fn repeat(folder: &Path, test: &CommandLine, args: &FlakyArgs) -> Result<Failures, Stop> {
    let (mut all, is_over) = (Failures::new(), AtomicBool::new(false));
    let log = |run: &u32| folder.join(format!("{run}.log"));
    let runs: Vec<u32> = (1..=args.runs).collect();
    std::thread::scope(|scope| {
        for _ in 0..args.busy_threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let work = |run: &u32| test.run_logged(&log(run), DEADLINE);
        let outcome = in_parallel(args.parallel.into(), &runs, work, |run, outcome| {
            let path = log(run);
            let end = match outcome {
                Ok(status) if status.success() => {
                    return fs::remove_file(&path).map_err(|why| failed(&path, &why));
                }
                Ok(status) => status.to_string(),
                Err(Stop::Failed(why)) => why,
                Err(other) => return Err(other),
            };
            for test in failures(&text(&path)?, &end) {
                println!("run {run}: {test}");
                *all.entry(test).or_default() += 1;
            }
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        outcome
    })?;
    Ok(all)
}

/// Returns the program and the name of each failed test in the log of `cargo test`. A log without a failed test has crashed or was
/// killed, and gives its last program and its `end`.
fn failures(log: &str, end: &str) -> Vec<String> {
    // Cargo prints "     Running tests/it.rs (target/..)" before the output of each program.
    let line = regex(r"(?m)^     Running (?<program>.*?) \(|^test (?<failed>.*) \.\.\. FAILED$");
    let (mut failures, mut program) = (Vec::new(), "");
    for found in line.captures_iter(log) {
        program = found.name("program").map_or(program, |program| program.as_str());
        failures.extend(found.name("failed").map(|test| format!("{program}: {}", test.as_str())));
    }
    if failures.is_empty() {
        failures.push(format!("{program}: {end}"));
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{names, write};

    const LOG: &str = "     Running tests/it/main.rs (target/debug/deps/it-1)
test good ... ok
test a::bad ... FAILED
test b::worse - should panic ... FAILED
test result: FAILED. 1 passed; 2 failed
";

    #[test]
    fn failed_tests_and_crashes_have_their_program() {
        let tests = ["tests/it/main.rs: a::bad", "tests/it/main.rs: b::worse - should panic"];
        assert_eq!(failures(LOG, "killed"), tests);
        let crash =
            "     Running tests/a.rs (t)\ntest one ... ok\n     Running tests/b.rs (t)\ntest two ... ";
        assert_eq!(failures(crash, "signal: 11"), ["tests/b.rs: signal: 11"]);
        assert_eq!(failures("", "signal: 11"), [": signal: 11"]);
    }

    #[test]
    fn only_runs_that_fail_leave_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(&folder.join("log"), LOG).unwrap();
        let script = "mkdir once 2>/dev/null && exit 0; cat log; exit 101";
        let logs = folder.join("logs");
        make_empty(&logs).unwrap();
        let args = FlakyArgs { runs: 3, parallel: 12, busy_threads: 4, package: None, args: Vec::new() };
        let failures =
            repeat(&logs, &CommandLine::new("sh", &["-c", script]).in_folder(folder), &args).unwrap();
        assert_eq!((names(&logs).unwrap().len(), failures.into_values().collect()), (2, vec![2, 2]));
    }
}
