//! The handshake, in which both ends agree on keys: the client's attempts and the server's responses (PROTOCOL 5,
//! "Handshake").
//!
//! This module turns datagrams into verdicts and responses. The endpoint creates and keeps connections.

pub(crate) mod admission;
pub(crate) mod client;
pub(crate) mod half_open;
pub(crate) mod load;
pub(crate) mod server;

use drumfire_crypto::{OpenKeys, SealKeys, Suite};
use drumfire_wire::SharedParameters;

/// The result of a finished handshake for one end.
#[derive(Debug)]
pub(crate) struct HandshakeResult {
    pub(crate) seal_keys: SealKeys,
    pub(crate) open_keys: OpenKeys,
    /// The timeouts that apply to both ends.
    pub(crate) timeouts: SharedParameters,
    /// The limits of the peer.
    pub(crate) peer: SharedParameters,
}

/// Converts the suite of the wire format to the suite of the keys.
pub(crate) fn key_suite(suite: drumfire_wire::Suite) -> Suite {
    match suite {
        drumfire_wire::Suite::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
        drumfire_wire::Suite::Aes128Gcm => Suite::Aes128Gcm,
    }
}
