//! Tokens. A game's backend seals them, so that a server admits only players that the backend knows (PROTOCOL 15, "Tokens").
//!
//! ```text
//! (key, -, -)    = HKDF3(backend's master key, "drumfire token key" || key id || server id)
//! (resume, -, -) = HKDF3(server's persistent secret, "drumfire resume key" || server id)
//! sealed         = nonce || XChaCha20-Poly1305(key, nonce, "drumfire token" || key id || protocol id, body)
//! ```
//!
//! The offsets and lengths of the fields of a body, in bytes:
//!
//! ```text
//!  0  1 kind          1 16 token id     17 16 player        33 32 psk             65   8 audience
//! 73  8 issued       81  8 expires      89  8 session ends  97  1 has placement   98   8 placement key
//! 106 2 user data's length             108  256 user data  364 108 zero
//! ```
//!
//! A server has its own keys and never the master key, so a captured server cannot issue tokens for other servers. The caller
//! provides the time, and checks whether a token was used before.

use std::fmt;
use std::time::Duration;

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};

use crate::hash::hkdf3;
use crate::secret::Secret;
use crate::suite::TAG_BYTES;

/// The length of a sealed token in bytes. All tokens have the same length.
pub const SEALED_TOKEN_BYTES: usize = NONCE_BYTES + BODY_BYTES + TAG_BYTES;
/// The maximum length of the user data of a token in bytes.
pub const USER_DATA_MAX_BYTES: usize = 256;
/// The longest lifetime of a token.
pub const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(600);
/// The tolerated difference between the clocks of a backend and a server.
pub const TOKEN_CLOCK_SKEW: Duration = Duration::from_secs(5);
/// The key id in a Hello without a token.
pub const NO_TOKEN_KEY_ID: u32 = 0;
/// The key id of resume tokens. No other key can have it.
pub const RESUME_KEY_ID: u32 = u32::MAX;

const NONCE_BYTES: usize = 24;
const BODY_BYTES: usize = 472;
/// The value of the kind field for [`TokenKind::Connect`].
const KIND_CONNECT: u8 = 1;
/// The value of the kind field for [`TokenKind::Resume`].
const KIND_RESUME: u8 = 2;
const SEAL_LABEL: &[u8] = b"drumfire token";
const KEY_LABEL: &[u8] = b"drumfire token key";
const RESUME_LABEL: &[u8] = b"drumfire resume key";

/// The id of a token, which is drawn at random. A token is used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub [u8; 16]);

/// The id of a player, which the game's backend chooses: a number, or a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlayerId(pub u128);

impl fmt::Display for PlayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The issuer and the purpose of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A backend issued the token for a new session.
    Connect,
    /// The server issued the token for a player that connects again.
    Resume,
}

/// The contents of a token. All times are since the Unix epoch, and whole seconds on the wire.
#[derive(Debug, PartialEq, Eq)]
pub struct Token {
    /// The issuer and the purpose of the token.
    pub kind: TokenKind,
    /// The id of the token.
    pub id: TokenId,
    /// The player that the token admits.
    pub player: PlayerId,
    /// The pre-shared key of client and server. The sealed token cannot be used without it.
    pub psk: Secret<32>,
    /// The number of the match or instance for which the token is valid. Backend and server agree on its meaning.
    pub audience: u64,
    /// The time of issue, as time since the Unix epoch in whole seconds.
    pub issued_at: Duration,
    /// The time at which the token expires, as time since the Unix epoch. At most [`TOKEN_LIFETIME_MAX`] after its issue.
    pub expires_at: Duration,
    /// The time at which the session must end, or `None` if it has no end.
    pub session_ends_at: Option<Duration>,
    /// The key by which the server chooses a worker for the player, or `None` if the token has no such key.
    pub placement_key: Option<u64>,
    /// Data of the application, at most [`USER_DATA_MAX_BYTES`] long.
    pub user_data: Box<[u8]>,
}

impl Token {
    /// Checks that the token is valid at the time `now`, since the Unix epoch, and for this audience.
    ///
    /// # Errors
    /// [`TokenError::Foreign`] for another audience, [`TokenError::Expired`] if `now` is more than [`TOKEN_CLOCK_SKEW`] before the
    /// issue or after the expiry.
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

/// The key of a game's backend, from which the keys of all servers are derived. Servers never have it.
#[derive(Debug)]
pub struct TokenMasterKey(Secret<32>);

impl TokenMasterKey {
    /// Creates the key from 32 bytes of a secure source.
    #[must_use]
    pub const fn new(secret: Secret<32>) -> Self {
        Self(secret)
    }

