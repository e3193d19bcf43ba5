//! The request of a backend for a connect token.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{PlayerId, Secret, Token, TokenError, TokenId, TokenKind};

use super::connect_token::ConnectToken;
use super::keys::ServerPublicKey;
use super::tokens::TokenKey;
use crate::base::address::check_server;
use crate::base::clock;
use crate::base::entropy::{self, EntropyError};
use crate::base::setters::setters;

/// The default lifetime of a token.
const LIFETIME: Duration = Duration::from_secs(60);

/// The contents of a [`ConnectToken`]: the player, the server, and the lifetime.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TokenRequest {
    /// The player. A player has one session at a time on a server: a new session replaces the old one.
    pub player: PlayerId,
    /// The address and UDP port at which the player reaches the server. It may differ from the address that the server binds.
    pub address: SocketAddr,
    /// The public key of the server.
    pub server: ServerPublicKey,
    /// The number of the game and its build. Server and client must have the same one. The default is 0.
    pub protocol_id: u64,
    /// The number of the match or instance for which the token is valid. The default is 0.
    pub audience: u64,
    /// The lifetime of the token, 1 s to 10 min. The default is 60 s.
    pub lifetime: Duration,
    /// The maximum duration of the session, from the time at which the token is issued. The default, `None`, is no limit.
    pub session: Option<Duration>,
    /// The placement key. Players with the same key share a worker. The default, `None`, selects the least loaded worker.
    pub placement_key: Option<u64>,
    /// Data about the player for the server, at most 256 bytes.
    pub user_data: Vec<u8>,
}

impl TokenRequest {
    /// Creates a request for a token for this player on this server.
    #[must_use]
    pub fn new(player: PlayerId, address: SocketAddr, server: ServerPublicKey) -> Self {
        Self {
            player,
            address,
            server,
            protocol_id: 0,
            audience: 0,
            lifetime: LIFETIME,
            session: None,
            placement_key: None,
            user_data: Vec::new(),
        }
    }

    /// Issues the token, sealed with a key that the server has.
    ///
    /// # Errors
    ///
    /// [`IssueError`] names the field that is out of range.
    pub fn issue(&self, key: &TokenKey) -> Result<ConnectToken, IssueError> {
        self.issue_at(key, clock::wall())
    }

    /// Works like [`TokenRequest::issue`] with `now`, the time since 1970, instead of the system's clock. It is for tests in virtual
    /// time.
    ///
    /// # Errors
    ///
    /// [`IssueError`] names the field that is out of range.
    pub fn issue_at(&self, key: &TokenKey, now: Duration) -> Result<ConnectToken, IssueError> {
        self.issue_with(
            key,
            now,
            RandomTokenFields { id: entropy::bytes()?, psk: entropy::secret()?, nonce: entropy::bytes()? },
        )
    }

    /// Works like [`TokenRequest::issue_at`] with given random values.
    pub(crate) fn issue_with(
        &self,
        key: &TokenKey,
        now: Duration,
        random_fields: RandomTokenFields,
    ) -> Result<ConnectToken, IssueError> {
        if check_server(self.address).is_err() {
            return Err(IssueError::Address { address: self.address });
        }
        let issued_at = Duration::from_secs(now.as_secs());
        let expires_at = issued_at.saturating_add(self.lifetime);
        let token = Token {
            kind: TokenKind::Connect,
            id: TokenId(random_fields.id),
            player: self.player,
            psk: random_fields.psk,
            audience: self.audience,
            issued_at,
            expires_at,
            session_ends_at: self.session.map(|session| issued_at.saturating_add(session)),
            placement_key: self.placement_key,
            user_data: self.user_data.as_slice().into(),
        };
        let issued = key.core().issue(&token, self.protocol_id, random_fields.nonce)?;
        let (address, server) = (self.address, self.server);
        Ok(ConnectToken { address, server, protocol_id: self.protocol_id, expires_at, issued })
    }
}

setters! {
    TokenRequest:
    /// Sets the protocol id: the game and its build.
    protocol_id(protocol_id: u64) = protocol_id;

    /// Sets the match or instance. The server has the same number in [`TokenAccess::audience`](crate::tokens::TokenAccess::audience).
    audience(audience: u64) = audience;

    /// Sets the lifetime of the token, 1 s to 10 min.
    lifetime(lifetime: Duration) = lifetime;

    /// Sets the maximum duration of the session, from the time at which the token is issued.
    session(session: Duration) = Some(session);

    /// Places the player on the worker of all players with this key.
    placement_key(key: u64) = Some(key);

    /// Sets the data about the player for the server, at most 256 bytes.
    user_data(user_data: &[u8]) = user_data.to_vec();
}

/// The random values of a token.
pub(crate) struct RandomTokenFields {
    pub(crate) id: [u8; 16],
    pub(crate) psk: Secret<32>,
    pub(crate) nonce: [u8; 24],
}

/// The reason why a token was not issued.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum IssueError {
    /// The lifetime is not 1 s to 10 min, or the user data is longer than 256 bytes.
    Bounds,
    /// No player can connect to this address.
    Address {
        /// The address of the request.
        address: SocketAddr,
    },
    /// The system has no random bytes.
    Entropy,
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bounds => f.write_str("lifetime: 1 s to 10 min; user_data: up to 256 bytes"),
            Self::Address { address } => write!(
                f,
                "address: no player can connect to {address}: name the address and port that players reach, not those that the server binds"
            ),
            Self::Entropy => f.write_str("the system gives no randomness"),
        }
    }
}

impl std::error::Error for IssueError {}

drumfire_proto::debug_with_display!(IssueError);

impl From<EntropyError> for IssueError {
    fn from(_: EntropyError) -> Self {
        Self::Entropy
    }
}

impl From<TokenError> for IssueError {
    /// Returns [`IssueError::Bounds`], because sealing fails only for a field that is out of bounds.
    fn from(_: TokenError) -> Self {
        Self::Bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::tokens::TokenMasterKey;

    #[test]
    fn requests_out_of_bounds_are_refused_by_name() {
        let key = TokenMasterKey::generate().unwrap().token_key(1, "a").unwrap();
        let address: SocketAddr = "192.0.2.1:7777".parse().unwrap();
        let request = || TokenRequest::new(PlayerId(1), address, ServerPublicKey::from_bytes([1; 32]));
        assert!(request().issue(&key).is_ok());
        assert!(matches!(request().lifetime(Duration::from_secs(601)).issue(&key), Err(IssueError::Bounds)));
        assert!(matches!(request().lifetime(Duration::ZERO).issue(&key), Err(IssueError::Bounds)));
        assert!(matches!(request().user_data(&[0; 257]).issue(&key), Err(IssueError::Bounds)));
        assert!(request().user_data(&[0; 256]).lifetime(Duration::from_secs(600)).issue(&key).is_ok());
    }

    #[test]
    fn tokens_name_an_address_that_players_can_reach() {
        let key = TokenMasterKey::generate().unwrap().token_key(1, "a").unwrap();
        for bad in ["0.0.0.0:7777", "[::]:7777", "[::ffff:0.0.0.0]:7777", "192.0.2.1:0", "224.0.0.1:7777"] {
            let address: SocketAddr = bad.parse().unwrap();
            let request = TokenRequest::new(PlayerId(1), address, ServerPublicKey::from_bytes([1; 32]));
            let error = request.issue(&key).expect_err(bad);
            assert!(error.to_string().contains(&format!("no player can connect to {address}")), "{error}");
        }
    }
}
