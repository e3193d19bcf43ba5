//! The seeds to try, and the invariants to check.

use drumfire_tries::tries;
use std::ops::Range;

/// The full number of seeds.
const SEEDS: u32 = 2_000;

/// An invariant that can be checked alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invariant {
    /// The memory of connections and of the server, by its own charges and by the allocator.
    Memory,
    /// The honest client loses nothing, is not delayed, and stays connected.
    Peer,
    /// Key agreements and questions to the application stay within the allowance of a source.
    Handshakes,
}

/// Returns the seeds to try: those of the environment, or the first ones.
pub(crate) fn seeds(full: u32) -> Range<u64> {
    question_count("HOSTILE_SEEDS").unwrap_or_else(|| 0..tries(full).into())
}

/// Returns the seeds of the tests in every run.
pub(crate) fn usual_seeds() -> Range<u64> {
    seeds(SEEDS)
}

/// Returns the seeds of this environment variable, as `N` or `A..B`.
pub(crate) fn question_count(variable: &str) -> Option<Range<u64>> {
    let question_count = std::env::var(variable).ok()?;
    let parse = |number: &str| -> u64 {
        number.parse().unwrap_or_else(|_| panic!("{variable}={question_count}: N or A..B is expected"))
    };
    Some(match question_count.split_once("..") {
        Some((from, to)) => parse(from)..parse(to),
        None => 0..parse(&question_count),
    })
}

/// Returns whether this invariant is checked.
pub(crate) fn is_checked(invariant: Invariant) -> bool {
    let Ok(only) = std::env::var("HOSTILE_ONLY") else { return true };
    match only.as_str() {
        "memory" => invariant == Invariant::Memory,
        "peer" => invariant == Invariant::Peer,
        "handshakes" => invariant == Invariant::Handshakes,
        other => panic!("HOSTILE_ONLY={other}: memory, peer, or handshakes is expected"),
    }
}
