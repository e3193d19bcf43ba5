//! The MAC of a Refuse, which proves to a client with a token that its server refused it (PROTOCOL 16, "Refuse").
//!
//! ```text
//! key = BLAKE2s("drumfire refuse" || psk)
//! mac = keyed BLAKE2s(key, Refuse without its MAC || Noise message 1), 16 bytes
//! ```

use crate::hash::{hash, keyed_16};
use crate::secret::{Secret, is_equal};

/// Length of the MAC in bytes.
pub const REFUSE_MAC_BYTES: usize = 16;

const KEY_LABEL: &[u8] = b"drumfire refuse";

/// The key of refusals, for one pre-shared key.
#[derive(Debug)]
pub struct RefuseKey(Secret<32>);

impl RefuseKey {
    /// Derives the key.
    #[must_use]
    pub fn derive(psk: &Secret<32>) -> Self {
        Self(hash(&[KEY_LABEL, psk.expose()]))
    }

    /// The MAC over what stands before it in the Refuse, and over the Hello's Noise message 1.
    #[must_use]
    pub fn mac(&self, refuse: &[u8], noise_message_1: &[u8]) -> [u8; REFUSE_MAC_BYTES] {
        keyed_16(&self.0, &[refuse, noise_message_1])
    }

    /// Whether `mac` is the MAC over these. Compares in constant time.
    #[must_use]
    pub fn is_valid(&self, refuse: &[u8], noise_message_1: &[u8], mac: &[u8; REFUSE_MAC_BYTES]) -> bool {
        is_equal(&self.mac(refuse, noise_message_1), mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_holds_for_its_refuse_its_hello_and_its_key_alone() {
        let key = RefuseKey::derive(&Secret::new([1; 32]));
        let mac = key.mac(b"refuse", b"message");
        assert!(key.is_valid(b"refuse", b"message", &mac));
        assert!(!key.is_valid(b"refusf", b"message", &mac));
        assert!(!key.is_valid(b"refuse", b"messagf", &mac));
        assert!(!RefuseKey::derive(&Secret::new([2; 32])).is_valid(b"refuse", b"message", &mac));
        for bit in 0..REFUSE_MAC_BYTES * 8 {
            let mut changed = mac;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.is_valid(b"refuse", b"message", &changed), "bit {bit}");
        }
    }
}
