//! The server's side of one connection: it answers a Hello and seals the frames that the test writes.

use drumfire_crypto::{Opener, Responder, Sealer, Secret, ServerKeyPair, Suite, TAG_BYTES};
use drumfire_wire::{
    ConnectionId, ConnectionIdLength, Hello, PacketNumber, PacketNumberLength, ServerParameters,
    TransportHeader, Welcome,
};

use crate::client::Heard;
use crate::handshake::default_parameters;

/// A server with one connection, under the test's own control.
pub struct Server {
    sealer: Sealer,
    opener: Opener,
    /// The largest packet number that came from the client.
    largest: Option<PacketNumber>,
}

impl Server {
    /// Answers a Hello with the Welcome that PROTOCOL.md describes, and returns the connection and the Welcome. `change` may
    /// change the server's parameters before they are sealed. Returns `None` if the Hello does not open with these keys.
    ///
    /// # Panics
    ///
    /// Never: a vector has room for a Welcome.
    #[must_use]
    pub fn answer(
        keys: &ServerKeyPair,
        hello: &Hello<'_>,
        change: impl FnOnce(&mut [u8]),
    ) -> Option<(Self, Vec<u8>)> {
        let parameters = ServerParameters {
            connection_id: ConnectionId::from_bytes([0; 8]),
            reset_token: [6; 16],
            suite: drumfire_wire::Suite::ChaCha20Poly1305,
            shared: default_parameters().shared,
        };
        let mut payload = Vec::new();
        parameters.encode(&mut payload).expect("a vector has room");
        change(&mut payload);
        let (psk, ephemeral) = (Secret::zeroed(), Secret::new([8; 32]));
        let prologue = hello.prologue().concat();
        let (responder, _) =
            Responder::read(keys, &psk, &prologue, hello.noise_message, &ephemeral, &mut [0; 564]).ok()?;
        let mut message_2 = vec![0; payload.len() + 48];
        let (_, secrets) = responder.reply(&payload, &mut message_2).ok()?;
        let (seals, opens) = secrets.into_keys(Suite::ChaCha20Poly1305)?;
        let mut welcome = Vec::new();
        Welcome { client_id: hello.fields.client_id, noise_message: &message_2 }
            .encode(&mut welcome)
            .expect("a vector has room");
        let (sealer, opener) = (Sealer::new(seals), Opener::new(opens));
        Some((Self { sealer, opener, largest: None }, welcome))
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
        let number = PacketNumber(self.next_number()).truncate(PacketNumberLength::Four);
        let header = TransportHeader { key_phase: false, connection_id: None, number };
        let mut datagram = Vec::new();
        header.encode(&mut datagram).expect("a vector has room");
        let (mut body, mut tag) = (frames.to_vec(), [0; TAG_BYTES]);
        self.sealer.seal(&datagram, &mut body, &mut tag).expect("packet numbers are left");
        [datagram, body, tag.to_vec()].concat()
    }

    /// Opens a packet of the client. Returns `None` for any other datagram.
    pub fn open(&mut self, mut datagram: Vec<u8>) -> Option<Heard> {
        let header = TransportHeader::decode(&datagram, ConnectionIdLength::Eight).ok()?;
        let number = header.number.expand(self.largest);
        let (aad, sealed) = datagram.split_at_mut(header.encoded_bytes());
        let frames = self.opener.open(number.0, header.key_phase, aad, sealed).ok()?.body.to_vec();
        self.largest = self.largest.max(Some(number));
        Some(Heard { number: number.0, frames })
    }
}
