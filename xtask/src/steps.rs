//! Steps of a task that runs many commands: each by its name, with a deadline, timed, and judged by how it ended.
//!
//! Which steps there are, and what a failure means for those behind it, is the business of the task.

use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use crate::run::{CommandLine, EXIT_NEEDS, Stop, Stopwatch, is_installed};

/// Instruction sets of x86 that a step may need, as `/proc/cpuinfo` calls them.
const INSTRUCTION_SETS: [&str; 2] = ["sse2", "avx2"];

/// One step: a name, a command, and how long it may take.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) command: CommandLine,
    pub(crate) deadline: Option<Duration>,
    /// Whether the command may end with the code that says that the machine cannot run it.
    pub(crate) can_be_skipped: bool,
    /// A program or an instruction set without which the step is skipped.
    pub(crate) needs: Option<&'static str>,
}

/// A step that runs cargo with these arguments, separated by spaces.
pub(crate) fn step(name: &str, cargo_args: &str) -> Step {
    let args: Vec<&str> = cargo_args.split(' ').collect();
    let command = CommandLine::new("cargo", &args);
    Step { name: name.to_owned(), command, deadline: None, can_be_skipped: false, needs: None }
}

impl Step {
    pub(crate) fn within(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    pub(crate) fn skippable(self) -> Self {
        Self { can_be_skipped: true, ..self }
    }

    /// Returns the word for the summary of a step that ended with this status, or its failure.
    fn judge(&self, status: ExitStatus) -> Result<&'static str, Stop> {
        if status.success() {
            Ok("ok")
        } else if self.can_be_skipped && status.code() == Some(i32::from(EXIT_NEEDS)) {
            Ok("skipped")
        } else {
            Err(Stop::failed(status.to_string()))
        }
    }
}

/// Returns whether the machine has what a step needs.
fn has(need: &str) -> bool {
    if INSTRUCTION_SETS.contains(&need) {
        supports(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default(), need)
    } else {
        is_installed(need)
    }
}

/// Returns whether a processor with this `/proc/cpuinfo` has an instruction set.
fn supports(processor: &str, instruction_set: &str) -> bool {
    let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == instruction_set)
}

/// Steps that ran so far.
pub(crate) struct Steps<'a> {
    root: &'a Path,
    whole: Stopwatch,
    /// How many there will be.
    count: usize,
    times: Vec<String>,
    missed: Vec<String>,
    skipped: Vec<String>,
}

impl<'a> Steps<'a> {
    /// Prepares `count` steps, which run in the folder `root`.
    pub(crate) fn new(root: &'a Path, count: usize) -> Self {
        Self {
            root,
            whole: Stopwatch::start(),
            count,
            times: Vec::new(),
            missed: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// The folder in which they run.
    pub(crate) fn root(&self) -> &'a Path {
        self.root
    }

    /// Time since the first began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.whole.elapsed()
    }

    /// Runs the next one.
    ///
    /// # Errors
    /// [`Stop::Failed`] with what failed and the command to repeat it.
    pub(crate) fn run(&mut self, step: &Step) -> Result<(), Stop> {
        let place = format!("[{}/{}] {}", self.times.len() + 1, self.count, step.name);
        println!("\n{place}: {}", step.command);
        let stopwatch = Stopwatch::start();
        let outcome = match step.needs.filter(|need| !has(need)) {
            Some(need) => {
                println!("skipped: needs {need}");
                Ok("skipped")
            }
            None => step.command.run(self.root, step.deadline).and_then(|status| step.judge(status)),
        };
        let seconds = stopwatch.elapsed().as_secs_f64();
        let (word, end) = match outcome {
            Ok(word) => {
                println!("{place}: {word} in {seconds:.1} s");
                if word == "skipped" {
                    let need = step.needs.map_or(String::new(), |need| format!(" (needs {need})"));
                    self.skipped.push(format!("{}{need}", step.name));
                }
                (word, Ok(()))
            }
            Err(Stop::Failed(why)) => {
                self.missed.push(step.name.clone());
                let repeat = format!("repeat it with: {}", step.command);
                let failed = format!("\nFAILED: {} after {seconds:.1} s: {why}\n{repeat}", step.name);
                ("FAILED", Err(Stop::Failed(failed)))
            }
            Err(other) => return Err(other),
        };
        self.times.push(format!("{seconds:8.1} s  {word:<7}  {}", step.name));
        end
    }

    /// Prints how long each step took, and in the last line which were skipped.
    ///
    /// # Errors
    /// [`Stop::Failed`] with the names of those that failed, where the task went on behind them.
    pub(crate) fn finish(self) -> Result<(), Stop> {
        println!("\n{}\n{:8.1} s  in all", self.times.join("\n"), self.whole.elapsed().as_secs_f64());
        if !self.skipped.is_empty() {
            println!("skipped: {}", self.skipped.join(", "));
        }
        if self.missed.is_empty() {
            Ok(())
        } else {
            Err(Stop::failed(format!("missed: {}", self.missed.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Step {
        Step { command: CommandLine::new("sh", &["-c", script]), ..step(name, "") }
    }

    #[test]
    fn a_failure_is_told_with_its_command_and_again_at_the_end() {
        let mut steps = Steps::new(Path::new("."), 3);
        assert!(steps.run(&shell("one", "exit 0")).is_ok());
        let failed = steps.run(&shell("two", "exit 4"));
        let says = |why: &str| why.contains("FAILED: two") && why.ends_with("repeat it with: sh -c 'exit 4'");
        assert!(matches!(failed, Err(Stop::Failed(why)) if says(&why)));
        assert!(steps.run(&shell("three", "exit 0")).is_ok());
        assert!(matches!(steps.finish(), Err(Stop::Failed(why)) if why == "missed: two"));
    }

    #[test]
    fn only_a_step_that_may_be_skipped_is() {
        let mut steps = Steps::new(Path::new("."), 2);
        assert!(steps.run(&shell("may", "exit 3").skippable()).is_ok());
        assert!(steps.run(&shell("may not", "exit 3")).is_err());
        assert!(steps.times[0].contains("skipped") && steps.times[1].contains("FAILED"));
        let lacks = Step { needs: Some("drumfire-is-no-program"), ..shell("lacks", "exit 1") };
        assert!(steps.run(&lacks).is_ok());
        assert_eq!(steps.skipped, ["may", "lacks (needs drumfire-is-no-program)"]);
        assert!(steps.run(&Step { needs: Some("sh"), ..shell("has", "exit 1") }).is_err());
    }

    #[test]
    fn a_processor_supports_the_instruction_sets_that_it_names() {
        let able = |processor: &str| INSTRUCTION_SETS.map(|need| supports(processor, need));
        assert_eq!(able("model name : x\nflags\t\t: fpu sse2 avx avx2\n"), [true, true]);
        assert_eq!(able("flags\t\t: fpu sse2 avx2_like\n"), [true, false]);
        assert_eq!(able("Features\t: fp asimd aes\n"), [false, false]);
    }
}
