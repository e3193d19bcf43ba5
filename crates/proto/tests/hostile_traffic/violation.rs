//! A violated invariant: its seed, its packet, and how to reproduce it.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use drumfire_puppet::DrawnFrame;

use crate::coverage::Coverage;

/// Frames of a packet that are printed.
const SHOWN_FRAMES: usize = 12;

/// A violated invariant.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) test: &'static str,
    pub(crate) seed: u64,
    /// The packets or Hellos before it.
    pub(crate) packet: u64,
    pub(crate) what: String,
    /// The frames of the packet.
    pub(crate) frames: Vec<DrawnFrame>,
    /// The choices of the seed.
    pub(crate) plan: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, seed, packet, what, frames, plan } = self;
        writeln!(f, "seed {seed}, packet {packet}: {what}")?;
        for frame in frames.iter().take(SHOWN_FRAMES) {
            writeln!(f, "    {frame:?}")?;
        }
        if frames.len() > SHOWN_FRAMES {
            writeln!(f, "    and {} more frames", frames.len() - SHOWN_FRAMES)?;
        }
        writeln!(f, "  {plan}")?;
        let next = seed + 1;
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        write!(
            f,
            "replay it with: HOSTILE_SEEDS={seed}..{next} cargo test{release} -p drumfire-proto --test hostile_traffic \
             -- {test} --nocapture"
        )
    }
}

/// Runs a seed, and turns a panic into a violation.
pub(crate) fn caught(run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("it panicked".to_owned()))
}

/// Runs all seeds, prints every violation and the coverage, and returns the coverage.
///
/// # Panics
///
/// If a seed failed.
pub(crate) fn run_all(
    seeds: Range<u64>,
    run_seed: impl Fn(u64, &mut Coverage) -> Result<(), Violation>,
) -> Coverage {
    let (mut coverage, mut violations, count) = (Coverage::default(), Vec::new(), seeds.end - seeds.start);
    for seed in seeds {
        if let Err(violation) = run_seed(seed, &mut coverage) {
            println!("{violation}\n");
            violations.push(violation.seed);
        }
    }
    println!("{coverage}");
    assert!(violations.is_empty(), "{} of {count} seeds failed: {violations:?}", violations.len());
    coverage
}
