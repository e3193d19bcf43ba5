//! BLAKE2s in the three forms that this crate needs: plain, keyed, and as the HKDF of the Noise specification.
//!
//! Callers pass the parts of a message as slices, so no incremental interface is necessary.

use blake2::digest::consts::U16;
use blake2::digest::{Digest, KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac};

use crate::secret::Secret;

/// The block size of BLAKE2s in bytes (RFC 7693 section 2.1). HMAC pads its key to this size.
const BLOCK_BYTES: usize = 64;
const INNER_PAD: u8 = 0x36;
const OUTER_PAD: u8 = 0x5c;

/// Returns BLAKE2s-256 over the concatenated parts (RFC 7693).
pub(crate) fn hash(parts: &[&[u8]]) -> Secret<32> {
    let mut hasher = Blake2s256::new();
    for part in parts {
        hasher.update(part);
    }
    Secret::new(hasher.finalize().into())
}

/// Returns keyed BLAKE2s with 16 bytes of output over the concatenated parts (RFC 7693 section 2.9, without HMAC).
pub(crate) fn keyed_16(key: &Secret<32>, parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = <Blake2sMac<U16> as KeyInit>::new(key.expose().into());
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Returns the three outputs of the Noise HKDF (Noise revision 34, section 4.3).
pub(crate) fn hkdf3(chaining_key: &Secret<32>, input: &[&[u8]]) -> [Secret<32>; 3] {
    let temporary = hmac(chaining_key, input);
    let first = hmac(&temporary, &[&[1]]);
    let second = hmac(&temporary, &[first.expose(), &[2]]);
    let third = hmac(&temporary, &[second.expose(), &[3]]);
    [first, second, third]
}

/// Returns HMAC-BLAKE2s (RFC 2104) with a key of exactly one hash length.
fn hmac(key: &Secret<32>, parts: &[&[u8]]) -> Secret<32> {
    let mut hasher = Blake2s256::new();
    hasher.update(padded(key, INNER_PAD).expose());
    for part in parts {
        hasher.update(part);
    }
    let inner = Secret::<32>::new(hasher.finalize().into());
    hash(&[padded(key, OUTER_PAD).expose(), inner.expose()])
}

/// Returns the key XOR `pad`, where the key is padded to the block size with zeros (RFC 2104 section 2).
fn padded(key: &Secret<32>, pad: u8) -> Secret<BLOCK_BYTES> {
    let mut block = Secret::new([pad; BLOCK_BYTES]);
    for (byte, key_byte) in block.expose_mut().iter_mut().zip(key.expose()) {
        *byte ^= key_byte;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{counting, hex};

    #[test]
    fn blake2s_agrees_with_rfc_7693_appendix_b() {
        let expected = hex("508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982");
        assert_eq!(hash(&[b"abc"]).expose().as_slice(), expected);
        assert_eq!(hash(&[b"a", b"", b"bc"]).expose().as_slice(), expected);
    }

    #[test]
    fn keyed_blake2s_and_hkdf_agree_with_another_implementation() {
        // Computed with Python 3.11, hashlib.blake2s(key=.., digest_size=16), and hmac with hashlib.blake2s.
        let key = Secret::new(counting());
        assert_eq!(keyed_16(&key, &[b"drum", b"fire"]).as_slice(), hex("8113093a5edf52d78ca9644862ded598"));
        let [one, two, three] = hkdf3(&key, &[b"drumfire"]);
        assert_eq!(
            one.expose().as_slice(),
            hex("f2fee9e5dfd43658306c9bf1ccdba20b97e44ce32f19ebcf193c4d23ea3de2ed")
        );
        assert_eq!(
            two.expose().as_slice(),
            hex("4acc9ab3a9118ca532385a15d0768e4dd9e4a2ba6b77c2cd20492686920ced7c")
        );
        assert_eq!(
            three.expose().as_slice(),
            hex("d2f17a1b4b06e7b5108160cf1cfc3099c753dcb786b7fe888f8587f0c7070e70")
        );
    }
}
