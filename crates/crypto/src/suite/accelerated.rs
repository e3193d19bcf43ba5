//! The accelerated provider: crate `ring`, with both suites. Why this one: `docs/AEAD.md` of this crate.
//!
//! ring does not wipe expanded keys on drop; that residue is a known gap.

use std::fmt;

use ring::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};

use super::{AeadError, KEY_BYTES, NONCE_BYTES, PacketKey, Suite, TAG_BYTES};

/// Length of a key of AES-128 in bytes.
const AES_128_KEY_BYTES: usize = 16;

/// An expanded key of the accelerated provider (about 550 bytes).
pub struct Accelerated(LessSafeKey);

impl PacketKey for Accelerated {
    fn new(suite: Suite, key: &[u8; KEY_BYTES]) -> Result<Self, AeadError> {
        let unbound = match suite {
            Suite::ChaCha20Poly1305 => UnboundKey::new(&CHACHA20_POLY1305, key),
            Suite::Aes128Gcm => {
                let (key, _) = key.split_first_chunk::<AES_128_KEY_BYTES>().ok_or(AeadError)?;
                UnboundKey::new(&AES_128_GCM, key)
            }
        };
        unbound.map(|key| Self(LessSafeKey::new(key))).map_err(|_| AeadError)
    }

    fn seal_in_place(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        buf: &mut [u8],
        tag: &mut [u8; TAG_BYTES],
    ) -> Result<(), AeadError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let made = self.0.seal_in_place_separate_tag(nonce, Aad::from(aad), buf).map_err(|_| AeadError)?;
        *tag = made.as_ref().try_into().map_err(|_| AeadError)?;
        Ok(())
    }

    fn open_in_place(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        buf: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> Result<(), AeadError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .open_in_place_separate_tag(nonce, Aad::from(aad), Tag::from(*tag), buf, 0..)
            .map(|_| ())
            .map_err(|_| AeadError)
    }
}

impl fmt::Debug for Accelerated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Accelerated(..)")
    }
}
