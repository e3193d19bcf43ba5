//! `cargo xtask chaos`: faults, floods, and restarts over real sockets. Each run has two network namespaces of its own.
//!
//! The program `chaos` decides what a run does and which marks it must reach. This module builds it, starts it, and sums up.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use minijinja::context;

use crate::netns::{Pair, Side};
use crate::run::{CommandLine, EXIT_NEEDS, Stop, fail_for, now};
use crate::steps;
use crate::workspace::Workspace;

/// The runs. `crates/chaos/src/main.rs` describes them.
const RUNS: [&str; 12] = ["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12"];
/// The exit code of a run that reached all marks that its size judges, and missed others.
const EXIT_PARTLY: i32 = 4;
/// The outcomes of runs that do not pass.
const MISSED: &str = "missed";
const SKIPPED: &str = "skipped";
/// The name of all runs.
const ALL: &str = "all";

#[derive(Debug, clap::Args)]
pub(crate) struct ChaosArgs {
    /// The runs: C5 and so on, or all.
    #[arg(required = true, value_name = "RUN", ignore_case = true, value_parser = PossibleValuesParser::new(RUNS.into_iter().chain([ALL])))]
    runs: Vec<String>,
    /// Take some seconds for each run.
    #[arg(long, group = "size")]
    quick: bool,
    /// Measure the figures of a release, for hours.
    #[arg(long, group = "size")]
    full: bool,
    /// Run the programs under the address sanitizer, if the compiler supports it.
    #[arg(long)]
    sanitized: bool,
}

impl ChaosArgs {
    /// Returns the name of the size, and the time after which a run hangs.
    const fn size(&self) -> (&'static str, Duration) {
        match (self.quick, self.full) {
            (true, _) => ("quick", Duration::from_secs(120)),
            (_, true) => ("full", Duration::from_secs(36_000)),
            _ => ("default", Duration::from_secs(900)),
        }
    }
}

/// Does the runs in order, also after one that missed a mark.
pub(crate) fn run(workspace: &Workspace, args: &ChaosArgs) -> Result<(), Stop> {
    // Before the build, so that a machine that cannot make namespaces is skipped without one.
    drop(Pair::new()?);
    let program = build(workspace, args.sanitized)?;
    let (size, deadline) = args.size();
    let (mut lines, mut missed, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    let is_selected =
        |run: &str| args.runs.iter().any(|name| [run, ALL].iter().any(|one| one.eq_ignore_ascii_case(name)));
    for name in RUNS.into_iter().filter(|run| is_selected(run)) {
        let start = now();
        // Each run has its own pair, so that its settings end with it.
        let pair = Pair::new()?;
        let (other, address) = (pair.process(Side::B).to_string(), Side::B.address().to_string());
        let flags = ["run", name, "--size", size, "--other", &other, "--other-address", &address];
        let command = pair.inside(Side::A, &program.display().to_string(), &flags);
        println!("\n{command}");
        let outcome = judge(command.run(deadline));
        missed.extend((outcome == MISSED).then_some(name));
        skipped.extend((outcome == SKIPPED).then_some(name));
        lines.push(format!("{name:4} {outcome} in {:.1} s", start.elapsed().as_secs_f64()));
    }
    println!("\n{}", lines.join("\n"));
    fail_for("missed", &missed)?;
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

/// Returns the outcome of a run as a word. A run that does not end has missed its marks.
fn judge(status: Result<ExitStatus, Stop>) -> &'static str {
    match status.inspect_err(|why| eprintln!("{why}")).ok().and_then(|status| status.code()) {
        Some(0) => "passed",
        Some(EXIT_PARTLY) => "passed in part",
        code if code == Some(i32::from(EXIT_NEEDS)) => SKIPPED,
        _ => MISSED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::FOREVER;

    #[test]
    fn the_exit_code_of_a_run_is_its_outcome() {
        let status = |code: u8| CommandLine::new("sh", &["-c", &format!("exit {code}")]).run(FOREVER);
        let outcomes = [0, 4, 1, EXIT_NEEDS].map(|code| judge(status(code)));
        assert_eq!(outcomes, ["passed", "passed in part", MISSED, SKIPPED]);
        assert_eq!(judge(Err(Stop::failed("killed"))), MISSED);
    }
}
