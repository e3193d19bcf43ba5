//! The client after its handshake: it seals the packets that the test writes, and opens those of the server.

use drumfire_crypto::{OpenKeys, Opener, SealKeys, Sealer, TAG_BYTES};
use drumfire_wire::{
    CloseCode, ConnectionId, ConnectionIdLength, Frame, Frames, PacketNumber, PacketNumberLength,
    ServerParameters, SharedParameters, TransportHeader,
};

/// A connected client under the test's own control.
pub struct Client {
    sealer: Sealer,
    opener: Opener,
    server_id: ConnectionId,
    key_phase: bool,
    /// The largest packet number that came from the server.
    largest: Option<PacketNumber>,
    parameters: SharedParameters,
}

/// A packet of the peer, opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The packet number.
    pub number: u64,
    /// The frames.
    pub frames: Vec<u8>,
}

impl Heard {
    /// Returns the code and the reason of each Close in the packet. Reading ends at the first frame that does not decode.
    #[must_use]
    pub fn closes(&self) -> Vec<(CloseCode, String)> {
        let frames = Frames::new(&self.frames).map_while(Result::ok);
        let closes = frames.filter_map(|frame| match frame {
            Frame::Close(close) => Some((close.code, String::from_utf8_lossy(close.reason).into_owned())),
            _ => None,
        });
        closes.collect()
    }
}

impl Client {
    pub(crate) fn new(seals: SealKeys, opens: OpenKeys, parameters: &ServerParameters) -> Self {
        Self {
            sealer: Sealer::new(seals),
            opener: Opener::new(opens),
            server_id: parameters.connection_id,
            key_phase: false,
            largest: None,
            parameters: parameters.shared,
        }
    }

    /// Returns what the server said in the handshake about its limits.
    #[must_use]
    pub const fn server_parameters(&self) -> SharedParameters {
        self.parameters
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
        let number = PacketNumber(self.next_number());
        let header = TransportHeader {
            key_phase: self.key_phase,
            connection_id: Some(self.server_id),
            number: number.truncate(PacketNumberLength::Four),
        };
        let mut datagram = Vec::new();
        header.encode(&mut datagram).expect("a vector has room");
        let (mut body, mut tag) = (frames.to_vec(), [0; TAG_BYTES]);
        self.sealer.seal(&datagram, &mut body, &mut tag).expect("packet numbers are left");
        datagram.extend(body);
        datagram.extend(tag);
        datagram
    }

    /// Opens a packet of the server. Returns `None` for any other datagram.
    pub fn open(&mut self, mut datagram: Vec<u8>) -> Option<Heard> {
        let header = TransportHeader::decode(&datagram, ConnectionIdLength::Zero).ok()?;
        let number = header.number.expand(self.largest);
        let (aad, sealed) = datagram.split_at_mut(header.encoded_bytes());
        let frames = self.opener.open(number.0, header.key_phase, aad, sealed).ok()?.body.to_vec();
        self.largest = self.largest.max(Some(number));
        Some(Heard { number: number.0, frames })
    }

    /// Begins the next key epoch, in both directions.
    pub fn change_keys(&mut self) {
        self.sealer.step_to_next_epoch();
        self.opener.step_to_next_epoch();
        self.key_phase = !self.key_phase;
    }
}
