//! Draws for scenarios, on top of the generator of the simulated links.

use std::time::Duration;

use drumfire::conditioner::Random;

/// A number from `least` to `most`, both included.
pub(crate) fn between(random: &mut Random, least: u64, most: u64) -> u64 {
    least + random.below(most - least + 1)
}

/// A fraction up to `most`, and none at all every third time, so that each fault is also seen alone.
pub(crate) fn fraction(random: &mut Random, most: f64) -> f64 {
    if random.below(3) == 0 { 0.0 } else { random.fraction() * most }
}

/// A time up to so many milliseconds.
pub(crate) fn millis(random: &mut Random, most: u64) -> Duration {
    Duration::from_millis(random.below(most + 1))
}
