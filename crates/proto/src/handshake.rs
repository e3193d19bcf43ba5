//! How both ends agree on keys: the client's attempts and the server's responses (PROTOCOL 5, "Handshake").
//!
//! Datagrams in, verdicts and datagrams out; connections are made and kept elsewhere.

pub(crate) mod admission;
pub(crate) mod client;
pub(crate) mod half_open;
pub(crate) mod load;
pub(crate) mod server;

use drumfire_crypto::{OpenKeys, SealKeys, Suite};
use drumfire_wire::SharedParameters;

/// What a finished handshake gives one end.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) seals: SealKeys,
    pub(crate) opens: OpenKeys,
    /// Timeouts that hold for both.
    pub(crate) timeouts: SharedParameters,
    /// What the peer takes.
    pub(crate) peer: SharedParameters,
}

/// The suite of the wire as the suite of the keys.
pub(crate) fn key_suite(suite: drumfire_wire::Suite) -> Suite {
    match suite {
        drumfire_wire::Suite::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
        drumfire_wire::Suite::Aes128Gcm => Suite::Aes128Gcm,
    }
}
