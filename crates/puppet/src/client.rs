//! The client after its handshake: it seals the packets that the test writes, and opens those of the server.

use std::time::Duration;

use drumfire_crypto::{OpenKeys, SealKeys};
use drumfire_wire::{
    AckDelay, AckRange, CloseCode, ConnectionIdLength, Frame, FrameWriter, Frames, PacketNumber,
    ServerParameters, SharedParameters,
};

use crate::packet::{PacketOpener, PacketSealer};

/// A connected client under the test's own control.
pub struct Client {
    sealer: PacketSealer,
    opener: PacketOpener,
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
    /// Returns the frames of an ack for this packet, or `None` if the packet does not ask for one.
    ///
    /// # Panics
    ///
    /// Never: a vector has room for an ack of one range.
    #[must_use]
    pub fn ack(&self) -> Option<Vec<u8>> {
        let mut frames = Frames::new(&self.frames).map_while(Result::ok);
        frames.any(|frame| frame.is_ack_eliciting()).then(|| {
            let mut ack = Vec::new();
            let number = PacketNumber(self.number);
            FrameWriter::new(&mut ack)
                .ack(AckDelay::from_duration(Duration::ZERO), AckRange::new(number, number).into_iter())
                .expect("a vector has room");
            ack
        })
    }

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
    pub(crate) fn new(
        seals: SealKeys,
        opens: OpenKeys,
        parameters: &ServerParameters,
        id_length: ConnectionIdLength,
    ) -> Self {
        Self {
            sealer: PacketSealer::new(seals, Some(parameters.connection_id)),
            opener: PacketOpener::new(opens, id_length),
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
        self.sealer.datagram(frames)
    }

    /// Opens a packet of the server. Returns `None` for any other datagram.
    pub fn open(&mut self, mut datagram: Vec<u8>) -> Option<Heard> {
        let (number, frames) = self.opener.open(&mut datagram)?;
        Some(Heard { number, frames: frames.to_vec() })
    }

    /// Begins the next key epoch, in both directions.
    pub fn change_keys(&mut self) {
        self.sealer.change_keys();
        self.opener.change_keys();
    }

    /// Returns the sealing half, with which packets can be sent that the client does not remember.
    #[must_use]
    pub fn into_sealer(self) -> PacketSealer {
        self.sealer
    }
}
