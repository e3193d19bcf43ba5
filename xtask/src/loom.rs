//! `cargo xtask loom`: the models of what crosses threads, in every interleaving by `loom`, or in many random ones by `shuttle`.
//!
//! The crate contains the models, which print what they tried. This module builds them in a target directory of their own, because a
//! compiler flag selects the tool and reaches every crate.

use std::time::Duration;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// The prefix of the names of models.
const MODELS: &str = "interleavings_";
/// The variable for the number of schedules that `shuttle` tries of each model.
const SCHEDULES: &str = "DRUMFIRE_SCHEDULES";
/// The variable for the seed of `shuttle`.
const SEED: &str = "SHUTTLE_RANDOM_SEED";
/// The time for all models in all interleavings. They are built before.
const DEADLINE: Duration = Duration::from_secs(300);
/// The time for a thousand schedules of each model at most, on one core.
const THOUSAND: Duration = Duration::from_secs(3);

/// The flags of the task.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LoomArgs {
    /// Try N random schedules of each model, instead of every interleaving.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000_000))]
    shuttle: Option<u32>,
    /// The seed of the random schedules, instead of the models' own.
    #[arg(long, value_name = "N", requires = "shuttle")]
    seed: Option<u64>,
}

/// Builds the models and runs them.
///
/// # Errors
/// [`Stop::Failed`] when one does not hold, takes too long, or when there is none.
pub(crate) fn run(args: &LoomArgs) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let (tool, deadline) = match args.shuttle {
        None => ("loom", DEADLINE),
        Some(schedules) => ("shuttle", DEADLINE.max(THOUSAND * schedules.div_ceil(1_000))),
    };
    let test = command(tool).env("CARGO_TARGET_DIR", &workspace.target.join(tool).to_string_lossy());
    let list = test.clone().arg("--").arg("--list");
    println!("{list}");
    let models = count(&list.output(&workspace.root)?);
    if models == 0 {
        return Err(Stop::failed(format!("there is no model: no test is called {MODELS}...")));
    }
    let test = args.chance(test).arg("--").arg("--show-output");
    test.done_within(&workspace.root, deadline)?;
    println!("{tool}: {models} models hold");
    Ok(())
}

impl LoomArgs {
    /// Adds the number of schedules and the seed to the environment of the tests.
    fn chance(&self, test: CommandLine) -> CommandLine {
        let schedules = self.shuttle.map(|schedules| (SCHEDULES, schedules.to_string()));
        let seed = self.seed.map(|seed| (SEED, seed.to_string()));
        schedules.into_iter().chain(seed).fold(test, |test, (name, value)| test.env(name, &value))
    }
}

fn command(tool: &str) -> CommandLine {
    let args = ["test", "--release", "--quiet", "-p", "drumfire", "--lib", "--no-default-features"];
    let command = CommandLine::new("cargo", &args).env("RUSTFLAGS", &format!("--cfg {tool}"));
    command.arg("--features").arg("tokio").arg(MODELS)
}

/// Returns the number of tests in a list.
fn count(list: &str) -> usize {
    list.lines().filter(|line| line.ends_with(": test")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_are_counted_and_run() {
        let list =
            "sync::interleavings_of_a: test\nsync::interleavings_of_b: test\n\n2 tests, 0 benchmarks\n";
        assert_eq!((count(list), count("0 tests, 0 benchmarks\n")), (2, 0));
        for tool in ["loom", "shuttle"] {
            let line = command(tool).to_string();
            assert!(line.starts_with(&format!("RUSTFLAGS='--cfg {tool}' cargo test")), "{line}");
            assert!(line.ends_with(MODELS), "{line}");
        }
    }

    #[test]
    fn random_schedules_begin_at_the_given_seed() {
        let args = LoomArgs { shuttle: Some(9), seed: Some(4_711) };
        let line = args.chance(CommandLine::new("cargo", &["test"])).to_string();
        assert_eq!(line, "DRUMFIRE_SCHEDULES=9 SHUTTLE_RANDOM_SEED=4711 cargo test");
    }
}
