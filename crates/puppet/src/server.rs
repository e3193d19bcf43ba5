//! The server's part of the handshake.

use drumfire_crypto::{Mac1Key, Responder, Secret, ServerKeyPair};
use drumfire_wire::limits::CLIENT_PARAMETERS_BYTES;
use drumfire_wire::{
    ClientParameters, ConnectionId, ConnectionIdLength, Hello, ServerParameters, Suite, Welcome,
};

use crate::connection::Connection;
use crate::handshake::{default_parameters, key_suite};

/// The reason why a server does not accept a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloError {
    /// The Hello was made for another server key, or with a token.
    BadMac1,
    /// The Noise message does not open.
    BadNoise,
    /// The client's parameters are outside their bounds.
    BadParameters,
    /// The client does not offer the suite of these parameters, or this build does not have it.
    BadOffer,
}

/// Returns the parameters of a server that asks for nothing special.
pub(crate) fn server_parameters(connection_id: [u8; ConnectionId::BYTES]) -> ServerParameters {
    ServerParameters {
        connection_id: ConnectionId::from_bytes(connection_id),
        reset_token: [6; 16],
        suite: Suite::ChaCha20Poly1305,
        shared: default_parameters().shared,
    }
}

/// Accepts a Hello and returns the connection and the Welcome that PROTOCOL.md describes. `change` may
/// change the server's parameters before they are sealed. Returns `None` if the Hello does not open with these keys.
#[must_use]
pub fn answer_hello(
    keys: &ServerKeyPair,
    hello: &Hello<'_>,
    change: impl FnOnce(&mut [u8]),
) -> Option<(Connection, Vec<u8>)> {
    let parameters = server_parameters([0; ConnectionId::BYTES]);
    accept_hello(keys, hello, &parameters, &Secret::new([8; 32]), change).ok()
}

/// Accepts a Hello like [`answer_hello`], with these parameters. Two connections need two `ephemeral` secrets.
///
/// # Errors
///
/// The first check that the Hello does not pass. The cookie is not checked.
///
/// # Panics
///
/// Never: a vector has room for a Welcome.
pub fn accept_hello(
    keys: &ServerKeyPair,
    hello: &Hello<'_>,
    parameters: &ServerParameters,
    ephemeral: &Secret<32>,
    change: impl FnOnce(&mut [u8]),
) -> Result<(Connection, Vec<u8>), HelloError> {
    let psk = Secret::zeroed();
    if Mac1Key::derive(keys.public(), &psk).mac(&hello.mac1_input()) != *hello.mac1 {
        return Err(HelloError::BadMac1);
    }
    let offer = hello.fields.offered_suites().ok_or(HelloError::BadOffer)?;
    if !offer.has(parameters.suite) {
        return Err(HelloError::BadOffer);
    }
    let mut payload = [0; CLIENT_PARAMETERS_BYTES];
    let prologue = hello.prologue().concat();
    let (responder, _) = Responder::read(keys, &psk, &prologue, hello.noise_message, ephemeral, &mut payload)
        .map_err(|_| HelloError::BadNoise)?;
    let client = ClientParameters::decode(&payload).ok_or(HelloError::BadParameters)?;
    let mut payload = Vec::new();
    parameters.encode(&mut payload).expect("a vector has room");
    change(&mut payload);
    let mut message_2 = vec![0; payload.len() + 48];
    let (_, secrets) = responder.reply(&payload, &mut message_2).map_err(|_| HelloError::BadNoise)?;
    let (seals, opens) = secrets.into_keys(key_suite(parameters.suite)).ok_or(HelloError::BadOffer)?;
    let mut welcome = Vec::new();
    Welcome { client_id: hello.fields.client_id, noise_message: &message_2 }
        .encode(&mut welcome)
        .expect("a vector has room");
    let connection =
        Connection::new((seals, opens), client.connection_id, ConnectionIdLength::Eight, client.shared);
    Ok((connection, welcome))
}