    /// Returns the bytes, for a key file.
    #[must_use]
    pub const fn secret(&self) -> &Secret<32> {
        &self.0
    }

    /// Returns the key of the server with this id, which may have any length. The `key_id` increases with each key rotation.
    ///
    /// Returns `None` for [`NO_TOKEN_KEY_ID`] and [`RESUME_KEY_ID`], which are reserved.
    #[must_use]
    pub fn token_key(&self, key_id: u32, server_id: &[u8]) -> Option<TokenKey> {
        let [secret, ..] = hkdf3(&self.0, &[KEY_LABEL, &key_id.to_be_bytes(), server_id]);
        TokenKey::new(key_id, secret)
    }
}

/// A key that seals the tokens of one server.
#[derive(Debug)]
pub struct TokenKey {
    id: u32,
    secret: Secret<32>,
}

impl TokenKey {
    /// Creates the key with this id and these bytes. Returns `None` for [`NO_TOKEN_KEY_ID`] and [`RESUME_KEY_ID`].
    #[must_use]
    pub fn new(id: u32, secret: Secret<32>) -> Option<Self> {
        (id != NO_TOKEN_KEY_ID && id != RESUME_KEY_ID).then_some(Self { id, secret })
    }

    /// Returns the key of the resume tokens that a server issues.
    #[must_use]
    pub fn resume(persistent: &Secret<32>, server_id: &[u8]) -> Self {
        let [secret, ..] = hkdf3(persistent, &[RESUME_LABEL, server_id]);
        Self { id: RESUME_KEY_ID, secret }
    }

    /// Returns the key id, which a Hello with a token carries.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Returns the bytes, for a key file.
    #[must_use]
    pub const fn secret(&self) -> &Secret<32> {
        &self.secret
    }

    /// Returns a copy, for another worker.
    #[must_use]
    pub const fn duplicate(&self) -> Self {
        Self { id: self.id, secret: self.secret.duplicate() }
    }

    /// Seals a token for servers with this protocol id. `nonce` is 24 random bytes.
    ///
    /// # Errors
    /// [`TokenError::Malformed`] if the user data is longer than [`USER_DATA_MAX_BYTES`], or the lifetime is zero, negative, or
    /// longer than [`TOKEN_LIFETIME_MAX`].
    pub fn seal(
        &self,
        token: &Token,
        protocol_id: u64,
        nonce: [u8; NONCE_BYTES],
    ) -> Result<[u8; SEALED_TOKEN_BYTES], TokenError> {
        let mut body = Secret::zeroed();
        encode_body(token, body.expose_mut()).ok_or(TokenError::Malformed)?;
        let tag = self
            .cipher()
            .encrypt_in_place_detached(&nonce.into(), &self.associated_data(protocol_id), body.expose_mut())
            .map_err(|_| TokenError::Malformed)?;
        let mut sealed = [0; SEALED_TOKEN_BYTES];
        let parts = nonce.iter().chain(body.expose()).chain(&tag);
        sealed.iter_mut().zip(parts).for_each(|(byte, part)| *byte = *part);
        Ok(sealed)
    }

    /// Seals a token, and returns it with the pre-shared key that the player needs to use it.
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
    /// [`TokenError::Foreign`] if the token was sealed with another key or for another protocol id, or was changed.
    /// [`TokenError::Malformed`] if the contents are invalid.
    pub fn open(&self, sealed: &[u8; SEALED_TOKEN_BYTES], protocol_id: u64) -> Result<Token, TokenError> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(TokenError::Malformed)?;
        let (sealed_body, tag) = rest.split_first_chunk::<BODY_BYTES>().ok_or(TokenError::Malformed)?;
        let mut body = Secret::new(*sealed_body);
        let tag: &[u8; TAG_BYTES] = tag.try_into().map_err(|_| TokenError::Malformed)?;
        self.cipher()
            .decrypt_in_place_detached(
                nonce.into(),
                &self.associated_data(protocol_id),
                body.expose_mut(),
                tag.into(),
            )
            .map_err(|_| TokenError::Foreign)?;
        decode_body(body.expose()).ok_or(TokenError::Malformed)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.secret.expose().into())
    }

    /// Returns the associated data of a sealed token.
    fn associated_data(&self, protocol_id: u64) -> Vec<u8> {
        [SEAL_LABEL, &self.id.to_be_bytes(), &protocol_id.to_be_bytes()].concat()
    }
}

/// A token as the player has it, with which a client connects.
#[derive(Debug, PartialEq, Eq)]
pub struct IssuedToken {
    /// The id of the key that sealed the token.
    pub key_id: u32,
    /// The sealed token, which only the server can open.
    pub sealed: [u8; SEALED_TOKEN_BYTES],
    /// The pre-shared key of player and server. It must reach the player over a confidential channel.
    pub psk: Secret<32>,
}

