//! The first MAC of a Hello: shows that its sender knows the server's public key and the pre-shared key,
//! before any Diffie-Hellman (PROTOCOL 4.1, "Keyed functions").
//!
//! ```text
//! key  = BLAKE2s("drumfire mac1" || server public key || psk)
//! mac1 = keyed BLAKE2s(key, bytes), 16 bytes
//! ```
//!
//! Which bytes it covers is the caller's business; they are passed in parts, so that the cookie can be left
//! out or zeroed without a copy.

use crate::hash::{hash, keyed_16};
use crate::secret::{Secret, is_equal};

/// Length of the MAC in bytes.
pub const MAC1_BYTES: usize = 16;

const KEY_LABEL: &[u8] = b"drumfire mac1";

/// The key of the first MAC, for one server and one pre-shared key.
#[derive(Debug)]
pub struct Mac1Key(Secret<32>);

impl Mac1Key {
    /// Derives the key. In open access the pre-shared key is [`Secret::zeroed`].
    #[must_use]
    pub fn derive(server_public: &[u8; 32], psk: &Secret<32>) -> Self {
        Self(hash(&[KEY_LABEL, server_public, psk.expose()]))
    }

    /// The MAC over the parts in order; where one part ends and the next begins makes no difference.
    #[must_use]
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; MAC1_BYTES] {
        keyed_16(&self.0, parts)
    }

    /// Whether `mac` is the MAC over the parts. Compares in constant time.
    #[must_use]
    pub fn is_valid(&self, parts: &[&[u8]], mac: &[u8; MAC1_BYTES]) -> bool {
        is_equal(&self.mac(parts), mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::hex;

    fn key() -> Mac1Key {
        Mac1Key::derive(&[1; 32], &Secret::new([2; 32]))
    }

    #[test]
    fn the_mac_is_what_another_implementation_computes() {
        // Expected value: Python 3.11, hashlib.blake2s.
        assert_eq!(key().mac(&[b"hello"]).as_slice(), hex("f49704af2b8bae1fb36aab4a0081be3a"));
    }

    #[test]
    fn parts_are_covered_as_one_string() {
        assert_eq!(key().mac(&[b"he", b"", b"llo"]), key().mac(&[b"hello"]));
    }

    #[test]
    fn any_changed_bit_of_bytes_or_mac_is_refused() {
        let bytes = *b"forty bytes of a Hello stand for all....";
        let mac = key().mac(&[&bytes]);
        assert!(key().is_valid(&[&bytes], &mac));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!key().is_valid(&[&changed], &mac), "bit {bit}");
        }
        for bit in 0..MAC1_BYTES * 8 {
            let mut changed = mac;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!key().is_valid(&[&bytes], &changed), "bit {bit}");
        }
    }

    #[test]
    fn another_server_or_another_psk_has_another_mac() {
        let mac = key().mac(&[b"hello"]);
        assert!(!Mac1Key::derive(&[3; 32], &Secret::new([2; 32])).is_valid(&[b"hello"], &mac));
        assert!(!Mac1Key::derive(&[1; 32], &Secret::zeroed()).is_valid(&[b"hello"], &mac));
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", key()), "Mac1Key(Secret(32 bytes))");
    }
}
