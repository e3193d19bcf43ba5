//! `cargo xtask ci`, `interop`, `ffi`, `bevy`, `loom`, and `sanitize`: reads the steps of the template
//! `xtask/steps.toml`, runs them, and reports the time and the outcome of each step.
//!
//! `.ci/run` prepares the machine. A check that does not fit the budget of CI belongs to the nightly task.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::{Deserialize, Serialize};

use crate::example;
use crate::report::fill;
use crate::run::{CommandLine, EXIT_NEEDS, Stop, fail_for, is_installed, now};
use crate::workspace::Workspace;

/// The time of all steps of CI on two idle cores, and the deadline of a step that has none of its own.
const BUDGET_MINUTES: u64 = 15;
/// The name of the README's test command.
const TESTS: &str = "tests";
/// The exit code of a chaos run that reached all marks that its size judges, and missed others.
const EXIT_PARTLY: u8 = 4;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct CiArgs {
    /// Print the steps and their commands without running them.
    #[arg(long)]
    list: bool,
    /// Skip `cargo test --workspace`, because it has just run.
    #[arg(long)]
    skip_tests: bool,
}

#[derive(Clone, Copy, Debug, clap::Args, Serialize)]
pub(crate) struct LoomArgs {
    /// Try N random schedules of each model instead of every interleaving.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000_000))]
    shuttle: Option<u32>,
    /// The seed of the random schedules.
    #[arg(long = "seed", value_name = "N", requires = "shuttle")]
    schedule_seed: Option<u64>,
}

/// A command with a name. The table describes its fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) run: String,
    pub(crate) minutes: Option<u64>,
    pub(crate) turn: Option<u64>,
    needs: Option<String>,
    otherwise: Option<String>,
    server: Option<String>,
    /// A command that runs in place of `run`, which users repeat.
    #[serde(skip)]
    command: Option<CommandLine>,
}

/// Runs the steps of CI up to the first one that fails, or prints them.
pub(crate) fn ci(workspace: &Workspace, args: CiArgs) -> Result<(), Stop> {
    let mut steps = read(workspace, "ci", context! {})?;
    steps.retain(|step| !(args.skip_tests && step.name == TESTS));
    if args.list {
        steps.iter().for_each(|step| println!("{}: {}", step.name, step.command()));
        return Ok(());
    }
    let elapsed = run(workspace, &steps)?;
    if elapsed > Duration::from_secs(60 * BUDGET_MINUTES) {
        // A busy machine is slower than the two cores of the budget, so that this is no failure.
        println!("warning: the steps took more than {BUDGET_MINUTES} minutes: move one to the nightly task");
    }
    Ok(())
}

/// Runs the steps of a task, up to the first one that fails.
pub(crate) fn task(workspace: &Workspace, name: &str, values: Value) -> Result<(), Stop> {
    run(workspace, &read(workspace, name, values)?).map(drop)
}

fn run(workspace: &Workspace, steps: &[Step]) -> Result<Duration, Stop> {
    let mut done = Steps::new(workspace, steps.len());
    steps.iter().try_for_each(|step| done.run(step))?;
    let elapsed = done.elapsed();
    done.finish().map(|_| elapsed)
}

/// Returns the steps of a task, for which the table needs some values.
pub(crate) fn read(workspace: &Workspace, task: &str, values: Value) -> Result<Vec<Step>, Stop> {
    let package = workspace.package_in("examples");
    let examples: Vec<&str> = package.into_iter().flat_map(|package| package.targets_of("example")).collect();
    let pairs = examples.iter().filter(|name| example::has_commands(workspace, name));
    let target = workspace.target.display().to_string();
    let target = shlex::try_quote(&target).map_err(|why| why.to_string())?;
    let published = workspace.packages.iter().filter(|package| package.is_published());
    let published: Vec<_> = published
        .map(|package| context! { name => package.name.clone(), features => package.features.clone() })
        .collect();
    let values = context! {
        pairs => Serde(pairs.collect::<Vec<_>>()), examples => Serde(&examples), published, target,
        host => workspace.host()?, ..values
    };
    let text = fill("steps.toml", include_str!("../steps.toml"), values)?;
    let tables: Result<BTreeMap<String, Vec<Step>>, _> = toml::from_str(&text);
    let steps = tables.map_err(|why| format!("xtask/steps.toml: {why}"))?.remove(task);
    Ok(steps.ok_or_else(|| format!("xtask/steps.toml: there is no {task}"))?)
}

impl Step {
    pub(crate) fn new(name: &str, run: &str, minutes: u64) -> Self {
        let (turn, needs, otherwise, server, command) = Default::default();
        let (name, run, minutes) = (name.to_owned(), run.to_owned(), Some(minutes));
        Self { name, run, minutes, turn, needs, otherwise, server, command }
    }

    pub(crate) fn with(self, command: CommandLine) -> Self {
        Self { command: Some(command), ..self }
    }

    pub(crate) fn command(&self) -> CommandLine {
        self.command.clone().unwrap_or_else(|| CommandLine::parse(&self.run))
    }

    /// Returns the outcome as a word for the summary, or the failure.
    fn outcome(&self, status: ExitStatus) -> Result<&'static str, Stop> {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        match (code, self.run.split(' ').nth(1)) {
            (Some(0), _) => Ok("ok"),
            (Some(EXIT_NEEDS), Some("xtask")) => Ok("skipped"),
            (Some(EXIT_PARTLY), Some("xtask")) => Ok("in part"),
            // With this exit code, cargo-mutants reports that a mutant made a test run forever, so the test has caught
            // the mutant.
            (Some(EXIT_NEEDS), Some("mutants")) => Ok("ok"),
            _ => Err(Stop::failed(status.to_string())),
        }
    }
}

