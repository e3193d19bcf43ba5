//! The cipher suites and the one trait for packet protection, with its two providers.
//!
//! [`Portable`] is pure Rust and always there; `Accelerated` comes with feature `accel`. Both give the same
//! bytes, and [`Provider`] is the one that packets go through. This module knows nothing about packet
//! numbers: a caller of the trait must never seal twice with the same key and nonce, which is why sessions
//! use [`crate::Sealer`] instead.

#[cfg(feature = "accel")]
mod accelerated;
mod portable;

use std::fmt;

#[cfg(feature = "accel")]
pub use accelerated::Accelerated;
pub use portable::Portable;

/// The provider that packets go through in this build.
#[cfg(feature = "accel")]
pub type Provider = Accelerated;
/// The provider that packets go through in this build.
#[cfg(not(feature = "accel"))]
pub type Provider = Portable;

/// Length of the authentication tag in bytes, equal for both suites (RFC 8439 section 2.8, RFC 5116 section
/// 5.1).
pub const TAG_BYTES: usize = 16;
/// Length of a nonce in bytes, equal for both suites.
pub const NONCE_BYTES: usize = 12;
/// Length of a raw key in bytes; a suite with shorter keys uses the first bytes.
pub const KEY_BYTES: usize = 32;

/// A cipher suite, by its number on the wire (PROTOCOL 4.2, "Suites").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Suite {
    /// ChaCha20-Poly1305 (RFC 8439): mandatory, always available.
    ChaCha20Poly1305 = 1,
    /// AES-128-GCM (NIST SP 800-38D): only with the accelerated provider, chosen when both ends have the
    /// instructions.
    Aes128Gcm = 2,
}

impl Suite {
    /// Every suite of the protocol, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::ChaCha20Poly1305, Self::Aes128Gcm];

    /// The number on the wire.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The suite with this number, if the protocol has one.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.id() == id)
    }

    /// Whether this build can seal and open with the suite.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        match self {
            Self::ChaCha20Poly1305 => true,
            Self::Aes128Gcm => cfg!(feature = "accel"),
        }
    }

    /// Whether this end should offer the suite: the build supports it, and the processor runs it with
    /// instructions of its own where it would be slow without.
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

/// An expanded key of one provider: authenticated encryption in place, without any care for nonces.
pub trait PacketKey: Sized {
    /// Expands a raw key.
    ///
    /// # Errors
    /// [`AeadError`] if this provider does not have the suite.
    fn new(suite: Suite, key: &[u8; KEY_BYTES]) -> Result<Self, AeadError>;

    /// Encrypts `buf` in place and writes the tag over `aad` and `buf` to `tag`.
    ///
    /// # Errors
    /// [`AeadError`] if `buf` is longer than the suite permits (gigabytes); `buf` and `tag` are then
    /// unspecified.
    fn seal_in_place(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        buf: &mut [u8],
        tag: &mut [u8; TAG_BYTES],
    ) -> Result<(), AeadError>;

    /// Checks `tag` over `aad` and `buf` in constant time and decrypts `buf` in place.
    ///
    /// # Errors
    /// [`AeadError`] if anything does not fit; the content of `buf` is then unspecified and must not be used.
    fn open_in_place(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        buf: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> Result<(), AeadError>;
}

/// The provider refused. It deliberately does not say why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AeadError;

impl fmt::Display for AeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("authenticated encryption refused its input")
    }
}

impl std::error::Error for AeadError {}

#[cfg(test)]
mod tests;
