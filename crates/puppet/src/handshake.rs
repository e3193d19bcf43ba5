//! The client's side of the handshake (PROTOCOL 5, "Handshake"), one datagram at a time.
//!
//! Every part of the Hello can be made wrong before it is sent. Only open access is spoken: there is no token.

use std::time::Duration;

use drumfire_crypto::{Initiator, Mac1Key, Secret, Suite};
use drumfire_wire::limits::CLIENT_PARAMETERS_BYTES;
use drumfire_wire::{
    ClientId, ClientParameters, ConnectionIdLength, HelloDraft, HelloFields, Retry, ServerParameters,
    SharedParameters, SuiteOffer, VERSION, Welcome,
};

use crate::connection::Connection;

/// Returns the suite of the ciphers for a suite of the wire format.
pub(crate) const fn key_suite(suite: drumfire_wire::Suite) -> Suite {
    match suite {
        drumfire_wire::Suite::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
        drumfire_wire::Suite::Aes128Gcm => Suite::Aes128Gcm,
    }
}

/// A handshake that has begun.
pub struct Handshake {
    hello: HelloDraft,
    initiator: Initiator,
    mac1_key: Mac1Key,
    client_id: ClientId,
    /// The length of the ids in packets to the client, by its parameters.
    id_length: ConnectionIdLength,
}

/// Returns the parameters of a client that asks for nothing special.
#[must_use]
pub fn default_parameters() -> ClientParameters<'static> {
    let shared = SharedParameters {
        datagram_max_bytes: 1_200,
        silent_timeout: Duration::from_secs(30),
        unacknowledged_timeout: Duration::from_secs(10),
        message_max_bytes: 65_536,
        credit_bytes: 196_608,
    };
    ClientParameters { connection_id: None, shared, hello: b"" }
}

impl Handshake {
    /// Begins a handshake with the server that has this public key. Two clients need two `ephemeral` secrets.
    ///
    /// # Panics
    ///
    /// If the public key is one of the few that are not valid.
    #[must_use]
    pub fn begin(server_key: &[u8; 32], client_id: [u8; 8], ephemeral: [u8; 32]) -> Self {
        let payload = default_parameters().encode();
        Self::with(server_key, client_id, ephemeral, &payload, SuiteOffer::mandatory())
    }

    /// Begins a handshake with this payload of the Noise message, in place of the client's parameters, and this offer of suites.
    pub(crate) fn with(
        server_key: &[u8; 32],
        client_id: [u8; 8],
        ephemeral: [u8; 32],
        payload: &[u8; CLIENT_PARAMETERS_BYTES],
        offer: SuiteOffer,
    ) -> Self {
        let fields = HelloFields {
            version: VERSION,
            protocol_id: 0,
            client_id: ClientId(client_id),
            server_key_id: 0,
            token_key_id: 0,
            suite_bits: offer.to_bits(),
        };
        let mut hello = HelloDraft::new(&fields, &[0; 512]);
        let prologue = hello.prologue().concat();
        let (psk, ephemeral) = (Secret::zeroed(), Secret::new(ephemeral));
        let message_1 = hello.noise_message_mut();
        let initiator = Initiator::new(server_key, &psk, &prologue, payload, ephemeral, message_1)
            .expect("the server's public key is valid");
        let mac1_key = Mac1Key::derive(server_key, &psk);
        let parameters = ClientParameters::decode(payload);
        let has_id = parameters.is_some_and(|parameters| parameters.connection_id.is_some());
        let id_length = if has_id { ConnectionIdLength::Eight } else { ConnectionIdLength::Zero };
        let mut handshake = Self { hello, initiator, mac1_key, client_id: fields.client_id, id_length };
        handshake.remake_mac1();
        handshake
    }

    /// Changes one byte of the Noise message, so that the message does not open, and makes `mac1` fit again: the server
    /// finds out by a key agreement.
    pub(crate) fn spoil_noise(&mut self, at: usize) {
        let message = self.hello.noise_message_mut();
        let at = at % message.len();
        message[at] ^= 1;
        self.remake_mac1();
    }

    /// Changes `mac1`, so that the server drops the Hello without a key agreement.
    pub(crate) fn spoil_mac1(&mut self) {
        self.hello.set_mac1([0x11; 16]);
    }

    /// Returns the id by which the server's answers name this handshake.
    #[must_use]
    pub const fn client_id(&self) -> ClientId {
        self.client_id
    }

    fn remake_mac1(&mut self) {
        let mac1 = self.mac1_key.mac(&self.hello.mac1_input());
        self.hello.set_mac1(mac1);
    }

    /// Returns the Hello as it is now.
    ///
    /// # Panics
    ///
    /// Never: a vector has room for a Hello.
    #[must_use]
    pub fn hello(&self) -> Vec<u8> {
        encoded(&self.hello)
    }

    /// Returns the Hello as it was before a Retry came.
    pub(crate) fn hello_without_cookie(&self) -> Vec<u8> {
        let mut hello = self.hello.clone();
        hello.set_cookie([0; 32]);
        encoded(&hello)
    }

    /// Takes the cookie of a Retry. Returns whether the datagram is a Retry.
    pub fn on_retry(&mut self, datagram: &[u8]) -> bool {
        let retry = Retry::decode(datagram);
        if let Ok(retry) = &retry {
            self.hello.set_cookie(*retry.cookie);
        }
        retry.is_ok()
    }

    /// Reads a Welcome. Returns `None` if the datagram is not the Welcome of this handshake, which then goes on waiting.
    #[must_use]
    pub fn on_welcome(&mut self, datagram: &[u8]) -> Option<Connection> {
        let welcome = Welcome::decode(datagram).ok()?;
        let mut payload = [0; 1_200];
        let (bytes, secrets) = self.initiator.read_reply(welcome.noise_message, &mut payload).ok()?;
        let parameters = ServerParameters::decode(&payload[..bytes])?;
        let keys = secrets.into_keys(key_suite(parameters.suite))?;
        Some(Connection::new(keys, Some(parameters.connection_id), self.id_length, parameters.shared))
    }
}

fn encoded(hello: &HelloDraft) -> Vec<u8> {
    let mut datagram = Vec::new();
    hello.encode(&mut datagram).expect("a vector has room");
    datagram
}
