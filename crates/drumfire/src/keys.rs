//! The key a server proves itself with, and the public half that clients know it by.
//!
//! Where keys are stored and how clients learn the public one is the game's business.

use std::fmt;
use std::str::FromStr;
use std::sync::Once;

use drumfire_proto::{Secret, ServerKeyPair};

use crate::entropy::{self, EntropyError};

/// A server's long-lived secret key. Who has it can pose as the server.
#[derive(Debug)]
pub struct ServerKey {
    pair: ServerKeyPair,
    is_dev: bool,
}

/// The secret of [`ServerKey::dev`]: known to everybody, worth nothing.
const DEV_SECRET: [u8; 32] = *b"drumfire development key, public";

impl ServerKey {
    /// A fresh key. Store [`ServerKey::to_bytes`], or clients have to learn a new public key at each start.
    ///
    /// # Errors
    ///
    /// [`EntropyError`] when the system has no randomness to give.
    pub fn generate() -> Result<Self, EntropyError> {
        Ok(Self { pair: ServerKeyPair::from_secret(entropy::secret()?), is_dev: false })
    }

    /// The key of first steps and tests: the same for everybody, so it protects nothing. A server that has it
    /// may bind to loopback addresses only and says so once on standard error; [`crate::Client::connect_dev`]
    /// expects it.
    #[must_use]
    pub fn dev() -> Self {
        Self { pair: ServerKeyPair::from_secret(Secret::new(DEV_SECRET)), is_dev: true }
    }

    /// The key with these secret bytes, as [`ServerKey::to_bytes`] gave them.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self { pair: ServerKeyPair::from_secret(Secret::new(bytes)), is_dev: bytes == DEV_SECRET }
    }

    /// The secret bytes, for a key file that nobody else can read.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; 32] {
        *self.pair.secret().expose()
    }

    /// What clients need to know of it.
    #[must_use]
    pub const fn public(&self) -> ServerPublicKey {
        ServerPublicKey(*self.pair.public())
    }

    pub(crate) const fn is_dev(&self) -> bool {
        self.is_dev
    }

    /// Says on standard error, once per process, what a server with the development key is worth.
    pub(crate) fn warn_if_dev(&self) {
        static ONCE: Once = Once::new();
        if self.is_dev {
            ONCE.call_once(|| {
                eprintln!(
                    "drumfire: this server has the development key, which everybody knows: anybody can pose as it. \
                     Give ServerConfig a key of its own, from ServerKey::generate()"
                );
            });
        }
    }

    /// Another copy of the pair, for one more worker.
    pub(crate) fn pair(&self) -> ServerKeyPair {
        ServerKeyPair::from_secret(self.pair.secret().duplicate())
    }
}

/// The public half of a [`ServerKey`]. As text it is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerPublicKey([u8; 32]);

impl ServerPublicKey {
    /// The key with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Display for ServerPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
        bytes_of(text).map(Self)
    }
}

impl FromStr for ServerKey {
    type Err = KeyTextError;

    /// The key with these secret bytes, as 64 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        bytes_of(text).map(Self::from_bytes)
    }
}

fn bytes_of(text: &str) -> Result<[u8; 32], KeyTextError> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return Err(KeyTextError);
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().try_fold(0, |value, digit| Ok(value << 4 | nibble(*digit)?))?;
    }
    Ok(bytes)
}

fn nibble(digit: u8) -> Result<u8, KeyTextError> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok()).ok_or(KeyTextError)
}

/// A text is not a key: it must be 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTextError;

impl fmt::Display for KeyTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key is 64 hexadecimal digits")
    }
}

impl std::error::Error for KeyTextError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_bytes() {
        let key = ServerKey::generate().unwrap();
        assert_eq!(ServerKey::from_bytes(key.to_bytes()).public(), key.public());
        assert_ne!(ServerKey::generate().unwrap().public(), key.public());
        assert!(!key.is_dev());
    }

    #[test]
    fn the_development_key_is_known_however_it_was_made() {
        assert!(ServerKey::dev().is_dev());
        assert!(ServerKey::from_bytes(ServerKey::dev().to_bytes()).is_dev());
    }

    #[test]
    fn a_public_key_comes_back_from_its_text_and_nothing_else_does() {
        let key = ServerKey::dev().public();
        let text = key.to_string();
        assert_eq!(text.parse(), Ok(key));
        assert_eq!(text.to_uppercase().parse(), Ok(key));
        let secret = "0123456789abcdefABCDEF".repeat(3);
        let first = secret[..64].parse::<ServerKey>().map(|key| key.to_bytes()[..3].to_vec());
        assert_eq!(first, Ok(vec![0x01, 0x23, 0x45]));
        for bad in [&text[1..], &format!("{text}0"), "", &text.replace(&text[..1], "g"), &"é".repeat(32)] {
            assert_eq!(bad.parse::<ServerPublicKey>(), Err(KeyTextError), "{bad}");
            assert_eq!(bad.parse::<ServerKey>().err(), Some(KeyTextError), "{bad}");
        }
    }

    #[test]
    fn a_secret_key_does_not_print_itself() {
        let text = format!("{:?}", ServerKey::from_bytes([0xAB; 32])).to_lowercase();
        assert!(!text.contains("abab") && !text.contains("171, 171"), "{text}");
    }
}
