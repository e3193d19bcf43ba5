//! `cargo xtask loom`: the models of state that crosses threads, in every interleaving by `loom`, or in many random ones by `shuttle`.
//!
//! The crate `drumfire` contains the models. They are built in target directories of their own, because a compiler flag selects the
//! tool and reaches every crate.

use std::time::Duration;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

const MODELS: &str = "interleavings_";
/// The variable with the number of schedules that `shuttle` tries for each model.
const SCHEDULES: &str = "DRUMFIRE_SCHEDULES";
const SEED: &str = "SHUTTLE_RANDOM_SEED";
/// The time for all models in all interleavings, without the build.
const DEADLINE: Duration = Duration::from_secs(300);
/// The time for a thousand schedules of each model at most, on one core.
const THOUSAND_SCHEDULES: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LoomArgs {
    /// Try N random schedules of each model instead of every interleaving.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000_000))]
    shuttle: Option<u32>,
    /// The seed of the random schedules.
    #[arg(long, value_name = "N", requires = "shuttle")]
    seed: Option<u64>,
}

pub(crate) fn run(workspace: &Workspace, args: &LoomArgs) -> Result<(), Stop> {
    let tool = args.tool();
    let test = args.test().env("CARGO_TARGET_DIR", workspace.target.join(tool));
    let list = test.clone().args(&["--", "--list"]);
    println!("{list}");
    let models = list.output()?.lines().filter(|line| line.ends_with(": test")).count();
    if models == 0 {
        return Err(Stop::failed(format!("there is no model: no test is called {MODELS}...")));
    }
    let schedules = args.shuttle.unwrap_or(0).div_ceil(1_000);
    let deadline = DEADLINE.max(THOUSAND_SCHEDULES * schedules);
    test.args(&["--", "--show-output"]).done_within(deadline)?;
    println!("{tool}: {models} models hold");
    Ok(())
}

impl LoomArgs {
    fn tool(&self) -> &'static str {
        if self.shuttle.is_some() { "shuttle" } else { "loom" }
    }

    fn test(&self) -> CommandLine {
        let args = "test --release --quiet -p drumfire --lib --no-default-features --features tokio";
        let test = CommandLine::cargo(args).arg(MODELS).env("RUSTFLAGS", format!("--cfg {}", self.tool()));
        let schedules = self.shuttle.map(|schedules| (SCHEDULES, schedules.to_string()));
        let seed = self.seed.map(|seed| (SEED, seed.to_string()));
        schedules.into_iter().chain(seed).fold(test, |test, (name, value)| test.env(name, value))
    }
}
