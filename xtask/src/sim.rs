//! `cargo xtask sim`: the simulator's scenarios over a range of seeds, in release.
//!
//! It builds and runs the simulator; what holds, what is printed, and how many threads run is the simulator's business.

use std::ops::Range;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// Runs the scenarios of these seeds, of one worker or of several that fail.
///
/// # Errors
/// [`Stop::Failed`] when one did not hold; the simulator has printed which, why, and how to replay it.
pub(crate) fn run(seeds: &Range<u64>, has_swarm: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let Some(package) = workspace.package_in("crates/sim") else {
        return Err(Stop::failed("crates/sim: there is no such package"));
    };
    let package = ["-p", &package.name, "--features", "audit-nonce,hostile", "--bin", &package.name];
    let flags: &[&str] = if has_swarm { &["--", "--worker"] } else { &["--"] };
    let args = [&["run", "--release", "--quiet"], package.as_slice(), flags].concat();
    let command =
        CommandLine::new("cargo", &args).arg("--seeds").arg(format!("{}..{}", seeds.start, seeds.end));
    let status = command.run(&workspace.root, None)?;
    if status.success() { Ok(()) } else { Err(Stop::failed(format!("sim: {status}"))) }
}

/// Reads `A..B`.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("write it as A..B, from A up to, and without, B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|why| format!("`{text}`: {why}"));
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err("there is no seed in it".to_owned()) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_two_ends_and_a_seed_at_least() {
        assert_eq!(seeds("0..1000"), Ok(0..1_000));
        assert_eq!(seeds("17..18"), Ok(17..18));
        for bad in ["", "7", "7..", "..7", "7..7", "8..7", "a..b", "0..=7", "-1..2"] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
    }
}
