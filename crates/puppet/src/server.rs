//! The server's side of one connection: it answers a Hello and seals the frames that the test writes.

use drumfire_crypto::{Mac1Key, Responder, Secret, ServerKeyPair};
use drumfire_wire::{
    ClientParameters, ConnectionId, ConnectionIdLength, Hello, ServerParameters, Suite, Welcome,
};

use crate::client::Heard;
use crate::handshake::{default_parameters, key_suite};
use crate::packet::{PacketOpener, PacketSealer};

/// A server with one connection, under the test's own control.
pub struct Server {
    sealer: PacketSealer,
    opener: PacketOpener,
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

/// The connection id of a server that has one connection.
const ONLY_ID: [u8; ConnectionId::BYTES] = [0; ConnectionId::BYTES];

impl Server {
    /// Accepts a Hello and returns the connection and the Welcome that PROTOCOL.md describes. `change` may
    /// change the server's parameters before they are sealed. Returns `None` if the Hello does not open with these keys.
    #[must_use]
    pub fn answer(
        keys: &ServerKeyPair,
        hello: &Hello<'_>,
        change: impl FnOnce(&mut [u8]),
    ) -> Option<(Self, Vec<u8>)> {
        let parameters = ServerParameters {
            connection_id: ConnectionId::from_bytes(ONLY_ID),
            reset_token: [6; 16],
            suite: Suite::ChaCha20Poly1305,
            shared: default_parameters().shared,
        };
        Self::accept(keys, hello, &parameters, &Secret::new([8; 32]), change).ok()
    }

    /// Accepts a Hello like [`Self::answer`], with these parameters. Two connections need two `ephemeral` secrets.
    ///
    /// # Errors
    ///
    /// The first check that the Hello does not pass. The cookie is not checked.
    ///
    /// # Panics
    ///
    /// Never: a vector has room for a Welcome.
    pub fn accept(
        keys: &ServerKeyPair,
        hello: &Hello<'_>,
        parameters: &ServerParameters,
        ephemeral: &Secret<32>,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(Self, Vec<u8>), HelloError> {
        let psk = Secret::zeroed();
        if Mac1Key::derive(keys.public(), &psk).mac(&hello.mac1_input()) != *hello.mac1 {
            return Err(HelloError::BadMac1);
        }
        let offer = hello.fields.offered_suites().ok_or(HelloError::BadOffer)?;
        if !offer.has(parameters.suite) {
            return Err(HelloError::BadOffer);
        }
        let mut payload = [0; ClientParameters::PAYLOAD_BYTES];
        let prologue = hello.prologue().concat();
        let (responder, _) =
            Responder::read(keys, &psk, &prologue, hello.noise_message, ephemeral, &mut payload)
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
        let server = Self {
            sealer: PacketSealer::new(seals, client.connection_id),
            opener: PacketOpener::new(opens, ConnectionIdLength::Eight),
        };
        Ok((server, welcome))
    }

    /// Returns the number of the next packet.
    ///
    /// # Panics
    ///
    /// If the packet numbers are used up, which no test does.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.sealer.next_number().expect("packet numbers are left")
    }

    /// Returns the next packet, with these frames.
    ///
    /// # Panics
    ///
    /// If the packet numbers are used up, which no test does.
    pub fn datagram(&mut self, frames: &[u8]) -> Vec<u8> {
        self.sealer.datagram(frames)
    }

    /// Opens a packet of the client. Returns `None` for any other datagram.
    pub fn open(&mut self, mut datagram: Vec<u8>) -> Option<Heard> {
        let (number, frames) = self.opener.open(&mut datagram)?;
        Some(Heard { number, frames: frames.to_vec() })
    }

    /// Returns the two halves of the connection.
    #[must_use]
    pub fn into_halves(self) -> (PacketSealer, PacketOpener) {
        (self.sealer, self.opener)
    }
}
