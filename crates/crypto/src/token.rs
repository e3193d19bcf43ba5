//! Tokens, which a game's backend seals for a server to admit only the players that it knows (PROTOCOL 15, "Tokens").
//!
//! ```text
//! (key, -, -)    = HKDF3(backend's master key, "drumfire token key" || key id || server id)
//! (resume, -, -) = HKDF3(server's persistent secret, "drumfire resume key" || server id)
//! sealed         = nonce || XChaCha20-Poly1305(key, nonce, "drumfire token" || key id || protocol id, body)
//! ```
//!
//! A server holds its own keys and never the master key: one that is captured cannot admit players to another.
//! The clock, and whether a token was used before, are the caller's business.

mod body;

use std::fmt;
use std::time::Duration;

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};

use crate::hash::hkdf3;
use crate::secret::Secret;
use crate::suite::TAG_BYTES;

/// Length of a sealed token in bytes, whatever is in it.
pub const SEALED_TOKEN_BYTES: usize = NONCE_BYTES + BODY_BYTES + TAG_BYTES;
/// User data a token carries at most, in bytes.
pub const USER_DATA_MAX_BYTES: usize = 256;
/// The longest life of a token.
pub const TOKEN_LIFE_MAX: Duration = Duration::from_secs(600);
/// How far the clocks of a backend and a server may be apart.
pub const TOKEN_CLOCK_SKEW: Duration = Duration::from_secs(5);
/// The key id of a Hello without a token.
pub const NO_TOKEN_KEY_ID: u32 = 0;
/// The key id of resume tokens, which no other key may have.
pub const RESUME_KEY_ID: u32 = u32::MAX;

const NONCE_BYTES: usize = 24;
const BODY_BYTES: usize = 472;
const SEAL_LABEL: &[u8] = b"drumfire token";
const KEY_LABEL: &[u8] = b"drumfire token key";
const RESUME_LABEL: &[u8] = b"drumfire resume key";

/// Names a token; drawn at random, and used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub [u8; 16]);

/// Names a player, as the game's backend does: a number, or a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlayerId(pub u128);

impl fmt::Display for PlayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who made a token, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A backend, for a new session.
    Connect,
    /// The server itself, for a player who comes back.
    Resume,
}

/// What a token says. All times are since 1970 and whole seconds on the wire.
#[derive(Debug, PartialEq, Eq)]
pub struct Token {
    /// Who made it.
    pub kind: TokenKind,
    /// Its own name.
    pub id: TokenId,
    /// Whom it admits.
    pub player: PlayerId,
    /// What client and server share: who saw the sealed token alone cannot use it.
    pub psk: Secret<32>,
    /// For which match or instance it is, as backend and server agreed.
    pub audience: u64,
    /// When it was issued.
    pub issued_at: Duration,
    /// When it stops to be good; [`TOKEN_LIFE_MAX`] after its issue at most.
    pub expires_at: Duration,
    /// When the session it opens must end, if ever.
    pub session_ends_at: Option<Duration>,
    /// By what the server places the player, if by anything.
    pub placement_key: Option<u64>,
    /// The application's own, [`USER_DATA_MAX_BYTES`] at most.
    pub user_data: Box<[u8]>,
}

impl Token {
    /// Whether it is good at this time (since 1970) and for this audience.
    ///
    /// # Errors
    /// Why it is not, by name. Clocks may be [`TOKEN_CLOCK_SKEW`] apart.
    pub fn check(&self, now: Duration, audience: u64) -> Result<(), TokenError> {
        let is_early = now.saturating_add(TOKEN_CLOCK_SKEW) < self.issued_at;
        if self.audience != audience {
            Err(TokenError::Foreign)
        } else if now > self.expires_at.saturating_add(TOKEN_CLOCK_SKEW) || is_early {
            Err(TokenError::Expired)
        } else {
            Ok(())
        }
    }
}

/// The key of a game's backend, from which the key of every server is derived. Servers never see it.
#[derive(Debug)]
pub struct TokenMasterKey(Secret<32>);

impl TokenMasterKey {
    /// The key with these bytes, 32 from a secure source.
    #[must_use]
    pub const fn new(secret: Secret<32>) -> Self {
        Self(secret)
    }

    /// The bytes, for a key file.
    #[must_use]
    pub const fn secret(&self) -> &Secret<32> {
        &self.0
    }

    /// The key of the server with this id (any length). A `key_id` counts up when keys are rotated.
    ///
    /// `None` for [`NO_TOKEN_KEY_ID`] and [`RESUME_KEY_ID`], which are taken.
    #[must_use]
    pub fn token_key(&self, key_id: u32, server_id: &[u8]) -> Option<TokenKey> {
        let [secret, ..] = hkdf3(&self.0, &[KEY_LABEL, &key_id.to_be_bytes(), server_id]);
        TokenKey::new(key_id, secret)
    }
}

/// The key that seals the tokens of one server.
#[derive(Debug)]
pub struct TokenKey {
    id: u32,
    secret: Secret<32>,
}

