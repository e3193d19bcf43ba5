//! `cargo xtask loom`: the models of what crosses threads, in every interleaving by `loom`, or in many at random by `shuttle`.
//!
//! What is modelled is the business of the crate; here it is built for one of the two, apart from everything else, because a flag
//! of the compiler reaches every crate.

use std::time::Duration;

use crate::ledger::{self, Ended, Run};
use crate::run::{CommandLine, Interrupt, Running, Stop, Stopwatch};
use crate::workspace::Workspace;

/// What the names of models begin with, wherever they stand.
const MODELS: &str = "interleavings_";
/// What the line of figures begins with of a model of which all was tried that was to be.
const COUNTED: &str = "counted: ";
/// The same of one that has too many interleavings for all.
const COUNTED_IN_PART: &str = "counted in part: ";
/// How many schedules `shuttle` tries of each model, for the models themselves.
const SCHEDULES: &str = "DRUMFIRE_SCHEDULES";
/// The first of the numbers that chance is made of, for `shuttle` itself.
const SEED: &str = "SHUTTLE_RANDOM_SEED";
/// All models in all interleavings, built before.
const DEADLINE: Duration = Duration::from_secs(300);
/// A thousand schedules of each model take as long at most, on one core.
const THOUSAND: Duration = Duration::from_secs(3);

/// What to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// So many of each model at random, and not all.
    pub(crate) schedules: Option<u32>,
    /// Where chance begins; the models' own number where there is none.
    pub(crate) seed: Option<u64>,
    /// Whether a row is written into the ledger.
    pub(crate) keeps: bool,
}

/// Builds the models and runs them.
///
/// # Errors
/// [`Stop::Failed`] when one does not hold, takes too long, or when there is none.
pub(crate) fn run(ask: &Ask) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let Some(package) = workspace.package_in("crates/drumfire") else {
        return Err(Stop::failed("crates/drumfire: there is no such package"));
    };
    let (tool, deadline) = match ask.schedules {
        None => ("loom", DEADLINE),
        Some(schedules) => ("shuttle", DEADLINE.max(THOUSAND * schedules.div_ceil(1_000))),
    };
    let built = workspace.target.join(tool);
    let test = command(&package.name, tool).env("CARGO_TARGET_DIR", &built.to_string_lossy());
    let list = test.clone().arg("--").arg("--list");
    println!("{list}");
    let models = count(&list.output(&workspace.root)?);
    if models == 0 {
        return Err(Stop::failed(format!("there is no model: no test is called {MODELS}...")));
    }
    let stopwatch = Stopwatch::start();
    let said = said(&ask.chance(test).arg("--").arg("--show-output"), deadline);
    let counts = said.as_ref().map_or_else(|_| String::new(), |said| ask.counts(&figures(said), models));
    let outcome = said.map(|said| {
        println!("{tool}: {models} models hold: {}", figures(&said).line(ask.schedules.is_some()));
    });
    let wall = stopwatch.elapsed();
    let run = Run { command: &ask.command(), what: tool, counts: &counts, wall, ended: Ended::of(&outcome) };
    ledger::note_other(&workspace.root, &run, ask.keeps)?;
    outcome
}

impl Ask {
    /// The same tests with what they are to know of chance.
    fn chance(&self, test: CommandLine) -> CommandLine {
        let schedules = self.schedules.map(|schedules| (SCHEDULES, schedules.to_string()));
        let seed = self.seed.map(|seed| (SEED, seed.to_string()));
        schedules.into_iter().chain(seed).fold(test, |test, (name, value)| test.env(name, &value))
    }

    /// This task, for the ledger.
    fn command(&self) -> String {
        let schedules = self.schedules.map_or(String::new(), |schedules| format!(" --shuttle {schedules}"));
        let seed = self.seed.map_or(String::new(), |seed| format!(" --seed {seed}"));
        format!("xtask loom{schedules}{seed}")
    }

    /// What came of it, for the ledger.
    fn counts(&self, figures: &Figures, models: usize) -> String {
        let tried = figures.whole.1 + figures.in_part.1;
        if self.schedules.is_none() {
            return format!("models={models} interleavings={tried}");
        }
        format!("models={models} schedules={tried} seed={}", self.seed.unwrap_or(0))
    }
}

