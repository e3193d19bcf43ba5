//! Both ends of the handshake (PROTOCOL 5, "Handshake"), one datagram at a time.
//!
//! A test can change every part of the Hello before it is sent. Only open access is supported: there is no token.

use std::time::Duration;

use drumfire_crypto::{Initiator, Mac1Key, Responder, Secret, ServerKeyPair};
use drumfire_wire::limits::CLIENT_PARAMETERS_BYTES;
use drumfire_wire::{
    ClientId, ClientParameters, ConnectionId, ConnectionIdLength, FrameWriter, Hello, HelloDraft,
    HelloFields, Refuse, Retry, ServerParameters, SharedParameters, Suite, SuiteOffer, VERSION, Welcome,
};

use crate::connection::{Connection, PacketSealer};
use crate::frame::encoded;

/// Returns the suite of the ciphers for a suite of the wire format.
const fn key_suite(suite: Suite) -> drumfire_crypto::Suite {
    match suite {
        Suite::ChaCha20Poly1305 => drumfire_crypto::Suite::ChaCha20Poly1305,
        Suite::Aes128Gcm => drumfire_crypto::Suite::Aes128Gcm,
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
        idle_timeout: Duration::from_secs(30),
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
    /// Panics if the public key is one of the few that are not valid.
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
        handshake.recompute_mac1();
        handshake
    }

    /// Changes one byte of the Noise message, so that the message does not open, and recomputes `mac1`. The server
    /// detects the change only after a key agreement.
    pub(crate) fn corrupt_noise(&mut self, at: usize) {
        let message = self.hello.noise_message_mut();
        let at = at % message.len();
        message[at] ^= 1;
        self.recompute_mac1();
    }

    /// Changes `mac1`, so that the server drops the Hello without a key agreement.
    pub(crate) fn corrupt_mac1(&mut self) {
        self.hello.set_mac1([0x11; 16]);
    }

    /// Returns the id by which the server's answers name this handshake.
    #[must_use]
    pub const fn client_id(&self) -> ClientId {
        self.client_id
    }

    fn recompute_mac1(&mut self) {
        let mac1 = self.mac1_key.mac(&self.hello.mac1_input());
        self.hello.set_mac1(mac1);
    }

    /// Returns the Hello as it is now.
    #[must_use]
    pub fn hello(&self) -> Vec<u8> {
        encoded(|datagram| self.hello.encode(datagram))
    }

    /// Returns the Hello as it was before a Retry came.
    pub(crate) fn hello_without_cookie(&self) -> Vec<u8> {
        let mut hello = self.hello.clone();
        hello.set_cookie([0; 32]);
        encoded(|datagram| hello.encode(datagram))
    }

    /// Sets the cookie of a Retry. Returns whether the datagram is a Retry.
    pub fn on_retry(&mut self, datagram: &[u8]) -> bool {
        let retry = Retry::decode(datagram);
        if let Ok(retry) = &retry {
            self.hello.set_cookie(*retry.cookie);
        }
        retry.is_ok()
    }

    /// Reads a Welcome. Returns `None` if the datagram is not the Welcome of this handshake, which then still waits.
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

/// A whole handshake of a client that keeps no connection: the tools and benches that use it need the keys alone. It acknowledges every
/// packet of the server, until its sealing half is taken.
///
/// Pass each datagram of the server to [`Self::on_datagram`] and send the datagram that it returns. Call
/// [`Self::resend`] for the first datagram, and whenever no datagram has arrived for a while.
pub struct Connector {
    state: State,
    is_confirmed: bool,
}

enum State {
    Handshake(Box<Handshake>),
    Connected(Box<Connection>),
    /// There will be no connection, for this reason.
    Failed(String),
}

impl Connector {
    /// Begins a handshake with the server that has this public key. Two clients need two `ephemeral` secrets.
    ///
    /// # Panics
    ///
    /// Panics if the public key is one of the few that are not valid.
    #[must_use]
    pub fn new(
        server_key: &[u8; 32],
        client_id: [u8; 8],
        ephemeral: [u8; 32],
        parameters: &ClientParameters,
        offer: SuiteOffer,
    ) -> Self {
        let payload = parameters.encode();
        let handshake = Handshake::with(server_key, client_id, ephemeral, &payload, offer);
        Self { state: State::Handshake(handshake.into()), is_confirmed: false }
    }

    /// Returns whether the handshake is over. The server does not know it before a packet of the connection has arrived.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// Returns whether the server has opened a packet of the connection and answered it.
    #[must_use]
    pub const fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Returns the reason why there will be no connection, or `None` while there may be one.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        if let State::Failed(reason) = &self.state { Some(reason) } else { None }
    }

    /// Returns the datagram that is due when the server does not answer: the Hello, or a packet that asks for an ack. Returns
    /// `None` once the connection is confirmed.
    pub fn resend(&mut self) -> Option<Vec<u8>> {
        match &mut self.state {
            State::Handshake(handshake) => Some(handshake.hello()),
            State::Connected(client) => (!self.is_confirmed).then(|| client.datagram(&ack_request())),
            State::Failed(_) => None,
        }
    }

    /// Handles a datagram of the server. Returns the reply, if the datagram has one.
    pub fn on_datagram(&mut self, datagram: Vec<u8>) -> Option<Vec<u8>> {
        match &mut self.state {
            State::Handshake(handshake) => {
                if handshake.on_retry(&datagram) {
                    return self.resend();
                }
                if let Ok(refuse) = Refuse::decode(&datagram) {
                    let reason = refuse.refusal.reason;
                    self.state = State::Failed(format!("the server refuses the connection: {reason:?}"));
                    return None;
                }
                let welcome = Welcome::decode(&datagram).ok()?;
                // Datagrams of other handshakes are ignored.
                (welcome.client_id == handshake.client_id()).then_some(())?;
                // A Welcome uses up the handshake, whether it opens or not.
                let failed = State::Failed("the server's Welcome does not open".to_owned());
                if let State::Handshake(mut handshake) = std::mem::replace(&mut self.state, failed)
                    && let Some(client) = handshake.on_welcome(&datagram)
                {
                    self.state = State::Connected(client.into());
                }
                self.resend()
            }
            State::Connected(client) => {
                let packet = client.open(datagram)?;
                self.is_confirmed = true;
                packet.ack().map(|ack| client.datagram(&ack))
            }
            State::Failed(_) => None,
        }
    }

    /// Returns the sealing half of the connection, or `None` if there is no connection.
    #[must_use]
    pub fn into_sealer(self) -> Option<PacketSealer> {
        match self.state {
            State::Connected(client) => Some(client.into_halves().0),
            State::Handshake(_) | State::Failed(_) => None,
        }
    }
}

