//! A generator of secret random bytes from one seed, so that the protocol core needs no other source: the
//! same seed gives the same bytes.
//!
//! ```text
//! (state', out 1, out 2) = HKDF3(state, "drumfire entropy")          64 bytes per step
//! ```
//!
//! The state is replaced at each step, so bytes given out earlier cannot be computed from a state that leaks
//! later. It deliberately never reseeds itself: where the seed comes from is the caller's business.

use std::fmt;

use crate::hash::hkdf3;
use crate::secret::Secret;

const LABEL: &[u8] = b"drumfire entropy";
/// Bytes of one step.
const BLOCK_BYTES: usize = 64;

/// Random bytes that only who knows the seed can predict. Neither `Clone` nor shared: a copy would give the
/// same bytes twice.
pub struct Entropy {
    state: Secret<32>,
    block: Secret<BLOCK_BYTES>,
    used: usize,
}

impl Entropy {
    /// A generator with this seed: 32 bytes from a secure source, or fixed ones in a test.
    #[must_use]
    pub const fn from_seed(seed: Secret<32>) -> Self {
        Self { state: seed, block: Secret::zeroed(), used: BLOCK_BYTES }
    }

    /// The next `N` bytes.
    #[must_use]
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// The next 32 bytes as a secret.
    #[must_use]
    pub fn secret(&mut self) -> Secret<32> {
        Secret::new(self.bytes())
    }

    fn byte(&mut self) -> u8 {
        if self.used >= BLOCK_BYTES {
            self.step();
        }
        let given = self.block.expose_mut().get_mut(self.used).map_or(0, std::mem::take);
        self.used = self.used.saturating_add(1);
        given
    }

    fn step(&mut self) {
        let [state, first, second] = hkdf3(&self.state, &[LABEL]);
        let derived = first.expose().iter().chain(second.expose());
        for (byte, derived) in self.block.expose_mut().iter_mut().zip(derived) {
            *byte = *derived;
        }
        self.state = state;
        self.used = 0;
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entropy").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entropy(seed: u8) -> Entropy {
        Entropy::from_seed(Secret::new([seed; 32]))
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_however_they_are_asked_for() {
        let (mut whole, mut parts) = (entropy(1), entropy(1));
        let all: [u8; 200] = whole.bytes();
        let (a, b, c): ([u8; 63], [u8; 2], [u8; 135]) = (parts.bytes(), parts.bytes(), parts.bytes());
        assert_eq!(all.as_slice(), [&a[..], &b, &c].concat());
        assert_ne!(all, entropy(2).bytes());
    }

    #[test]
    fn a_step_is_what_the_formula_says() {
        let [state, first, second] = hkdf3(&Secret::new([1; 32]), &[b"drumfire entropy"]);
        let mut entropy = entropy(1);
        assert_eq!(entropy.secret(), first);
        assert_eq!(entropy.secret(), second);
        let [_, third, _] = hkdf3(&state, &[b"drumfire entropy"]);
        assert_eq!(entropy.secret(), third);
    }

    #[test]
    fn what_was_given_is_wiped_and_debug_shows_nothing() {
        let mut entropy = entropy(1);
        let _: [u8; 40] = entropy.bytes();
        assert_eq!(entropy.block.expose()[..40], [0; 40]);
        assert_ne!(entropy.block.expose()[40..], [0; 24]);
        assert_eq!(format!("{entropy:?}"), "Entropy { .. }");
    }
}
