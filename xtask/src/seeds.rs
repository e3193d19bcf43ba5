//! `cargo xtask seeds`: the seeded tests of the core, in release and over more seeds than an ordinary run has.
//!
//! What a seed does, and what must hold, is the business of the tests; each begins with the same one each time.

use std::time::Duration;

use crate::ledger::{self, Ended, Run};
use crate::run::{CommandLine, Stop, Stopwatch};
use crate::workspace::Workspace;

/// Seeds of each test, for the tests themselves.
const SEEDS: &str = "DRUMFIRE_SEEDS";
/// Seeds of each strategy of a hostile peer.
const STRATEGY_SEEDS: &str = "STRATEGY_SEEDS";
/// What tests have beside the time of their seeds.
const DEADLINE: Duration = Duration::from_secs(300);
/// What a seed takes in all tests together at most.
const DEADLINE_PER_SEED: Duration = Duration::from_secs(2);

/// Runs them with so many seeds each.
///
/// # Errors
/// [`Stop::Failed`] when one does not hold, which its test names, or when they take too long.
pub(crate) fn run(seeds: u32, strategy_seeds: u32, keeps: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let Some(package) = workspace.package_in("crates/proto") else {
        return Err(Stop::failed("crates/proto: there is no such package"));
    };
    let build = test(&package.name).arg("--no-run");
    build.done(&workspace.root)?;
    let test = asking(test(&package.name), seeds, strategy_seeds);
    println!("{test}");
    let stopwatch = Stopwatch::start();
    let deadline = DEADLINE + DEADLINE_PER_SEED * seeds.max(strategy_seeds);
    let outcome = test.run(&workspace.root, Some(deadline)).and_then(|status| match status {
        status if status.success() => Ok(()),
        status => Err(Stop::failed(format!("seeds: {status}"))),
    });
    let run = Run {
        command: &format!("xtask seeds --seeds {seeds} --strategy-seeds {strategy_seeds}"),
        what: "core",
        counts: &format!("seeds={seeds} strategy_seeds={strategy_seeds}"),
        wall: stopwatch.elapsed(),
        ended: Ended::of(&outcome),
    };
    ledger::note_other(&workspace.root, &run, keeps)?;
    outcome
}

fn test(package: &str) -> CommandLine {
    CommandLine::new("cargo", &["test", "--release", "--quiet", "-p", package, "--test", "core"])
}

fn asking(test: CommandLine, seeds: u32, strategy_seeds: u32) -> CommandLine {
    test.env(SEEDS, &seeds.to_string()).env(STRATEGY_SEEDS, &strategy_seeds.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_are_told_how_many_by_the_names_that_they_read() {
        let line = asking(test("drumfire-proto"), 7, 8).to_string();
        assert!(line.starts_with("DRUMFIRE_SEEDS=7 STRATEGY_SEEDS=8 cargo test --release"), "{line}");
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for (file, name) in [("delivery", SEEDS), ("strategies", STRATEGY_SEEDS)] {
            let path = root.join(format!("crates/proto/tests/core/{file}.rs"));
            assert!(std::fs::read_to_string(path).unwrap().contains(&format!("var(\"{name}\")")), "{file}");
        }
    }
}
