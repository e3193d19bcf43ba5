//! Bytes that must not leak: wiped on drop, compared in constant time, printed as their length only.
//!
//! A copy that the owner makes through [`Secret::expose`] is outside this module's care, and so are copies
//! the compiler leaves behind when a value is moved.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// `N` secret bytes. Not `Clone`, so that each copy of a secret is visible in the code as
/// [`Secret::duplicate`].
pub struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// Takes ownership of `bytes`; the caller's own copy is the caller's to wipe.
    #[must_use]
    pub const fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// All bytes zero: the pre-shared key of open access (PROTOCOL 4.1, "Keyed functions"), where no
    /// secret exists.
    #[must_use]
    pub const fn zeroed() -> Self {
        Self([0; N])
    }

    /// The bytes themselves, for feeding a primitive or for writing a key file.
    #[must_use]
    pub const fn expose(&self) -> &[u8; N] {
        &self.0
    }

    /// A second copy of the same secret, wiped on its own.
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

/// Whether two byte strings are equal, in a time that depends on their lengths only.
#[must_use]
pub fn is_equal(a: &[u8], b: &[u8]) -> bool {
    bool::from(a.ct_eq(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_the_length_and_no_byte() {
        let text = format!("{:?}", Secret::new([0xab; 32]));
        assert_eq!(text, "Secret(32 bytes)");
    }

    #[test]
    fn equality_sees_every_single_bit() {
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
}
