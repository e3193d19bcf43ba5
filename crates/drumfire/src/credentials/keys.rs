//! The key pair with which a server proves its identity to clients.
//!
//! The game decides where keys are stored and how clients learn the public key.

use std::fmt;
use std::str::FromStr;
use std::sync::{LazyLock, Once};

use drumfire_proto::{Secret, ServerKeyPair};

use super::key_text::{self, KeyKind, KeyTextError};
use crate::base::entropy;
use crate::base::error::Error;

/// A server's long-lived secret key. Anyone who has it can impersonate the server.
#[derive(Debug)]
pub struct ServerKey {
    pair: ServerKeyPair,
    is_dev: bool,
}

impl Clone for ServerKey {
    fn clone(&self) -> Self {
        Self { pair: self.pair(), is_dev: self.is_dev }
    }
}

/// The secret of [`ServerKey::dev`]. It is public, so it protects nothing.
const DEV_SECRET: [u8; 32] = *b"drumfire development key, public";

impl ServerKey {
    /// Generates a key. Store [`ServerKey::to_text`], or clients have to learn a new public key at each start of the server.
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`] if the system has no random bytes.
    pub fn generate() -> Result<Self, Error> {
        Ok(Self { pair: ServerKeyPair::from_secret(entropy::secret()?), is_dev: false })
    }

    /// Returns the key for development and tests. It is public, so it protects nothing: a server with this key binds to loopback
    /// addresses only, and warns once per process, through `tracing` or on standard error. Clients connect to such a server with
    /// `(address, ServerKey::dev().public())`, also to loopback addresses only.
    #[must_use]
    pub fn dev() -> Self {
        Self { pair: ServerKeyPair::from_secret(Secret::new(DEV_SECRET)), is_dev: true }
    }

    /// Returns the key with these secret bytes, from [`ServerKey::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self { pair: ServerKeyPair::from_secret(Secret::new(bytes)), is_dev: bytes == DEV_SECRET }
    }

    /// Returns the key as text, for a file that only the server can read. `str::parse` reads it back.
    #[must_use]
    pub fn to_text(&self) -> String {
        key_text::encode(KeyKind::Secret, self.pair.secret().expose())
    }

    /// Returns the secret bytes, for a file that only the server can read.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; 32] {
        *self.pair.secret().expose()
    }

    /// Returns the public half, which clients need.
    #[must_use]
    pub const fn public(&self) -> ServerPublicKey {
        ServerPublicKey(*self.pair.public())
    }

    pub(crate) const fn is_dev(&self) -> bool {
        self.is_dev
    }

    /// Warns once per process that the development key protects nothing: through `tracing`, or on standard error if no subscriber
    /// takes warnings.
    pub(crate) fn warn_if_dev(&self) {
        static ONCE: Once = Once::new();
        if self.is_dev {
            ONCE.call_once(|| {
                if crate::observe::trace::has_warned_of_dev_key() {
                    return;
                }
                eprintln!(
                    "drumfire: this server has the development key, which is public: any process can impersonate it. \
                     Use a key from ServerKey::generate()"
                );
            });
        }
    }

    /// Returns a copy of the pair, for another worker.
    pub(crate) fn pair(&self) -> ServerKeyPair {
        ServerKeyPair::from_secret(self.pair.secret().duplicate())
    }
}

/// The public half of a [`ServerKey`]. Its text starts with `drumfire_public_`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerPublicKey([u8; 32]);

impl ServerPublicKey {
    /// Returns the key with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of an X25519 public key (RFC 7748, section 5).
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Returns whether this is the public half of [`ServerKey::dev`].
    pub(crate) fn is_dev(self) -> bool {
        static DEV: LazyLock<ServerPublicKey> = LazyLock::new(|| ServerKey::dev().public());
        self == *DEV
    }
}

impl fmt::Display for ServerPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&key_text::encode(KeyKind::Public, &self.0))
    }
}

impl fmt::Debug for ServerPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerPublicKey({self})")
    }
}

impl FromStr for ServerPublicKey {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        key_text::decode_array(KeyKind::Public, text).map(Self)
    }
}

impl FromStr for ServerKey {
    type Err = KeyTextError;

    /// Reads the text of [`ServerKey::to_text`].
    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        key_text::decode_array(KeyKind::Secret, text).map(Self::from_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_from_its_bytes() {
        let key = ServerKey::generate().unwrap();
        assert_eq!(ServerKey::from_bytes(key.to_bytes()).public(), key.public());
        assert_ne!(ServerKey::generate().unwrap().public(), key.public());
        assert!(!key.is_dev());
    }

    #[test]
    fn the_development_key_is_recognized_in_every_form() {
        assert!(ServerKey::dev().is_dev());
        assert!(ServerKey::from_bytes(ServerKey::dev().to_bytes()).is_dev());
    }

    #[test]
    fn keys_are_read_from_their_text_and_not_confused() {
        let key = ServerKey::from_bytes([0xf7; 32]);
        let (public, secret) = (key.public().to_string(), key.to_text());
        assert_eq!(public.parse(), Ok(key.public()));
        assert_eq!(secret.parse::<ServerKey>().unwrap().to_bytes(), [0xf7; 32]);
        assert!(secret.parse::<ServerPublicKey>().is_err() && public.parse::<ServerKey>().is_err());
    }

    #[test]
    fn a_secret_key_does_not_print_itself() {
        let text = format!("{:?}", ServerKey::from_bytes([0xAB; 32])).to_lowercase();
        assert!(!text.contains("abab") && !text.contains("171, 171"), "{text}");
    }
}
