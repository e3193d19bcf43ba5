//! Draws for scenarios, on top of the generator of the simulated links.

use std::time::Duration;

use drumfire::conditioner::Random;

/// Draws a number from `min` to `max`, both included. The type must have `max`.
pub(crate) fn between<T: TryFrom<u64>>(random: &mut Random, min: u64, max: u64) -> T {
    let number = min + random.below(max - min + 1);
    T::try_from(number).ok().expect("the type has all numbers up to `max`")
}

/// Draws an index below `bound`, and 0 when `bound` is 0.
pub(crate) fn index(random: &mut Random, bound: usize) -> usize {
    between(random, 0, bound.saturating_sub(1) as u64)
}

/// Draws one of the values.
pub(crate) fn pick<T: Clone>(random: &mut Random, values: &[T]) -> T {
    values[index(random, values.len())].clone()
}

/// Draws a fraction up to `max`, and zero every third time, so that each fault also occurs alone.
pub(crate) fn fraction(random: &mut Random, max: f64) -> f64 {
    if random.below(3) == 0 { 0.0 } else { random.fraction() * max }
}

/// Draws a time of at most `max` milliseconds.
pub(crate) fn millis(random: &mut Random, max: u64) -> Duration {
    Duration::from_millis(random.below(max + 1))
}