impl IssuedToken {
    /// Returns a copy. `Clone` is not implemented, so that each copy of the secret is visible in the code.
    #[must_use]
    pub const fn duplicate(&self) -> Self {
        Self { key_id: self.key_id, sealed: self.sealed, psk: self.psk.duplicate() }
    }
}

/// The reason why a token is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenError {
    /// The token is for another server, protocol id, or audience, or was not sealed by the server's backend.
    Foreign,
    /// The token has expired, or its time of issue is in the future.
    Expired,
    /// The contents of the token are invalid.
    Malformed,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => {
                "the token is for another server: issue it with this server's token key, protocol id and audience"
            }
            Self::Expired => {
                "the token has expired or is not valid yet: get a new one, or set the clocks of backend and server"
            }
            Self::Malformed => "the token is malformed: its lifetime must be 1 s to 10 min, and its user data at most 256 bytes",
        })
    }
}

impl std::error::Error for TokenError {}

/// Encodes the contents of a token. Returns `None` if they are invalid.
fn encode_body(token: &Token, body: &mut [u8; BODY_BYTES]) -> Option<()> {
    let user_data_bytes = u16::try_from(token.user_data.len()).ok()?;
    if !has_valid_bounds(token) {
        return None;
    }
    let mut rest = &mut body[..];
    let kind = match token.kind {
        TokenKind::Connect => KIND_CONNECT,
        TokenKind::Resume => KIND_RESUME,
    };
    let session_ends = token.session_ends_at.map_or(0, |end| end.as_secs());
    let has_placement = u8::from(token.placement_key.is_some());
    let fields: [&[u8]; 12] = [
        &[kind],
        &token.id.0,
        &token.player.0.to_be_bytes(),
        token.psk.expose(),
        &token.audience.to_be_bytes(),
        &token.issued_at.as_secs().to_be_bytes(),
        &token.expires_at.as_secs().to_be_bytes(),
        &session_ends.to_be_bytes(),
        &[has_placement],
        &token.placement_key.unwrap_or(0).to_be_bytes(),
        &user_data_bytes.to_be_bytes(),
        &token.user_data,
    ];
    for field in fields {
        let (target, after) = rest.split_at_mut_checked(field.len())?;
        target.copy_from_slice(field);
        rest = after;
    }
    rest.fill(0);
    Some(())
}

/// Decodes the contents of a token. Returns `None` if they are invalid.
fn decode_body(body: &[u8; BODY_BYTES]) -> Option<Token> {
    let mut fields = FieldReader(body);
    let kind = match fields.take::<1>()? {
        [KIND_CONNECT] => TokenKind::Connect,
        [KIND_RESUME] => TokenKind::Resume,
        _ => return None,
    };
    let id = TokenId(fields.take()?);
    let player = PlayerId(u128::from_be_bytes(fields.take()?));
    let psk = Secret::new(fields.take()?);
    let audience = u64::from_be_bytes(fields.take()?);
    let issued_at = fields.time()?;
    let expires_at = fields.time()?;
    let session_ends_at = Some(fields.time()?).filter(|end| !end.is_zero());
    let has_placement = fields.take::<1>()?;
    let key = u64::from_be_bytes(fields.take()?);
    let placement_key = match has_placement {
        [0] => None,
        [1] => Some(key),
        _ => return None,
    };
    let user_data_bytes = u16::from_be_bytes(fields.take()?);
    let user_data = fields.0.get(..usize::from(user_data_bytes))?.into();
    let token = Token {
        kind,
        id,
        player,
        psk,
        audience,
        issued_at,
        expires_at,
        session_ends_at,
        placement_key,
        user_data,
    };
    has_valid_bounds(&token).then_some(token)
}

/// Returns whether the lifetime and the length of the user data are in range.
fn has_valid_bounds(token: &Token) -> bool {
    let lifetime_seconds = token.expires_at.as_secs().checked_sub(token.issued_at.as_secs());
    let is_life_in_range =
        lifetime_seconds.is_some_and(|seconds| (1..=TOKEN_LIFETIME_MAX.as_secs()).contains(&seconds));
    is_life_in_range && token.user_data.len() <= USER_DATA_MAX_BYTES
}

/// A cursor over the fields of a body.
struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn time(&mut self) -> Option<Duration> {
        Some(Duration::from_secs(u64::from_be_bytes(self.take()?)))
    }
}

#[cfg(test)]
mod tests;
