//! A repeatable generator (SplitMix64, Steele and others 2014), for simulations and never for secrets.

use std::time::Duration;

/// A pseudorandom generator. The same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates the generator of one part of a simulation. Each part has its own numbers, so the draws of one part do not affect another.
    #[must_use]
    pub fn part(seed: u64, part: u64) -> Self {
        let mut random = Self(seed);
        let base = random.bits();
        Self(base ^ part.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Returns 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number below `bound`, or 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        // The remainder favors small numbers by less than 2^-32 for every bound used here.
        match self.bits().checked_rem(bound) {
            Some(number) => number,
            None => 0,
        }
    }

    /// Returns a random number from 0 to below 1.
    pub fn fraction(&mut self) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        (self.bits() >> 11) as f64 / STEPS
    }

    /// Returns true with the probability `fraction`, 0 to 1.
    pub fn happens(&mut self, fraction: f64) -> bool {
        self.fraction() < fraction
    }

    /// Returns a random duration from zero to `longest`, or to 584 years if that is shorter.
    pub fn duration(&mut self, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.below(nanos.saturating_add(1)))
    }

    /// Returns 32 random bytes, for keys that protect nothing.
    pub fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_the_reference_implementation() {
        let mut random = Random::new(1_234_567);
        let first = [random.bits(), random.bits(), random.bits()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_are_below_their_bound() {
        let mut random = Random::new(1);
        assert!((0..1_000).all(|_| random.below(7) < 7));
        assert_eq!(random.below(0), 0);
        assert!((0..1_000).all(|_| random.duration(Duration::from_nanos(2)) <= Duration::from_nanos(2)));
        assert!((0..1_000).all(|_| !random.happens(0.0)) && (0..1_000).all(|_| random.happens(1.0)));
    }

    #[test]
    fn parts_of_a_seed_have_different_numbers() {
        let first_values: std::collections::HashSet<u64> =
            (0..1_000).map(|part| Random::part(5, part).bits()).collect();
        assert_eq!(first_values.len(), 1_000);
    }
}
