//! Steps of a task that runs many commands: each has a name and a deadline, is timed, and is judged by its exit code.

use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use crate::run::{CommandLine, EXIT_NEEDS, Stop, Stopwatch, is_installed};

/// Commands of cargo that are installed separately. A step is skipped where its command is missing.
const TOOLS: [&str; 5] =
    ["cargo-deny", "cargo-llvm-cov", "cargo-minimal-versions", "cargo-mutants", "cargo-semver-checks"];

/// A command with a name.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) command: CommandLine,
    pub(crate) deadline: Duration,
    /// A program, or a feature of the processor, without which the step is skipped.
    pub(crate) needs: Option<&'static str>,
}

impl Step {
    /// A step that runs cargo with arguments that are separated by spaces, after its environment.
    pub(crate) fn cargo(name: &str, args: &str, deadline: Duration) -> Self {
        let first = args.split_whitespace().find(|word| !word.contains('='));
        let needs = TOOLS.into_iter().find(|tool| tool.strip_prefix("cargo-") == first);
        Self { name: name.to_owned(), command: CommandLine::cargo(args), deadline, needs }
    }

    /// Returns the outcome as a word for the summary, or the failure.
    fn judge(&self, status: ExitStatus) -> Result<&'static str, Stop> {
        let command = self.command.to_string();
        let has_needs_code = status.code() == Some(i32::from(EXIT_NEEDS));
        if status.success() {
            Ok("ok")
        } else if has_needs_code && command.contains("cargo xtask ") {
            Ok("skipped")
        } else if has_needs_code && command.contains("cargo mutants ") {
            // In cargo-mutants the same code means that a mutant made a test run forever. That mutant is caught.
            Ok("ok")
        } else {
            Err(Stop::failed(status.to_string()))
        }
    }
}

/// Returns whether the machine has a program, or whether Linux lists a feature of its processor.
fn has(need: &str) -> bool {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    is_installed(need) || processor.split_whitespace().any(|word| word == need)
}

/// The steps of a task and their outcomes so far.
pub(crate) struct Steps<'a> {
    /// The folder in which the steps run.
    pub(crate) root: &'a Path,
    stopwatch: Stopwatch,
    count: usize,
    summary: Vec<String>,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl<'a> Steps<'a> {
    /// Prepares `count` steps.
    pub(crate) fn new(root: &'a Path, count: usize) -> Self {
        let (summary, failed, skipped) = Default::default();
        Self { root, stopwatch: Stopwatch::start(), count, summary, failed, skipped }
    }

    /// Returns the time since the first step began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.stopwatch.elapsed()
    }

    /// Runs the next step.
    pub(crate) fn run(&mut self, step: &Step) -> Result<(), Stop> {
        let Step { name, command, deadline, needs } = step;
        let place = format!("[{}/{}] {name}", self.summary.len() + 1, self.count);
        println!("\n{place}: {command}");
        let stopwatch = Stopwatch::start();
        let missing = needs.filter(|need| !has(need));
        let outcome = match missing {
            Some(_) => Ok("skipped"),
            None => command.run(self.root, *deadline).and_then(|status| step.judge(status)),
        };
        let seconds = stopwatch.elapsed().as_secs_f64();
        let need = missing.map_or(String::new(), |need| format!(" (needs {need})"));
        let (word, end) = match outcome {
            Ok(word) => {
                println!("{place}: {word}{need} in {seconds:.1} s");
                if word == "skipped" {
                    self.skipped.push(format!("{name}{need}"));
                }
                (word, Ok(()))
            }
            Err(Stop::Failed(why)) => {
                self.failed.push(name.clone());
                let text = format!("\nFAILED: {name} after {seconds:.1} s: {why}\nrepeat it with: {command}");
                ("FAILED", Err(Stop::Failed(text)))
            }
            Err(other) => return Err(other),
        };
        self.summary.push(format!("{seconds:8.1} s  {word:<7}  {name}"));
        end
    }

    /// Prints the time of each step, and the skipped steps in the last line.
    pub(crate) fn finish(self) -> Result<(), Stop> {
        println!("\n{}\n{:8.1} s  in all", self.summary.join("\n"), self.elapsed().as_secs_f64());
        if !self.skipped.is_empty() {
            println!("skipped: {}", self.skipped.join(", "));
        }
        if self.failed.is_empty() {
            Ok(())
        } else {
            Err(Stop::failed(format!("failed: {}", self.failed.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Step {
        let command = CommandLine::new("sh", &["-c", script]);
        Step { command, ..Step::cargo(name, "", Duration::from_secs(60)) }
    }

    #[test]
    fn a_failure_names_its_command_and_appears_in_the_summary() {
        let mut steps = Steps::new(Path::new("."), 3);
        assert!(steps.run(&shell("one", "exit 0")).is_ok());
        let failed = steps.run(&shell("two", "exit 4"));
        let is_named =
            |why: &str| why.contains("FAILED: two") && why.ends_with("repeat it with: sh -c 'exit 4'");
        assert!(matches!(failed, Err(Stop::Failed(why)) if is_named(&why)));
        assert!(steps.run(&shell("three", "exit 0")).is_ok());
        assert!(matches!(steps.finish(), Err(Stop::Failed(why)) if why == "failed: two"));
    }

    #[test]
    fn only_a_task_or_a_missing_program_skips_a_step() {
        let mut steps = Steps::new(Path::new("."), 5);
        assert!(steps.run(&shell("task", "exit 3; cargo xtask x")).is_ok());
        assert!(steps.run(&shell("mutants", "exit 3; cargo mutants x")).is_ok());
        assert!(steps.run(&shell("other", "exit 3")).is_err());
        assert!(steps.run(&Step { needs: Some("no-such-program"), ..shell("lacks", "exit 1") }).is_ok());
        assert!(steps.run(&Step { needs: Some("sh"), ..shell("has", "exit 1") }).is_err());
        assert_eq!(steps.skipped, ["task", "lacks (needs no-such-program)"]);
        assert!(steps.summary[0].contains("skipped") && steps.summary[2].contains("FAILED"));
        let needs = |args| Step::cargo("", args, Duration::ZERO).needs;
        assert_eq!((needs("A=1 deny check"), needs("test deny")), (Some("cargo-deny"), None));
    }
}
