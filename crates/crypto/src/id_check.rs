//! The keyed check inside a connection id, and the stateless reset token of a connection id (PROTOCOL 4.4,
//! "Functions of servers and backends").
//!
//! ```text
//! (check block, reset key, -) = HKDF3(server's persistent secret, "drumfire id" || server id)
//! check = first 3 bytes of SipHash-2-4(first 16 bytes of the check block, id without its check)
//! reset = keyed BLAKE2s(reset key, whole id), 16 bytes
//! ```
//!
//! The check lets a server drop datagrams with invented ids at little cost, without a word; 24 bits stop noise, not an
//! observer. Where the check sits inside an id is the caller's business.

use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq;

use crate::hash::{hkdf3, keyed_16};
use crate::secret::Secret;

/// Length of the check in bytes.
pub const CHECK_BYTES: usize = 3;
/// Length of a reset token in bytes.
pub const RESET_TOKEN_BYTES: usize = 16;

const LABEL: &[u8] = b"drumfire id";

/// The two keys a server derives for its connection ids. They outlive a restart, because the persistent
/// secret does.
#[derive(Debug)]
pub struct IdKeys {
    check: Secret<16>,
    reset: Secret<32>,
}

impl IdKeys {
    /// Derives the keys from the server's persistent secret and its server id (any length), so that servers
    /// never share them.
    #[must_use]
    pub fn derive(persistent: &Secret<32>, server_id: &[u8]) -> Self {
        let [block, reset, _] = hkdf3(persistent, &[LABEL, server_id]);
        let mut check = Secret::zeroed();
        for (byte, derived) in check.expose_mut().iter_mut().zip(block.expose()) {
            *byte = *derived;
        }
        Self { check, reset }
    }

    /// The check over the other bytes of a connection id.
    #[inline]
    #[must_use]
    pub fn check(&self, unchecked: &[u8]) -> [u8; CHECK_BYTES] {
        let [first, second, third, ..] =
            SipHasher24::new_with_key(self.check.expose()).hash(unchecked).to_le_bytes();
        [first, second, third]
    }

    /// Whether `check` is the check over the other bytes of a connection id. Compares in constant time.
    #[inline]
    #[must_use]
    pub fn is_valid(&self, unchecked: &[u8], [first, second, third]: [u8; CHECK_BYTES]) -> bool {
        let [a, b, c] = self.check(unchecked);
        // As one number, in a third of the steps that bytes in a row take.
        u32::from_be_bytes([0, a, b, c]).ct_eq(&u32::from_be_bytes([0, first, second, third])).into()
    }

    /// The stateless reset token of a whole connection id. The client compares it with [`is_equal`](crate::secret::is_equal).
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

    fn keys() -> IdKeys {
        IdKeys::derive(&Secret::new([5; 32]), b"server-7")
    }

    #[test]
    fn keys_and_reset_token_are_what_another_implementation_computes() {
        // Expected values: Python 3.11, hmac with hashlib.blake2s.
        assert_eq!(keys().check.expose().as_slice(), hex("9c8af29249db92878d2e051b96725e0a"));
        assert_eq!(keys().reset_token(b"an id 8b").as_slice(), hex("7a830acd3144d1fb9c57877d056166e1"));
    }

    #[test]
    fn siphash_gives_the_published_vectors() {
        // The first two entries of vectors_sip64 in the reference implementation: key 00..0f, input of 0 and 1 bytes.
        let key = counting();
        let hash = |input: &[u8]| SipHasher24::new_with_key(&key).hash(input).to_le_bytes();
        assert_eq!(hash(&[]).as_slice(), hex("310e0edd47db6f72"));
        assert_eq!(hash(&[0]).as_slice(), hex("fd67dc93c539f874"));
    }

    #[test]
    fn the_check_fails_for_every_changed_bit() {
        let id = *b"\x12\x34rnd";
        let check = keys().check(&id);
        assert!(keys().is_valid(&id, check));
        for bit in 0..id.len() * 8 {
            let mut changed = id;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!keys().is_valid(&changed, check), "bit {bit}");
        }
        for bit in 0..CHECK_BYTES * 8 {
            let mut changed = check;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!keys().is_valid(&id, changed), "bit {bit}");
        }
    }

    #[test]
    fn invented_ids_rarely_pass_the_check() {
        let (keys, mut random) = (keys(), TestRandom(9));
        let passed = (0..200_000).filter(|_| keys.is_valid(&random.bytes::<5>(), random.bytes())).count();
        assert!(passed <= 1, "{passed} of 200,000 against 24 bits");
    }

    #[test]
    fn reset_tokens_differ_between_ids_and_servers() {
        let token = keys().reset_token(b"an id 8b");
        assert_ne!(token, keys().reset_token(b"an id 8c"));
        assert_ne!(token, IdKeys::derive(&Secret::new([5; 32]), b"server-8").reset_token(b"an id 8b"));
        assert_ne!(token, IdKeys::derive(&Secret::new([6; 32]), b"server-7").reset_token(b"an id 8b"));
        assert_eq!(token, keys().reset_token(b"an id 8b"), "a restart changes nothing");
    }

    #[test]
    fn the_reset_tokens_of_a_million_ids_differ() {
        let keys = keys();
        let count = tries(1_000_000);
        let mut tokens: Vec<_> = (0..count).map(|id| keys.reset_token(&id.to_be_bytes())).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), count as usize);
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", keys()), "IdKeys { check: Secret(16 bytes), reset: Secret(32 bytes) }");
    }
}
