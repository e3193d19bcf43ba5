//! The portable provider: crate `chacha20poly1305`, pure Rust, always compiled. It has no AES-128-GCM.
//!
//! Its keys are wiped on drop.

use std::fmt;

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};

use super::{AeadError, KEY_BYTES, NONCE_BYTES, PacketKey, Suite, TAG_BYTES};

/// An expanded key of the portable provider (32 bytes: this provider derives its state for each packet).
pub struct Portable(ChaCha20Poly1305);

impl PacketKey for Portable {
    fn new(suite: Suite, key: &[u8; KEY_BYTES]) -> Result<Self, AeadError> {
        match suite {
            Suite::ChaCha20Poly1305 => Ok(Self(ChaCha20Poly1305::new(key.into()))),
            Suite::Aes128Gcm => Err(AeadError),
        }
    }

    fn seal_in_place(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        buf: &mut [u8],
        tag: &mut [u8; TAG_BYTES],
    ) -> Result<(), AeadError> {
        let made = self.0.encrypt_in_place_detached(&nonce.into(), aad, buf).map_err(|_| AeadError)?;
        *tag = made.into();
        Ok(())
    }

    fn open_in_place(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        buf: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> Result<(), AeadError> {
        self.0.decrypt_in_place_detached(&nonce.into(), aad, buf, tag.into()).map_err(|_| AeadError)
    }
}

impl fmt::Debug for Portable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Portable(..)")
    }
}
