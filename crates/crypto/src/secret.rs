//! Secret bytes, and a generator of secret random bytes.
//!
//! A [`Secret`] is wiped on drop, compared in constant time, and printed as its length. Copies that a caller makes through
//! [`Secret::expose`] are not wiped. Copies that the compiler leaves behind when a value moves are not wiped either.
//!
//! [`Entropy`] generates all random bytes of the protocol core from one seed, so the same seed gives the same bytes:
//!
//! ```text
//! (state', out 1, out 2) = HKDF3(state, "drumfire entropy")          64 bytes per step
//! ```
//!
//! Each step replaces the state, so a state that leaks does not reveal earlier output. The generator never reseeds itself; its
//! owner provides the seed.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use crate::hash::hkdf3;

const ENTROPY_LABEL: &[u8] = b"drumfire entropy";
/// The number of bytes that one step of [`Entropy`] generates.
const BLOCK_BYTES: usize = 64;

/// `N` secret bytes.
///
/// The type is not `Clone`, so that each copy of a secret is visible in the code as [`Secret::duplicate`].
pub struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// Takes ownership of `bytes`. A copy that the caller keeps is not wiped.
    #[must_use]
    pub const fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// Returns zeros, which are the pre-shared key of open access (PROTOCOL 4.1, "Keyed functions").
    #[must_use]
    pub const fn zeroed() -> Self {
        Self([0; N])
    }

    /// Returns the bytes, for a cryptographic primitive or a key file.
    #[must_use]
    pub const fn expose(&self) -> &[u8; N] {
        &self.0
    }

    /// Returns a copy of the secret, which is wiped when it is dropped.
    #[must_use]
    pub const fn duplicate(&self) -> Self {
        Self(self.0)
    }

    pub(crate) const fn expose_mut(&mut self) -> &mut [u8; N] {
        &mut self.0
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<const N: usize> PartialEq for Secret<N> {
    fn eq(&self, other: &Self) -> bool {
        is_equal(&self.0, &other.0)
    }
}

impl<const N: usize> Eq for Secret<N> {}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({N} bytes)")
    }
}

/// Returns whether two byte strings are equal, in a time that depends only on their lengths.
#[must_use]
pub fn is_equal(a: &[u8], b: &[u8]) -> bool {
    bool::from(a.ct_eq(b))
}

/// A generator of random bytes that cannot be predicted without its seed.
///
/// The type is not `Clone`, because a copy would generate the same bytes again.
pub struct Entropy {
    state: Secret<32>,
    /// The output of the last step. Bytes that were returned are zero.
    block: Secret<BLOCK_BYTES>,
    /// The number of bytes of `block` that were returned.
    used_bytes: usize,
}

impl Entropy {
    /// Creates a generator with this seed, which is 32 bytes from a secure source, or constant in a test.
    #[must_use]
    pub const fn from_seed(seed: Secret<32>) -> Self {
        Self { state: seed, block: Secret::zeroed(), used_bytes: BLOCK_BYTES }
    }

    /// Returns the next `N` bytes.
    #[must_use]
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// Returns the next 32 bytes as a secret.
    #[must_use]
    pub fn secret(&mut self) -> Secret<32> {
        Secret::new(self.bytes())
    }

    fn byte(&mut self) -> u8 {
        if self.used_bytes >= BLOCK_BYTES {
            self.step();
        }
        let byte = self.block.expose_mut().get_mut(self.used_bytes);
        debug_assert!(byte.is_some(), "a step makes a whole block available");
        let byte = byte.map_or(0, std::mem::take);
        self.used_bytes = self.used_bytes.saturating_add(1);
        byte
    }

    fn step(&mut self) {
        let [state, first, second] = hkdf3(&self.state, &[ENTROPY_LABEL]);
        let derived = first.expose().iter().chain(second.expose());
        for (byte, derived) in self.block.expose_mut().iter_mut().zip(derived) {
            *byte = *derived;
        }
        self.state = state;
        self.used_bytes = 0;
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
    fn debug_shows_only_the_length() {
        let text = format!("{:?}", Secret::new([0xab; 32]));
        assert_eq!(text, "Secret(32 bytes)");
    }

    #[test]
    fn equality_depends_on_every_bit() {
        let left = Secret::new([0x5a; 32]);
        assert_eq!(left, left.duplicate());
        for bit in 0..256 {
            let mut bytes = [0x5a; 32];
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(left, Secret::new(bytes), "bit {bit}");
        }
    }

    #[test]
    fn byte_strings_of_different_lengths_are_not_equal() {
        assert!(is_equal(b"abc", b"abc"));
        assert!(!is_equal(b"abc", b"abcd"));
        assert!(!is_equal(b"", b"a"));
        assert!(is_equal(b"", b""));
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let (mut whole, mut parts) = (entropy(1), entropy(1));
        let all: [u8; 200] = whole.bytes();
        let (a, b, c): ([u8; 63], [u8; 2], [u8; 135]) = (parts.bytes(), parts.bytes(), parts.bytes());
        assert_eq!(all.as_slice(), [&a[..], &b, &c].concat());
        assert_ne!(all, entropy(2).bytes());
    }

    #[test]
    fn a_generator_step_equals_its_formula() {
        let [state, first, second] = hkdf3(&Secret::new([1; 32]), &[b"drumfire entropy"]);
        let mut entropy = entropy(1);
        assert_eq!(entropy.secret(), first);
        assert_eq!(entropy.secret(), second);
        let [_, third, _] = hkdf3(&state, &[b"drumfire entropy"]);
        assert_eq!(entropy.secret(), third);
    }

    #[test]
    fn returned_bytes_are_wiped_and_debug_shows_no_secret() {
        let mut entropy = entropy(1);
        let _: [u8; 40] = entropy.bytes();
        assert_eq!(entropy.block.expose()[..40], [0; 40]);
        assert_ne!(entropy.block.expose()[40..], [0; 24]);
        assert_eq!(format!("{entropy:?}"), "Entropy { .. }");
    }
}