/// Returns whether the machine has a program, or whether Linux lists a feature of its processor.
fn has(need: &str) -> bool {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    is_installed(need) || processor.split_whitespace().any(|word| word == need)
}

pub(crate) struct Steps<'a> {
    workspace: &'a Workspace,
    start: Instant,
    count: usize,
    summary: Vec<String>,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(workspace: &'a Workspace, count: usize) -> Self {
        let (summary, failed, skipped) = Default::default();
        Self { workspace, start: now(), count, summary, failed, skipped }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn run(&mut self, step: &Step) -> Result<(), Stop> {
        let (name, command) = (&step.name, step.command());
        let place = format!("[{}/{}] {name}", self.summary.len() + 1, self.count);
        println!("\n{place}: {command}");
        let start = now();
        let missing = step.needs.iter().flat_map(|needs| needs.split(' ')).find(|need| !has(need));
        let deadline = Duration::from_secs(60 * step.minutes.unwrap_or(BUDGET_MINUTES));
        let outcome = match (missing, &step.server) {
            (Some(_), _) => Ok("skipped"),
            (None, Some(server)) => {
                example::run_client(self.workspace, server, command.clone(), deadline).map(|()| "ok")
            }
            (None, None) => command.run(deadline).and_then(|status| step.outcome(status)),
        };
        let seconds = start.elapsed().as_secs_f64();
        let need = missing.map_or(String::new(), |need| format!(" (needs {need})"));
        let (word, end) = match outcome {
            Ok(word) => {
                println!("{place}: {word}{need} in {seconds:.1} s");
                self.skipped.extend((word == "skipped").then(|| format!("{name}{need}")));
                (word, Ok(()))
            }
            Err(why) => {
                if let Some(need) = &step.otherwise {
                    return Err(Stop::Needs(format!("{need}: {why}")));
                }
                self.failed.push(name.clone());
                let text =
                    format!("\nFAILED: {name} after {seconds:.1} s: {why}\nrepeat it with: {}", step.run);
                ("FAILED", Err(Stop::Failed(text)))
            }
        };
        self.summary.push(format!("{seconds:8.1} s  {word:<7}  {name}"));
        end
    }

    /// Prints the time of each step, and the skipped steps in the last line. Returns the skipped steps.
    pub(crate) fn finish(self) -> Result<Vec<String>, Stop> {
        println!("\n{}\n{:8.1} s  in total", self.summary.join("\n"), self.elapsed().as_secs_f64());
        if !self.skipped.is_empty() {
            println!("skipped: {}", self.skipped.join(", "));
        }
        fail_for("failed", &self.failed).map(|()| self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::FOREVER;

    #[test]
    fn ci_covers_all_packages_and_examples() {
        let steps = read(&Workspace::load().unwrap(), "ci", context! {}).unwrap();
        let commands: Vec<String> = steps.iter().map(|step| step.command().to_string()).collect();
        for command in ["cargo test --workspace", "cargo run --example echo", "cargo xtask tidy"] {
            assert!(commands.iter().any(|one| one == command), "{command}: {commands:#?}");
        }
        assert!(!commands.iter().any(|command| command.contains("{{")), "{commands:#?}");
        assert!(steps.iter().any(|step| step.name == TESTS));
    }

    #[test]
    fn a_failure_is_named_and_a_missing_program_skips() {
        let workspace = Workspace::load().unwrap();
        let mut steps = Steps::new(&workspace, 5);
        assert!(steps.run(&Step::new("one", "cargo --version", 1)).is_ok());
        let failed = steps.run(&Step::new("two", "cargo no-such-command", 1));
        let is_named =
            |why: &str| why.contains("FAILED: two") && why.ends_with("repeat it with: cargo no-such-command");
        assert!(matches!(failed, Err(Stop::Failed(why)) if is_named(&why)));
        let needs = |need: &str| Some(need.to_owned());
        let lacks =
            Step { needs: needs("no-such-program"), ..Step::new("lacks", "cargo no-such-command", 1) };
        assert!(steps.run(&lacks).is_ok());
        assert!(steps.run(&Step { needs: needs("sh"), name: "has".to_owned(), ..lacks }).is_err());
        let otherwise =
            Step { otherwise: needs("a registry"), ..Step::new("no", "cargo no-such-command", 1) };
        assert!(matches!(steps.run(&otherwise), Err(Stop::Needs(what)) if what.starts_with("a registry: ")));
        assert_eq!(steps.skipped, ["lacks (needs no-such-program)"]);
        assert!(matches!(steps.finish(), Err(Stop::Failed(why)) if why == "failed: two, has"));
    }

    #[test]
    fn the_exit_code_of_a_missing_need_has_a_meaning_in_tasks_only() {
        let exit = |code| CommandLine::new("sh", &["-c", &format!("exit {code}")]);
        let outcome = |code, run| Step::new("", run, 1).outcome(exit(code).run(FOREVER).unwrap()).ok();
        let words = [0, 1, 3, 4].map(|code| outcome(code, "cargo xtask chaos C1"));
        assert_eq!(words, [Some("ok"), None, Some("skipped"), Some("in part")]);
        let others =
            [outcome(3, "cargo mutants --shard 0/8"), outcome(3, "cargo test"), outcome(4, "cargo test")];
        assert_eq!(others, [Some("ok"), None, None]);
    }
}