impl TokenKey {
    /// The key with this id and these bytes; `None` for [`NO_TOKEN_KEY_ID`] and [`RESUME_KEY_ID`].
    #[must_use]
    pub fn new(id: u32, secret: Secret<32>) -> Option<Self> {
        (id != NO_TOKEN_KEY_ID && id != RESUME_KEY_ID).then_some(Self { id, secret })
    }

    /// The key of a server's own resume tokens.
    #[must_use]
    pub fn resume(persistent: &Secret<32>, server_id: &[u8]) -> Self {
        let [secret, ..] = hkdf3(persistent, &[RESUME_LABEL, server_id]);
        Self { id: RESUME_KEY_ID, secret }
    }

    /// The number by which Hellos name it.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// The bytes, for a key file.
    #[must_use]
    pub const fn secret(&self) -> &Secret<32> {
        &self.secret
    }

    /// Another copy, for one more worker.
    #[must_use]
    pub const fn duplicate(&self) -> Self {
        Self { id: self.id, secret: self.secret.duplicate() }
    }

    /// Seals a token for servers with this protocol id. `nonce` is 24 random bytes.
    ///
    /// # Errors
    /// [`TokenError::Malformed`] for a token that cannot be: more user data than [`USER_DATA_MAX_BYTES`], or a life
    /// that is not above zero and at most [`TOKEN_LIFE_MAX`].
    pub fn seal(
        &self,
        token: &Token,
        protocol_id: u64,
        nonce: [u8; NONCE_BYTES],
    ) -> Result<[u8; SEALED_TOKEN_BYTES], TokenError> {
        let mut body = Secret::zeroed();
        body::encode(token, body.expose_mut()).ok_or(TokenError::Malformed)?;
        let tag = self
            .cipher()
            .encrypt_in_place_detached(&nonce.into(), &self.associated(protocol_id), body.expose_mut())
            .map_err(|_| TokenError::Malformed)?;
        let mut sealed = [0; SEALED_TOKEN_BYTES];
        let parts = nonce.iter().chain(body.expose()).chain(&tag);
        sealed.iter_mut().zip(parts).for_each(|(byte, part)| *byte = *part);
        Ok(sealed)
    }

    /// Seals a token and gives it as its player holds it.
    ///
    /// # Errors
    /// See [`TokenKey::seal`].
    pub fn issue(
        &self,
        token: &Token,
        protocol_id: u64,
        nonce: [u8; NONCE_BYTES],
    ) -> Result<IssuedToken, TokenError> {
        let sealed = self.seal(token, protocol_id, nonce)?;
        Ok(IssuedToken { key_id: self.id, sealed, psk: token.psk.duplicate() })
    }

    /// Opens a sealed token.
    ///
    /// # Errors
    /// [`TokenError::Foreign`] when it was sealed with another key or for another protocol id, or was changed;
    /// [`TokenError::Malformed`] when what is in it cannot be.
    pub fn open(&self, sealed: &[u8; SEALED_TOKEN_BYTES], protocol_id: u64) -> Result<Token, TokenError> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(TokenError::Malformed)?;
        let (sealed_body, tag) = rest.split_first_chunk::<BODY_BYTES>().ok_or(TokenError::Malformed)?;
        let mut body = Secret::new(*sealed_body);
        let tag: &[u8; TAG_BYTES] = tag.try_into().map_err(|_| TokenError::Malformed)?;
        self.cipher()
            .decrypt_in_place_detached(
                nonce.into(),
                &self.associated(protocol_id),
                body.expose_mut(),
                tag.into(),
            )
            .map_err(|_| TokenError::Foreign)?;
        body::decode(body.expose()).ok_or(TokenError::Malformed)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.secret.expose().into())
    }

    fn associated(&self, protocol_id: u64) -> Vec<u8> {
        [SEAL_LABEL, &self.id.to_be_bytes(), &protocol_id.to_be_bytes()].concat()
    }
}

/// A sealed token as its player holds it: what a client connects with.
#[derive(Debug, PartialEq, Eq)]
pub struct IssuedToken {
    /// Which key sealed it.
    pub key_id: u32,
    /// The token, which only the server can read.
    pub sealed: [u8; SEALED_TOKEN_BYTES],
    /// What the player shares with the server. It must reach the player on a way that nobody can read.
    pub psk: Secret<32>,
}

impl IssuedToken {
    /// Another copy.
    #[must_use]
    pub const fn duplicate(&self) -> Self {
        Self { key_id: self.key_id, sealed: self.sealed, psk: self.psk.duplicate() }
    }
}

/// Why a token is not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenError {
    /// It was not made for this server, or not by its backend.
    Foreign,
    /// Its time is over, or has not come.
    Expired,
    /// What it says cannot be.
    Malformed,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => {
                "the token is for another server: issue it with this server's token key, protocol id and audience"
            }
            Self::Expired => {
                "the token's time is over or has not come: get a new one, or set the clocks of backend and server"
            }
            Self::Malformed => "the token cannot be: its life is 1 s to 10 min, its user data at most 256 bytes",
        })
    }
}

impl std::error::Error for TokenError {}

#[cfg(test)]
mod tests;
