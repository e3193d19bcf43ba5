//! Draws for scenarios, on top of the generator of the simulated links.

use std::time::Duration;

use drumfire::conditioner::Random;

/// Draws a number from `least` to `most`, both included.
pub(crate) fn between(random: &mut Random, least: u64, most: u64) -> u64 {
    least + random.below(most - least + 1)
}

/// Draws a fraction up to `most`, and zero every third time, so that each fault also occurs alone.
pub(crate) fn fraction(random: &mut Random, most: f64) -> f64 {
    if random.below(3) == 0 { 0.0 } else { random.fraction() * most }
}

/// Draws a time of at most `most` milliseconds.
pub(crate) fn millis(random: &mut Random, most: u64) -> Duration {
    Duration::from_millis(random.below(most + 1))
}
