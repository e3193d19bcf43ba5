//! The cipher suites, the trait [`PacketKey`] for packet protection, and its two providers.
//!
//! [`Portable`] is pure Rust and always available. `Accelerated` needs the feature `accel`. Both produce the same bytes, and
//! [`Provider`] is the provider that sessions use.
//!
//! A caller of the trait must never seal twice with the same key and nonce. [`crate::Sealer`] guarantees that for sessions.

use std::fmt;

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};

#[cfg(feature = "accel")]
pub use accelerated::Accelerated;

/// The provider that sessions use in this build.
#[cfg(feature = "accel")]
pub type Provider = Accelerated;
/// The provider that sessions use in this build.
#[cfg(not(feature = "accel"))]
pub type Provider = Portable;

/// The length of the authentication tag in bytes, in both suites (RFC 8439 section 2.8, RFC 5116 section 5.1).
pub const TAG_BYTES: usize = 16;
/// The length of a nonce in bytes, in both suites.
pub const NONCE_BYTES: usize = 12;
/// The length of a raw key in bytes. A suite with shorter keys uses the first bytes.
pub const KEY_BYTES: usize = 32;

/// A cipher suite. The value is its number on the wire (PROTOCOL 4.2, "Suites").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Suite {
    /// ChaCha20-Poly1305 (RFC 8439), which is mandatory and always available.
    ChaCha20Poly1305 = 1,
    /// AES-128-GCM (NIST SP 800-38D), which needs the accelerated provider. Peers use it if both have instructions for it.
    Aes128Gcm = 2,
}

impl Suite {
    /// All suites of the protocol, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::ChaCha20Poly1305, Self::Aes128Gcm];

    /// Returns the number on the wire.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Returns the suite with this number, or `None` if the protocol has none.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.id() == id)
    }

    /// Returns whether this build can seal and open with the suite.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        match self {
            Self::ChaCha20Poly1305 => true,
            Self::Aes128Gcm => cfg!(feature = "accel"),
        }
    }

    /// Returns whether this peer should offer the suite: the build supports it, and the processor has instructions for it if it
    /// would be slow without them.
    #[must_use]
    pub fn is_offered(self) -> bool {
        match self {
            Self::ChaCha20Poly1305 => true,
            Self::Aes128Gcm => self.is_supported() && has_aes_instructions(),
        }
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
fn has_aes_instructions() -> bool {
    std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes_instructions() -> bool {
    std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
fn has_aes_instructions() -> bool {
    false
}

/// An expanded key of a provider, which encrypts and authenticates in place. The caller is responsible for unique nonces.
pub trait PacketKey: Sized {
    /// Expands a raw key.
    ///
    /// # Errors
    /// [`AeadError`] if this provider does not support the suite.
    fn new(suite: Suite, key: &[u8; KEY_BYTES]) -> Result<Self, AeadError>;

    /// Encrypts `buf` in place and writes the tag over `aad` and `buf` to `tag`.
    ///
    /// # Errors
    /// [`AeadError`] if `buf` is longer than the suite permits, which is gigabytes. `buf` and `tag` are unspecified then.
    fn seal_in_place(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        buf: &mut [u8],
        tag: &mut [u8; TAG_BYTES],
    ) -> Result<(), AeadError>;

    /// Verifies `tag` over `aad` and `buf` in constant time, and decrypts `buf` in place.
    ///
    /// # Errors
    /// [`AeadError`] if the tag is not valid. The contents of `buf` are unspecified then and must not be used.
    fn open_in_place(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        buf: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> Result<(), AeadError>;
}

/// The provider rejected its input.
///
/// It carries no reason, like the errors of the underlying crates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AeadError;

impl fmt::Display for AeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("authenticated encryption rejected its input")
    }
}

impl std::error::Error for AeadError {}

/// A key of the portable provider, the pure Rust crate `chacha20poly1305`. It does not support AES-128-GCM.
///
/// The key takes 32 bytes, because this provider computes its state for each packet. It is wiped on drop.
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

#[cfg(feature = "accel")]
mod accelerated {
    use std::fmt;

    use ring::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};

    use super::{AeadError, KEY_BYTES, NONCE_BYTES, PacketKey, Suite, TAG_BYTES};

    /// The length of an AES-128 key in bytes.
    const AES_128_KEY_BYTES: usize = 16;

    /// An expanded key of the accelerated provider, the crate `ring`, which supports both suites.
    ///
    /// `docs/AEAD.md` has the measurements that led to this choice.
    ///
    /// The key takes about 550 bytes. Known gap: `ring` does not wipe expanded keys on drop.
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
            let made =
                self.0.seal_in_place_separate_tag(nonce, Aad::from(aad), buf).map_err(|_| AeadError)?;
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
}

#[cfg(test)]
mod tests;
