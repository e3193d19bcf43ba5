//! The server that a client connects to, and the token and the hello that it presents there.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{ConnectRequest, ServerIdentity};

use super::HELLO_MAX_BYTES;
use crate::base::address::{check_server, is_loopback};
use crate::base::error::Error;
use crate::credentials::connect_token::ConnectToken;
use crate::credentials::keys::ServerPublicKey;

/// The server that a client connects to, the token that it presents there, and a hello for the application of the server.
///
/// An address with the key of the server, and a token, which contains both, convert into options:
///
/// ```
/// # use std::time::Duration;
/// # use drumfire::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let mut server = Server::bind(config)?;
/// let options = ConnectOptions::new(server.local_addr(), ServerKey::dev().public()).hello("zed");
/// let mut client = Client::new(ClientConfig::default())?;
/// client.connect(options)?;
/// let info = loop {
///     client.poll(Duration::from_millis(1));
///     server.poll(Duration::ZERO);
///     if let Some(Event::Connected { info, .. }) = server.next_event() { break info }
/// };
/// assert_eq!(info.hello, "zed");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ConnectOptions {
    pub(crate) server: SocketAddr,
    pub(crate) key: ServerPublicKey,
    pub(crate) token: Option<ConnectToken>,
    pub(crate) hello: Bytes,
}

impl ConnectOptions {
    /// Creates options for the server at this address that has this key, without a token.
    #[must_use]
    pub const fn new(server: SocketAddr, key: ServerPublicKey) -> Self {
        Self { server, key, token: None, hello: Bytes::new() }
    }

    /// Creates options for the server and the player of a token.
    #[must_use]
    pub fn with_token(token: ConnectToken) -> Self {
        let (server, key) = (token.address(), token.server());
        Self { token: Some(token), ..Self::new(server, key) }
    }

    /// Sets the hello, such as a user name, at most 256 bytes. The application of the server receives it with
    /// [`Event::Connected`](crate::Event::Connected), after every reconnect too. The server cannot verify the hello. To reject a client
    /// because of it, close the connection.
    ///
    /// The hello is encrypted with the public key of the server. An attacker who records it and learns the secret key later can read
    /// it, so do not put a secret into it.
    #[must_use]
    pub fn hello(mut self, hello: impl Into<Bytes>) -> Self {
        self.hello = hello.into();
        self
    }

    /// Checks the options for a client with this protocol id.
    pub(crate) fn check(&self, protocol_id: u64) -> Result<(), Error> {
        check_server(self.server)?;
        if self.key.is_dev() && !is_loopback(self.server.ip()) {
            return Err(Error::DevelopmentServer { address: self.server });
        }
        if self.token.as_ref().is_some_and(|token| token.protocol_id() != protocol_id) {
            let problem = "must be the token's: backend, server and client of one build have the same";
            return Err(Error::setting("protocol_id", problem));
        }
        if self.hello.len() > HELLO_MAX_BYTES {
            return Err(Error::setting("hello", format!("must be at most {HELLO_MAX_BYTES} bytes")));
        }
        Ok(())
    }

    /// Returns the request for the core. The peer id of the request is kept for further attempts. The first Hello is sent after `wait`.
    /// With `is_ipv6`, an IPv4 address is mapped to IPv6.
    pub(crate) fn request(&self, wait: Duration, is_ipv6: bool) -> ConnectRequest<'_> {
        let server = match self.server {
            SocketAddr::V4(server) if is_ipv6 => (server.ip().to_ipv6_mapped(), server.port()).into(),
            server => server,
        };
        let identity = ServerIdentity { public_key: self.key.to_bytes(), key_id: 0 };
        ConnectRequest {
            token: self.token.as_ref().map(ConnectToken::issued),
            hello: &self.hello,
            wait,
            keeps_id: true,
            ..ConnectRequest::new(server, identity)
        }
    }
}

impl From<(SocketAddr, ServerPublicKey)> for ConnectOptions {
    fn from((server, key): (SocketAddr, ServerPublicKey)) -> Self {
        Self::new(server, key)
    }
}

impl From<ConnectToken> for ConnectOptions {
    fn from(token: ConnectToken) -> Self {
        Self::with_token(token)
    }
}

impl From<&ConnectToken> for ConnectOptions {
    fn from(token: &ConnectToken) -> Self {
        Self::with_token(token.clone())
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token is a secret until it is used.
        let Self { server, key, token, hello } = self;
        let mut debug = f.debug_struct("ConnectOptions");
        debug.field("server", server).field("key", key).field("has_token", &token.is_some());
        debug.field("hello", hello).finish()
    }
}
