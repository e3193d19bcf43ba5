//! Mutations of valid bytes: bytes are changed, inserted, or cut off. The same input gives the same mutants.

use drumfire_tries::tries;

/// Returns the number of mutants to try for each input.
pub(crate) fn count() -> u64 {
    tries(1_000_000).into()
}

/// Calls `check` with `count` mutants of the bytes `genuine`.
pub(crate) fn of(genuine: &[u8], count: u64, mut check: impl FnMut(&[u8])) {
    let mut random = Random(genuine.len() as u64);
    let mut mutant = Vec::new();
    for _ in 0..count {
        mutant.clear();
        mutant.extend_from_slice(genuine);
        for _ in 0..=random.below(6) {
            let at = random.below(mutant.len() + 1);
            match random.below(8) {
                0 => mutant.truncate(at),
                1 => mutant.insert(at, random.byte()),
                _ => {
                    if let Some(byte) = mutant.get_mut(at) {
                        *byte = random.byte();
                    }
                }
            }
        }
        check(&mutant);
    }
}

/// The random number generator SplitMix64.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() % bound.max(1) as u64).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.bits().to_le_bytes()[0]
    }
}
