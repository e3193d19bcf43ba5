//! `cargo xtask hostile`: hostile traffic drawn at random against a real endpoint, in release, and what its packets cost under
//! valgrind.
//!
//! The tests decide what a seed does and what must hold.

use std::ops::Range;
use std::time::Duration;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// The seeds, for the tests themselves.
const SEEDS: &str = "HOSTILE_SEEDS";
const COUNTED_SEEDS: &str = "HOSTILE_COUNTED_SEEDS";
/// The test program.
const TEST: &str = "hostile_traffic";
/// The time for the builds.
const DEADLINE: Duration = Duration::from_secs(300);
/// The time for a seed at most, without valgrind and with it.
const DEADLINE_PER_SEED: Duration = Duration::from_millis(500);
const DEADLINE_PER_COUNTED_SEED: Duration = Duration::from_secs(20);

/// Tries the seeds, and counts instructions for the first of them.
///
/// # Errors
/// [`Stop::Failed`] when an invariant does not hold, which the test names with the command to replay it, and
/// [`Stop::Needs`] without valgrind.
pub(crate) fn run(seeds: &Range<u64>, counted: u32) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    CommandLine::new("valgrind", &["--version"])
        .needed(&workspace.root, "valgrind (on Debian: apt-get install valgrind)")?;
    let test =
        CommandLine::new("cargo", &["test", "--release", "--quiet", "-p", "drumfire-proto", "--test", TEST]);
    test.clone().arg("--no-run").done(&workspace.root)?;
    let count = u32::try_from(seeds.end.saturating_sub(seeds.start)).unwrap_or(u32::MAX);
    let counted_end = seeds.start + u64::from(counted);
    let test = test
        .arg("--")
        .arg("--nocapture")
        .env(SEEDS, &format!("{}..{}", seeds.start, seeds.end))
        .env(COUNTED_SEEDS, &format!("{}..{counted_end}", seeds.start));
    let deadline = DEADLINE + DEADLINE_PER_SEED * count + DEADLINE_PER_COUNTED_SEED * counted;
    test.done_within(&workspace.root, deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_know_the_seeds_by_these_names() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates/proto");
        let read = |file: &str| std::fs::read_to_string(folder.join(format!("tests/{TEST}/{file}.rs")));
        assert!(read("seeds").unwrap().contains(&format!("\"{SEEDS}\"")));
        assert!(read("cost").unwrap().contains(&format!("\"{COUNTED_SEEDS}\"")));
    }
}
