//! `cargo xtask hostile`: random hostile traffic against a real endpoint, in release, and the cost of its packets under valgrind.
//!
//! The tests of `drumfire-proto` decide what a seed does and what must hold.

use std::ops::Range;
use std::time::Duration;

use crate::ledger;
use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// The variables with the seeds of the tests.
const SEEDS: &str = "HOSTILE_SEEDS";
const COUNTED_SEEDS: &str = "HOSTILE_COUNTED_SEEDS";
/// The test program.
const TEST: &str = "hostile_traffic";
/// The time for the builds.
const DEADLINE: Duration = Duration::from_secs(300);
/// The time for a seed at most, without valgrind and with it.
const DEADLINE_PER_SEED: Duration = Duration::from_millis(500);
const DEADLINE_PER_COUNTED_SEED: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
pub(crate) struct HostileArgs {
    /// The seeds, from A up to and without B.
    #[arg(long, value_name = "A..B", value_parser = ledger::parse_seeds, default_value = "0..2000")]
    seeds: Range<u64>,
    /// The number of seeds that also run under valgrind.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    counted: u32,
}

/// Tries the seeds, and counts instructions for the first of them.
///
/// # Errors
/// [`Stop::Failed`] when an invariant does not hold, which the test prints with the command that replays it; [`Stop::Needs`] without
/// valgrind.
pub(crate) fn run(args: &HostileArgs) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let valgrind = CommandLine::new("valgrind", &["--version"]);
    valgrind.needed(&workspace.root, "valgrind (on Debian: apt-get install valgrind)")?;
    let test = CommandLine::cargo(&format!("test --release --quiet -p drumfire-proto --test {TEST}"));
    test.clone().arg("--no-run").done(&workspace.root)?;
    let Range { start, end } = args.seeds;
    let count = u32::try_from(end - start).unwrap_or(u32::MAX);
    let test = test
        .args(&["--", "--nocapture"])
        .env(SEEDS, format!("{start}..{end}"))
        .env(COUNTED_SEEDS, format!("{start}..{}", start + u64::from(args.counted)));
    let deadline = DEADLINE + DEADLINE_PER_SEED * count + DEADLINE_PER_COUNTED_SEED * args.counted;
    test.done_within(&workspace.root, deadline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    #[test]
    fn the_tests_read_these_variables() {
        let folder = files::samples::root().join(format!("crates/proto/tests/{TEST}"));
        for (file, variable) in [("seeds.rs", SEEDS), ("cost.rs", COUNTED_SEEDS)] {
            assert!(files::text(&folder.join(file)).unwrap().contains(&format!("\"{variable}\"")));
        }
    }
}
