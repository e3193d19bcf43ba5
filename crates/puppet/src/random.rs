//! A repeatable generator of random numbers for tests (SplitMix64).
//!
//! It is not suitable for secrets.

/// A generator with this state; two generators with the same state draw the same numbers.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the generator of this seed. Seeds that follow one another give sequences that do not overlap.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self(Self(seed).bits())
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, and 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }

    /// Returns a number below `bound`, and 0 when `bound` is 0.
    pub(crate) fn below_u32(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(bound.into())).unwrap_or(0)
    }

    /// Returns an index below `length`, and 0 when `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Returns `true` in `percent` of 100 calls.
    pub fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `values`.
    ///
    /// # Panics
    ///
    /// Panics if `values` is empty.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.index(values.len())]
    }

    /// Returns one of the choices, each by its weight.
    ///
    /// # Panics
    ///
    /// Panics if there is no choice.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(T, u64)]) -> T {
        let mut at = self.below(choices.iter().map(|(_, weight)| weight).sum());
        for (choice, weight) in choices {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *choice,
            }
        }
        choices[0].0
    }

    /// Returns 32 random bytes.
    pub fn secret(&mut self) -> [u8; 32] {
        let words = [0; 4].map(|_: u64| self.bits().to_le_bytes());
        std::array::from_fn(|at| words[at / 8][at % 8])
    }
}
