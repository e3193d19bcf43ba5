//! Draws for scenarios, on top of the generator of the simulated links.

use std::time::Duration;

use drumfire::conditioner::Random;

/// Draws a number from `least` to `most`, both included. The type must have `most`.
pub(crate) fn between<T: TryFrom<u64>>(random: &mut Random, least: u64, most: u64) -> T {
    let number = least + random.below(most - least + 1);
    T::try_from(number).ok().expect("the type has all numbers up to `most`")
}

/// Draws an index below `bound`, and 0 when `bound` is 0.
pub(crate) fn index(random: &mut Random, bound: usize) -> usize {
    between(random, 0, bound.saturating_sub(1) as u64)
}

/// Draws one of the values.
pub(crate) fn pick<T: Clone>(random: &mut Random, values: &[T]) -> T {
    values[index(random, values.len())].clone()
}

/// Draws a fraction up to `most`, and zero every third time, so that each fault also occurs alone.
pub(crate) fn fraction(random: &mut Random, most: f64) -> f64 {
    if random.below(3) == 0 { 0.0 } else { random.fraction() * most }
}

/// Draws a time of at most `most` milliseconds.
pub(crate) fn millis(random: &mut Random, most: u64) -> Duration {
    Duration::from_millis(random.below(most + 1))
}
