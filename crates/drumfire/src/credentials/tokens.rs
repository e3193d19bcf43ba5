//! Connect tokens: a game's backend issues them, a client presents them, and a server accepts them.
//!
//! A backend keeps the [`TokenMasterKey`] and derives a [`TokenKey`] for each server. When a player may join, the backend issues a
//! [`ConnectToken`] and sends it to the player over its own encrypted connection, such as HTTPS. The player connects with it. A
//! server has only its own `TokenKey`, so an attacker who captures a server cannot issue tokens for another one.
//!
//! ```
//! # use drumfire::*;
//! # use drumfire::tokens::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (server_key, master) = (ServerKey::generate()?, TokenMasterKey::generate()?);
//! let public = server_key.public();
//!
//! // The server reads its keys from a file or a secret store.
//! let access = Access::Token(TokenAccess::new(master.token_key(1, "eu-1")?));
//! let mut server = Server::bind(ServerConfig::new("127.0.0.1:0".parse()?, server_key, access))?;
//!
//! // The backend issues a token to player 42.
//! let request = TokenRequest::new(PlayerId(42), server.local_addr(), public).user_data(b"warrior");
//! let token = request.issue(&master.token_key(1, "eu-1")?)?.to_text();
//!
//! // The player got the token over HTTPS.
//! let mut client = Client::new(ClientConfig::default())?;
//! client.connect(&token.parse()?)?;
//! let connected = loop {
//!     client.poll(std::time::Duration::from_millis(1));
//!     server.poll(std::time::Duration::ZERO);
//!     if let Some(event) = server.next_event() { break event }
//! };
//! let Event::Connected { info, .. } = connected else { panic!("{connected:?}") };
//! assert_eq!((info.player, &info.user_data[..]), (Some(PlayerId(42)), &b"warrior"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! The game decides which players may join and how tokens reach them.

use std::fmt;
use std::str::FromStr;

use drumfire_proto::{Secret, TokenKey as CoreKey, TokenMasterKey as CoreMaster};
use zeroize::Zeroizing;

use super::key_text::{self, KeyKind, KeyTextError};
use crate::base::entropy;
use crate::base::error::Error;

pub use super::connect_token::ConnectToken;
pub use super::token_request::{IssueError, TokenRequest};

/// The secret of a game's backend, from which it derives the token key of each server. Servers never receive it.
#[derive(Debug)]
pub struct TokenMasterKey(CoreMaster);

