//! A server that the test plays by itself, for one client: it answers a Hello and writes its own frames.

use crate::harness::server_keys;
use drumfire_crypto::{Opener, Responder, Sealer, Secret, Suite, TAG_BYTES};
use drumfire_puppet::default_parameters;
use drumfire_wire::{
    CloseCode, ConnectionId, ConnectionIdLength, Frame, Frames, Hello, PacketNumber, PacketNumberLength,
    ServerParameters, TransportHeader, Welcome,
};

/// The keys of its one connection.
pub(crate) struct PuppetServer {
    sealer: Sealer,
    opener: Opener,
}

impl PuppetServer {
    /// Computes the Welcome for a Hello as PROTOCOL.md says, and returns it. `change` may change the server's parameters
    /// before they are sealed.
    pub(crate) fn answer(hello: &Hello<'_>, change: impl FnOnce(&mut [u8])) -> (Self, Vec<u8>) {
        let connection_id = ConnectionId::from_bytes([0; 8]);
        let parameters = ServerParameters {
            connection_id,
            reset_token: [6; 16],
            suite: drumfire_wire::Suite::ChaCha20Poly1305,
            shared: default_parameters().shared,
        };
        let mut payload = Vec::new();
        parameters.encode(&mut payload).unwrap();
        change(&mut payload);
        let (psk, ephemeral) = (Secret::zeroed(), Secret::new([8; 32]));
        let prologue = hello.prologue().concat();
        let (responder, _) =
            Responder::read(&server_keys(), &psk, &prologue, hello.noise_message, &ephemeral, &mut [0; 564])
                .unwrap();
        let mut message_2 = vec![0; payload.len() + 48];
        let (_, secrets) = responder.reply(&payload, &mut message_2).unwrap();
        let (seals, opens) = secrets.into_keys(Suite::ChaCha20Poly1305).unwrap();
        let mut welcome = Vec::new();
        Welcome { client_id: hello.fields.client_id, noise_message: &message_2 }
            .encode(&mut welcome)
            .unwrap();
        (Self { sealer: Sealer::new(seals), opener: Opener::new(opens) }, welcome)
    }

    /// The next packet, with these frames.
    pub(crate) fn datagram(&mut self, frames: &[u8]) -> Vec<u8> {
        let number = PacketNumber(self.sealer.next_number().unwrap()).truncate(PacketNumberLength::Two);
        let mut datagram = Vec::new();
        TransportHeader { key_phase: false, connection_id: None, number }.encode(&mut datagram).unwrap();
        let (mut body, mut tag) = (frames.to_vec(), [0; TAG_BYTES]);
        self.sealer.seal(&datagram, &mut body, &mut tag).unwrap();
        [datagram, body, tag.to_vec()].concat()
    }

    /// The code and reason of each Close in a packet of the client.
    pub(crate) fn closes(&mut self, datagram: &[u8]) -> Vec<(CloseCode, String)> {
        let mut bytes = datagram.to_vec();
        let header = TransportHeader::decode(&bytes, ConnectionIdLength::Eight).unwrap();
        let number = header.number.expand(None).0;
        let (aad, sealed) = bytes.split_at_mut(header.encoded_bytes());
        let opened = self.opener.open(number, header.key_phase, aad, sealed).unwrap();
        let closes = Frames::new(opened.body).filter_map(|frame| match frame.unwrap() {
            Frame::Close(close) => Some((close.code, String::from_utf8_lossy(close.reason).into_owned())),
            _ => None,
        });
        closes.collect()
    }
}
