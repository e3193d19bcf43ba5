//! Where a client connects to.

use std::net::SocketAddr;

use drumfire_proto::{IssuedToken, ServerIdentity};

use crate::base::error::Error;
use crate::config::client::ClientConfig;
use crate::credentials::connect_token::ConnectToken;
use crate::credentials::keys::ServerPublicKey;

/// The server that a client connects to, and the token that it shows there.
pub(crate) struct ConnectTarget<'a> {
    pub(crate) server: SocketAddr,
    pub(crate) key: ServerPublicKey,
    pub(crate) token: Option<&'a IssuedToken>,
}

impl<'a> ConnectTarget<'a> {
    /// Returns the target of a token, or an error if the token is for another protocol id.
    pub(crate) fn of_token(token: &'a ConnectToken, config: &ClientConfig) -> Result<Self, Error> {
        if token.protocol_id() != config.protocol_id {
            let problem = "must be the token's: backend, server and client of one build have the same";
            return Err(Error::setting("protocol_id", problem));
        }
        Ok(Self::of_any_token(token))
    }

    /// Returns the target of a token. The caller has checked the protocol id.
    pub(crate) fn of_any_token(token: &'a ConnectToken) -> Self {
        Self { server: token.address(), key: token.server(), token: Some(token.issued()) }
    }

    pub(crate) fn identity(&self) -> ServerIdentity {
        ServerIdentity { public_key: self.key.to_bytes(), key_id: 0 }
    }
}
