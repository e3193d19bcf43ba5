//! Keyed functions over datagrams and connection ids (PROTOCOL 4.1, "Keyed functions", and PROTOCOL 4.4, "Functions of servers
//! and backends"). They are mac1, the MAC of a Refuse, the check in a connection id, and the stateless reset token.
//!
//! ```text
//! mac1 key   = BLAKE2s("drumfire mac1" || server public key || psk)
//! mac1       = keyed BLAKE2s(mac1 key, input), 16 bytes
//! refuse key = BLAKE2s("drumfire refuse" || psk)
//! refuse mac = keyed BLAKE2s(refuse key, Refuse before its MAC || Noise message 1), 16 bytes
//!
//! (check block, reset key, -) = HKDF3(server's persistent secret, "drumfire id" || server id)
//! check       = first 3 bytes of SipHash-2-4(first 16 bytes of the check block, id without its check)
//! reset token = keyed BLAKE2s(reset key, whole id), 16 bytes
//! ```
//!
//! This module does not know the layout of datagrams or ids. Its input is the bytes that a MAC covers.

use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq;

use crate::hash::{hash, hkdf3, keyed_16};
use crate::secret::{Secret, is_equal};

/// The length of mac1 in bytes.
pub const MAC1_BYTES: usize = 16;
/// The length of the MAC of a Refuse in bytes.
pub const REFUSE_MAC_BYTES: usize = 16;
/// The length of the check in a connection id in bytes.
pub const CHECK_BYTES: usize = 3;
/// The length of a reset token in bytes.
pub const RESET_TOKEN_BYTES: usize = 16;

const MAC1_LABEL: &[u8] = b"drumfire mac1";
const REFUSE_LABEL: &[u8] = b"drumfire refuse";
const ID_LABEL: &[u8] = b"drumfire id";

/// The key of mac1, for one server and one pre-shared key.
///
/// mac1 proves that the sender of a Hello knows the server's public key and the pre-shared key. The server verifies it before
/// it computes any Diffie-Hellman operation. WireGuard has a field of the same name and purpose.
#[derive(Debug)]
pub struct Mac1Key(Secret<32>);

impl Mac1Key {
    /// Derives the key. In open access the pre-shared key is [`Secret::zeroed`].
    #[must_use]
    pub fn derive(server_public: &[u8; 32], psk: &Secret<32>) -> Self {
        Self(hash(&[MAC1_LABEL, server_public, psk.expose()]))
    }

    /// Returns the MAC over the concatenated parts. The boundaries between parts have no effect.
    #[must_use]
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; MAC1_BYTES] {
        keyed_16(&self.0, parts)
    }

    /// Returns whether `mac` is the MAC over the parts. Compares in constant time.
    #[must_use]
    pub fn is_valid(&self, parts: &[&[u8]], mac: &[u8; MAC1_BYTES]) -> bool {
        is_equal(&self.mac(parts), mac)
    }
}

/// The key of the MAC of a Refuse, for one pre-shared key.
///
/// The MAC proves to a client with a token that its server refused it (PROTOCOL 16, "Refuse").
#[derive(Debug)]
pub struct RefuseKey(Secret<32>);

impl RefuseKey {
    /// Derives the key from the pre-shared key of the client's token.
    #[must_use]
    pub fn derive(psk: &Secret<32>) -> Self {
        Self(hash(&[REFUSE_LABEL, psk.expose()]))
    }

    /// Returns the MAC over the bytes of the Refuse before the MAC, and Noise message 1 of the Hello.
    #[must_use]
    pub fn mac(&self, refuse: &[u8], noise_message_1: &[u8]) -> [u8; REFUSE_MAC_BYTES] {
        keyed_16(&self.0, &[refuse, noise_message_1])
    }

    /// Returns whether `mac` is the MAC over these bytes. Compares in constant time.
    #[must_use]
    pub fn is_valid(&self, refuse: &[u8], noise_message_1: &[u8], mac: &[u8; REFUSE_MAC_BYTES]) -> bool {
        is_equal(&self.mac(refuse, noise_message_1), mac)
    }
}

/// The two keys that a server derives for its connection ids: one for the check and one for reset tokens.
///
/// With the check, a server drops datagrams with invented ids at little cost and without a reply. The check does not
/// stop an observer of the path, because the observer can copy a valid id. The keys survive a restart, because the
/// persistent secret does.
#[derive(Debug)]
pub struct IdKeys {
    check: Secret<16>,
    reset: Secret<32>,
}

impl IdKeys {
    /// Derives the keys from the server's persistent secret and its server id, which may have any length. Servers with different
    /// ids therefore have different keys.
    #[must_use]
    pub fn derive(persistent: &Secret<32>, server_id: &[u8]) -> Self {
        let [block, reset, _] = hkdf3(persistent, &[ID_LABEL, server_id]);
        let mut check = Secret::zeroed();
        for (byte, derived) in check.expose_mut().iter_mut().zip(block.expose()) {
            *byte = *derived;
        }
        Self { check, reset }
    }

    /// Returns the check over the other bytes of a connection id.
    #[inline]
    #[must_use]
    pub fn check(&self, unchecked: &[u8]) -> [u8; CHECK_BYTES] {
        let [first, second, third, ..] =
            SipHasher24::new_with_key(self.check.expose()).hash(unchecked).to_le_bytes();
        [first, second, third]
    }