impl TokenMasterKey {
    /// Generates a key. Store [`TokenMasterKey::to_text`].
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`] if the system has no random bytes.
    pub fn generate() -> Result<Self, Error> {
        Ok(Self(CoreMaster::new(entropy::secret()?)))
    }

    /// Returns the key with these secret bytes, for backends with their own format for secrets and for tests.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(CoreMaster::new(Secret::new(bytes)))
    }

    /// Returns the key as text, for a file that only the backend can read. `str::parse` reads it back.
    #[must_use]
    pub fn to_text(&self) -> String {
        key_text::encode(KeyKind::Master, self.0.secret().expose())
    }

    /// Derives the token key of one server. `server` is any name that the backend uses for the server. To rotate keys, increase `key_id`: a
    /// server accepts several keys at the same time.
    ///
    /// # Errors
    ///
    /// [`KeyIdError`] for the ids 0 and 4,294,967,295, which are reserved.
    pub fn token_key(&self, key_id: u32, server: &str) -> Result<TokenKey, KeyIdError> {
        self.0.token_key(key_id, server.as_bytes()).map(TokenKey).ok_or(KeyIdError)
    }
}

impl FromStr for TokenMasterKey {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        key_text::decode_array(KeyKind::Master, text).map(|bytes| Self(CoreMaster::new(Secret::new(bytes))))
    }
}

/// The secret that seals the tokens of one server.
#[derive(Debug)]
pub struct TokenKey(CoreKey);

impl TokenKey {
    /// Returns the number that distinguishes this key from the other keys of the same server.
    #[must_use]
    pub const fn key_id(&self) -> u32 {
        self.0.id()
    }

    /// Returns the key as text, for a file that only the server can read. `str::parse` reads it back.
    #[must_use]
    pub fn to_text(&self) -> String {
        let bytes = Zeroizing::new([&self.0.id().to_be_bytes()[..], self.0.secret().expose()].concat());
        key_text::encode(KeyKind::TokenKey, &bytes)
    }

    pub(crate) const fn core(&self) -> &CoreKey {
        &self.0
    }
}

impl Clone for TokenKey {
    fn clone(&self) -> Self {
        Self(self.0.duplicate())
    }
}

impl FromStr for TokenKey {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let damaged = KeyTextError::damaged(KeyKind::TokenKey);
        let bytes = key_text::decode(KeyKind::TokenKey, text)?;
        let (id, secret) = bytes.split_first_chunk().ok_or(damaged)?;
        let secret: [u8; 32] = secret.try_into().map_err(|_| damaged)?;
        CoreKey::new(u32::from_be_bytes(*id), Secret::new(secret)).map(Self).ok_or(damaged)
    }
}

/// The tokens that a server accepts.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "crate::config::text::secrets::TokenForm"))]
#[non_exhaustive]
pub struct TokenAccess {
    /// The keys that seal the tokens: one, or up to eight during a rotation. Each has its own id.
    #[cfg_attr(feature = "serde", serde(skip_serializing))]
    pub keys: Vec<TokenKey>,
    /// The match or instance that the tokens must name. The default is 0.
    #[cfg_attr(feature = "serde", serde(with = "crate::config::text::number"))]
    pub audience: u64,
}

impl TokenAccess {
    /// Creates an access rule for tokens that this key seals.
    #[must_use]
    pub fn new(key: TokenKey) -> Self {
        Self { keys: vec![key], audience: 0 }
    }

    /// Adds a key, such as the next or the previous key of a rotation.
    #[must_use]
    pub fn and_key(mut self, key: TokenKey) -> Self {
        self.keys.push(key);
        self
    }

    /// Sets the match or instance that the tokens must name, for several servers with the same key. The backend sets the same number in
    /// [`TokenRequest::audience`](crate::tokens::TokenRequest::audience).
    #[must_use]
    pub fn audience(mut self, audience: u64) -> Self {
        self.audience = audience;
        self
    }
}

/// The key id is reserved. Valid ids are 1 to 4,294,967,294.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyIdError;

impl fmt::Display for KeyIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key id must be 1 to 4294967294")
    }
}

impl std::error::Error for KeyIdError {}

drumfire_proto::debug_with_display!(KeyIdError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_keys_are_read_from_their_text() {
        let master = TokenMasterKey::generate().unwrap();
        let again: TokenMasterKey = master.to_text().parse().unwrap();
        let key = master.token_key(7, "eu-1").unwrap();
        assert_eq!(again.token_key(7, "eu-1").unwrap().to_text(), key.to_text());
        let parsed: TokenKey = key.to_text().parse().unwrap();
        assert_eq!((parsed.key_id(), parsed.to_text()), (7, key.to_text()));
        assert!(key.to_text().parse::<TokenMasterKey>().is_err());
        assert_ne!(master.token_key(7, "eu-2").unwrap().to_text(), key.to_text());
    }

    #[test]
    fn reserved_key_ids_are_refused() {
        let master = TokenMasterKey::generate().unwrap();
        assert_eq!(master.token_key(0, "a").err(), Some(KeyIdError));
        assert_eq!(master.token_key(u32::MAX, "a").err(), Some(KeyIdError));
        let zero = key_text::encode(KeyKind::TokenKey, &[0; 36]);
        assert!(zero.parse::<TokenKey>().is_err());
    }

    #[test]
    fn secrets_do_not_print_themselves() {
        let master = TokenMasterKey(CoreMaster::new(Secret::new([0xab; 32])));
        let text = format!("{master:?} {:?}", master.token_key(1, "a").unwrap());
        assert!(!text.contains("171") && !text.to_lowercase().contains("abab"), "{text}");
    }
}