fn command(package: &str, tool: &str) -> CommandLine {
    let args = ["test", "--release", "--quiet", "-p", package, "--lib", "--no-default-features"];
    let command = CommandLine::new("cargo", &args).env("RUSTFLAGS", &format!("--cfg {tool}"));
    command.arg("--features").arg("tokio").arg(MODELS)
}

/// What the models printed. Where one does not hold that is shown.
fn said(test: &CommandLine, deadline: Duration) -> Result<String, Stop> {
    let (mut running, quiet, stopwatch) =
        (Running::start("models", test)?, Interrupt::never(), Stopwatch::start());
    loop {
        match running.is_done() {
            Ok(true) => return Ok(running.output()),
            Ok(false) if stopwatch.elapsed() < deadline => quiet.pause()?,
            Ok(false) => {
                return Err(Stop::failed(format!("killed: still running after {} s", deadline.as_secs())));
            }
            Err(why) => {
                print!("{}", running.output());
                return Err(why);
            }
        }
    }
}

/// How many tests this list has.
fn count(list: &str) -> usize {
    list.lines().filter(|line| line.ends_with(": test")).count()
}

/// What all models counted: how many models, and how much in all, of those that were tried in whole and of the others.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    whole: (usize, u64),
    in_part: (usize, u64),
}

fn figures(said: &str) -> Figures {
    let of = |label| {
        let each = said.lines().filter_map(move |line: &str| line.strip_prefix(label)?.parse::<u64>().ok());
        (each.clone().count(), each.sum::<u64>())
    };
    Figures { whole: of(COUNTED), in_part: of(COUNTED_IN_PART) }
}

impl Figures {
    fn line(&self, by_chance: bool) -> String {
        let ((models, sum), (more, rest)) = (self.whole, self.in_part);
        if by_chance {
            return format!("{sum} schedules at random of {models}");
        }
        format!(
            "{sum} interleavings, all there are, of {models}, and {rest} with few interruptions of {more}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_counted_and_nothing_else() {
        assert_eq!(
            count(
                "sync::interleavings_of_a: test\nsync::interleavings_of_b: test\n\n2 tests, 0 benchmarks\n"
            ),
            2
        );
        assert_eq!(count("0 tests, 0 benchmarks\n"), 0);
    }

    #[test]
    fn figures_of_all_models_are_added_up() {
        let said = "..\nsuccesses:\n\n---- a stdout ----\ncounted: 1200\n\n---- b ----\ncounted: 34\ncounted in part: 5\n";
        let all = figures(said);
        assert_eq!(
            all.line(false),
            "1234 interleavings, all there are, of 2, and 5 with few interruptions of 1"
        );
        let ask = Ask { schedules: None, seed: None, keeps: false };
        assert_eq!(ask.counts(&all, 3), "models=3 interleavings=1239");
        let some = figures("it counted: 7\ncounted: many\ncounted: 8");
        assert_eq!(some.line(true), "8 schedules at random of 1");
    }

    #[test]
    fn chance_begins_where_it_is_told_and_the_ledger_says_where() {
        let ask = Ask { schedules: Some(9), seed: Some(4_711), keeps: false };
        let line = ask.chance(CommandLine::new("cargo", &["test"])).to_string();
        assert_eq!(line, "DRUMFIRE_SCHEDULES=9 SHUTTLE_RANDOM_SEED=4711 cargo test");
        assert_eq!(ask.command(), "xtask loom --shuttle 9 --seed 4711");
        let all = Figures { whole: (2, 18), in_part: (0, 0) };
        assert_eq!(ask.counts(&all, 2), "models=2 schedules=18 seed=4711");
    }

    #[test]
    fn models_alone_are_run() {
        for tool in ["loom", "shuttle"] {
            let line = command("drumfire", tool).to_string();
            assert!(line.starts_with(&format!("RUSTFLAGS='--cfg {tool}' cargo test")), "{line}");
            assert!(line.ends_with(MODELS), "{line}");
        }
    }
}