    /// Returns whether the check is that over the other bytes of a connection id. Compares in constant time.
    #[inline]
    #[must_use]
    pub fn is_valid(&self, unchecked: &[u8], [first, second, third]: [u8; CHECK_BYTES]) -> bool {
        let [a, b, c] = self.check(unchecked);
        // The comparison of one number takes a third of the steps of three bytes.
        u32::from_be_bytes([0, a, b, c]).ct_eq(&u32::from_be_bytes([0, first, second, third])).into()
    }

    /// Returns the stateless reset token of a whole connection id (RFC 9000 section 10.3). The client must compare it with
    /// [`is_equal`].
    #[must_use]
    pub fn reset_token(&self, id: &[u8]) -> [u8; RESET_TOKEN_BYTES] {
        keyed_16(&self.reset, &[id])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{TestRandom, counting, hex};
    use drumfire_tries::tries;

    fn mac1_key() -> Mac1Key {
        Mac1Key::derive(&[1; 32], &Secret::new([2; 32]))
    }

    fn id_keys() -> IdKeys {
        IdKeys::derive(&Secret::new([5; 32]), b"server-7")
    }

    #[test]
    fn mac1_has_a_known_value() {
        // Computed with Python 3.11, hashlib.blake2s.
        assert_eq!(mac1_key().mac(&[b"hello"]).as_slice(), hex("f49704af2b8bae1fb36aab4a0081be3a"));
    }

    #[test]
    fn the_boundaries_of_parts_have_no_effect() {
        assert_eq!(mac1_key().mac(&[b"he", b"", b"llo"]), mac1_key().mac(&[b"hello"]));
    }

    #[test]
    fn mac1_rejects_every_changed_bit() {
        let bytes = *b"forty bytes of a Hello stand for all....";
        let mac = mac1_key().mac(&[&bytes]);
        assert!(mac1_key().is_valid(&[&bytes], &mac));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!mac1_key().is_valid(&[&changed], &mac), "bit {bit}");
        }
        for bit in 0..MAC1_BYTES * 8 {
            let mut changed = mac;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!mac1_key().is_valid(&[&bytes], &changed), "bit {bit}");
        }
    }

    #[test]
    fn mac1_depends_on_server_key_and_psk() {
        let mac = mac1_key().mac(&[b"hello"]);
        assert!(!Mac1Key::derive(&[3; 32], &Secret::new([2; 32])).is_valid(&[b"hello"], &mac));
        assert!(!Mac1Key::derive(&[1; 32], &Secret::zeroed()).is_valid(&[b"hello"], &mac));
    }

    #[test]
    fn a_refuse_mac_depends_on_refuse_hello_and_key() {
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

    #[test]
    fn id_keys_and_reset_token_have_known_values() {
        // Computed with Python 3.11, hmac and hashlib.blake2s.
        assert_eq!(id_keys().check.expose().as_slice(), hex("9c8af29249db92878d2e051b96725e0a"));
        assert_eq!(id_keys().reset_token(b"an id 8b").as_slice(), hex("7a830acd3144d1fb9c57877d056166e1"));
    }

    #[test]
    fn siphash_agrees_with_the_published_64_bit_vectors() {
        // The first two entries of vectors_sip64 in the reference implementation: key 00..0f, inputs of 0 and 1 bytes.
        let key = counting();
        let hash = |input: &[u8]| SipHasher24::new_with_key(&key).hash(input).to_le_bytes();
        assert_eq!(hash(&[]).as_slice(), hex("310e0edd47db6f72"));
        assert_eq!(hash(&[0]).as_slice(), hex("fd67dc93c539f874"));
    }

    #[test]
    fn the_id_check_rejects_every_changed_bit() {
        let id = *b"\x12\x34rnd";
        let check = id_keys().check(&id);
        assert!(id_keys().is_valid(&id, check));
        for bit in 0..id.len() * 8 {
            let mut changed = id;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!id_keys().is_valid(&changed, check), "bit {bit}");
        }
        for bit in 0..CHECK_BYTES * 8 {
            let mut changed = check;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!id_keys().is_valid(&id, changed), "bit {bit}");
        }
    }

    #[test]
    fn invented_ids_rarely_pass_the_check() {
        let (keys, mut random) = (id_keys(), TestRandom(9));
        let passed = (0..200_000).filter(|_| keys.is_valid(&random.bytes::<5>(), random.bytes())).count();
        assert!(passed <= 1, "{passed} of 200,000 against 24 bits");
    }

    #[test]
    fn reset_tokens_differ_between_ids_and_servers() {
        let token = id_keys().reset_token(b"an id 8b");
        assert_ne!(token, id_keys().reset_token(b"an id 8c"));
        assert_ne!(token, IdKeys::derive(&Secret::new([5; 32]), b"server-8").reset_token(b"an id 8b"));
        assert_ne!(token, IdKeys::derive(&Secret::new([6; 32]), b"server-7").reset_token(b"an id 8b"));
        assert_eq!(token, id_keys().reset_token(b"an id 8b"), "a restart changed the token");
    }

    #[test]
    fn the_reset_tokens_of_a_million_ids_differ() {
        let keys = id_keys();
        let count = tries(1_000_000);
        let mut tokens: Vec<_> = (0..count).map(|id| keys.reset_token(&id.to_be_bytes())).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), count as usize);
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", mac1_key()), "Mac1Key(Secret(32 bytes))");
        assert_eq!(format!("{:?}", id_keys()), "IdKeys { check: Secret(16 bytes), reset: Secret(32 bytes) }");
    }
}
