//! `cargo xtask loom`: the models of what crosses threads, in every interleaving by `loom`, or in many at random by `shuttle`.
//!
//! What is modelled is the business of the crate; here it is built for one of the two, apart from everything else, because a flag
//! of the compiler reaches every crate.

use std::time::Duration;

use crate::run::{CommandLine, Interrupt, Stop, Stopwatch};
use crate::running::Running;
use crate::workspace::Workspace;

/// What the names of models begin with, wherever they stand.
const MODELS: &str = "interleavings_";
/// What the line of figures begins with of a model of which all was tried that was to be.
const COUNTED: &str = "counted: ";
/// The same of one that has too many interleavings for all.
const COUNTED_IN_PART: &str = "counted in part: ";
/// How many schedules `shuttle` tries of each model, for the models themselves.
const SCHEDULES: &str = "DRUMFIRE_SCHEDULES";
/// All models in all interleavings, built before.
const DEADLINE: Duration = Duration::from_secs(300);
/// A thousand schedules of each model take as long at most, on one core.
const THOUSAND: Duration = Duration::from_secs(3);

/// Builds the models and runs them; `schedules` of each at random where that is asked for.
///
/// # Errors
/// [`Stop::Failed`] when one does not hold, takes too long, or when there is none.
pub(crate) fn run(schedules: Option<u32>) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let Some(package) = workspace.package_in("crates/drumfire") else {
        return Err(Stop::failed("crates/drumfire: there is no such package"));
    };
    let (tool, deadline) = match schedules {
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
    let test =
        schedules.into_iter().fold(test, |test, schedules| test.env(SCHEDULES, &schedules.to_string()));
    let said = said(&test.arg("--").arg("--show-output"), deadline)?;
    println!("{tool}: {models} models hold: {}", figures(&said, schedules.is_some()));
    Ok(())
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

/// What all models counted, in one line.
fn figures(said: &str, by_chance: bool) -> String {
    let of = |label| said.lines().filter_map(move |line: &str| line.strip_prefix(label)?.parse::<u64>().ok());
    let (whole, in_part) = (of(COUNTED), of(COUNTED_IN_PART));
    let (models, sum) = (whole.clone().count(), whole.sum::<u64>());
    if by_chance {
        return format!("{sum} schedules at random of {models}");
    }
    let (more, rest) = (in_part.clone().count(), in_part.sum::<u64>());
    format!("{sum} interleavings, all there are, of {models}, and {rest} with few interruptions of {more}")
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
        assert_eq!(
            figures(said, false),
            "1234 interleavings, all there are, of 2, and 5 with few interruptions of 1"
        );
        assert_eq!(figures("it counted: 7\ncounted: many\ncounted: 8", true), "8 schedules at random of 1");
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
