//! `cargo xtask chaos`: faults, floods, and restarts over real sockets. Each run has two network namespaces of its own.
//!
//! The program `chaos` contains the runs and their marks. This module builds the program, starts it, and summarizes the
//! results.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use minijinja::context;

use crate::netns::{Pair, Side};
use crate::run::{CommandLine, Stop};
use crate::steps::{self, Step, Steps};
use crate::workspace::Workspace;

/// The runs. `crates/chaos/src/main.rs` describes them.
const RUNS: [&str; 12] = ["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12"];
/// The name of all runs.
const ALL: &str = "all";

#[derive(Debug, clap::Args)]
pub(crate) struct ChaosArgs {
    /// The runs, such as C5, or `all`.
    #[arg(required = true, value_name = "RUN", ignore_case = true, value_parser = PossibleValuesParser::new(RUNS.into_iter().chain([ALL])))]
    runs: Vec<String>,
    /// Shorten each run to some seconds.
    #[arg(long, group = "size")]
    quick: bool,
    /// Run for hours, to measure the figures of a release.
    #[arg(long, group = "size")]
    full: bool,
    /// Run the programs under the address sanitizer, if the compiler supports it.
    #[arg(long)]
    sanitized: bool,
}

impl ChaosArgs {
    /// Returns the name of the size, and the deadline of a run in minutes.
    const fn size(&self) -> (&'static str, u64) {
        match (self.quick, self.full) {
            (true, _) => ("quick", 2),
            (_, true) => ("full", 600),
            _ => ("default", 15),
        }
    }
}

/// Executes the runs in order, also after a run that missed a mark.
pub(crate) fn run(workspace: &Workspace, args: &ChaosArgs) -> Result<(), Stop> {
    // Before the build, so that a machine that cannot make namespaces is skipped without one.
    drop(Pair::new()?);
    let program = build(workspace, args.sanitized)?;
    let (size, minutes) = args.size();
    let is_selected =
        |run: &&str| args.runs.iter().any(|name| [run, ALL].iter().any(|one| one.eq_ignore_ascii_case(name)));
    let runs: Vec<&str> = RUNS.into_iter().filter(is_selected).collect();
    let mut steps = Steps::new(workspace, runs.len());
    let flag = if size == "default" { String::new() } else { format!(" --{size}") };
    for name in runs {
        // Each run has its own pair, so that its settings end with it.
        let pair = Pair::new()?;
        let (other, address) = (pair.process(Side::B).to_string(), Side::B.address().to_string());
        let flags = ["run", name, "--size", size, "--other", &other, "--other-address", &address];
        let command = pair.inside(Side::A, &program.display().to_string(), &flags);
        let step = Step::new(name, &format!("cargo xtask chaos {name}{flag}"), minutes).with(command);
        steps.run(&step).unwrap_or_else(|why| eprintln!("{why}"));
    }
    let skipped = steps.finish()?;
    if skipped.is_empty() {
        return Ok(());
    }
    Err(Stop::Needs(format!("the requirements that {} printed above", skipped.join(", "))))
}

fn build(workspace: &Workspace, is_sanitized: bool) -> Result<PathBuf, Stop> {
    if is_sanitized {
        steps::task(workspace, "chaos_sanitized", context! {})?;
        return Ok(workspace.target.join("sanitize").join(workspace.host()?).join("release/chaos"));
    }
    // Without `-p`, it has the features of the whole workspace, and shares the build of the receiver.
    CommandLine::cargo("build --release --bin chaos").done()?;
    Ok(workspace.target.join("release/chaos"))
}
