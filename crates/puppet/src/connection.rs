//! One end of a connection after its handshake: it seals the frames that the test writes, and opens the packets of the other end.

use std::time::Duration;

use drumfire_crypto::{OpenKeys, SealKeys};
use drumfire_wire::{
    AckDelay, AckRange, CloseCode, ConnectionId, ConnectionIdLength, Frame, FrameWriter, Frames,
    PacketNumber, SharedParameters,
};

use crate::packet::{PacketOpener, PacketSealer};

/// One end of a connection, under the test's own control.
pub struct Connection {
    sealer: PacketSealer,
    opener: PacketOpener,
    peer_parameters: SharedParameters,
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

impl Connection {
    /// Returns this end. `peer_id` is the connection id in packets to the other end, and `own_id_length` the length of the id in
    /// packets to this end.
    pub(crate) fn new(
        (seals, opens): (SealKeys, OpenKeys),
        peer_id: Option<ConnectionId>,
        own_id_length: ConnectionIdLength,
        peer_parameters: SharedParameters,
    ) -> Self {
        let (sealer, opener) = (PacketSealer::new(seals, peer_id), PacketOpener::new(opens, own_id_length));
        Self { sealer, opener, peer_parameters }
    }

    /// Returns the limits that the other end stated in the handshake.
    #[must_use]
    pub const fn peer_parameters(&self) -> SharedParameters {
        self.peer_parameters
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

    /// Opens a packet of the other end. Returns `None` for any other datagram. The first packet of the next key epoch begins that
    /// epoch in both directions.
    pub fn open(&mut self, mut datagram: Vec<u8>) -> Option<Heard> {
        let key_phase = self.opener.key_phase();
        let (number, frames) = self.opener.open(&mut datagram)?;
        let heard = Heard { number, frames: frames.to_vec() };
        if self.opener.key_phase() != key_phase {
            self.sealer.change_keys();
        }
        Some(heard)
    }

    /// Begins the next key epoch, in both directions.
    pub fn change_keys(&mut self) {
        self.sealer.change_keys();
        self.opener.change_keys();
    }

    /// Returns the two halves of the connection.
    #[must_use]
    pub fn into_halves(self) -> (PacketSealer, PacketOpener) {
        (self.sealer, self.opener)
    }
}