/// Returns frames that ask for an immediate ack, padded to the shortest length of a packet.
fn ack_request() -> Vec<u8> {
    encoded(|bytes| {
        let mut frames = FrameWriter::new(bytes);
        frames.ack_request().and_then(|()| frames.padding(3))
    })
}

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
#[must_use]
pub fn server_parameters(connection_id: [u8; ConnectionId::BYTES]) -> ServerParameters {
    ServerParameters {
        connection_id: ConnectionId::from_bytes(connection_id),
        reset_token: [6; 16],
        suite: Suite::ChaCha20Poly1305,
        shared: default_parameters().shared,
    }
}

/// Accepts a Hello and returns the connection and the Welcome that PROTOCOL.md describes. `change` may change or replace the server's
/// parameters before they are sealed. Two connections need two `ephemeral` secrets.
///
/// # Errors
///
/// The first check that the Hello does not pass. The cookie is not checked.
pub fn accept_hello(
    keys: &ServerKeyPair,
    hello: &Hello<'_>,
    parameters: &ServerParameters,
    ephemeral: &Secret<32>,
    change: impl FnOnce(&mut Vec<u8>),
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
    let mut payload = encoded(|payload| parameters.encode(payload));
    change(&mut payload);
    let mut message_2 = vec![0; payload.len() + 48];
    let (_, secrets) = responder.reply(&payload, &mut message_2).map_err(|_| HelloError::BadNoise)?;
    let (seals, opens) = secrets.into_keys(key_suite(parameters.suite)).ok_or(HelloError::BadOffer)?;
    let welcome = Welcome { client_id: hello.fields.client_id, noise_message: &message_2 };
    let welcome = encoded(|datagram| welcome.encode(datagram));
    let connection =
        Connection::new((seals, opens), client.connection_id, ConnectionIdLength::Eight, client.shared);
    Ok((connection, welcome))
}
