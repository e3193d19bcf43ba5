//! One end of a connection after its handshake: it seals the frames that the test writes, and opens the packets of the
//! other end. Its two halves work in place, without copies.

use std::time::Duration;

use drumfire_crypto::{OpenKeys, Opener, SealKeys, Sealer, TAG_BYTES};
use drumfire_wire::{
    AckDelay, AckRange, ChannelId, CloseCode, ConnectionId, ConnectionIdLength, Delivery, Frame, FrameWriter,
    Frames, Message, PacketNumber, PacketNumberLength, SharedParameters, TransportHeader,
};

use crate::frame::encoded;

/// One end of a connection, controlled by a test.
pub struct Connection {
    sealer: PacketSealer,
    opener: PacketOpener,
    peer_parameters: SharedParameters,
}

/// A packet of the peer, opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedPacket {
    /// The packet number.
    pub number: u64,
    /// The frames.
    pub frames: Vec<u8>,
}

impl OpenedPacket {
    /// Returns the frames of an ack for this packet, or `None` if the packet does not ask for one.
    #[must_use]
    pub fn ack(&self) -> Option<Vec<u8>> {
        let mut frames = Frames::new(&self.frames).map_while(Result::ok);
        frames.any(|frame| frame.is_ack_eliciting()).then(|| {
            let (delay, number) = (AckDelay::from_duration(Duration::ZERO), PacketNumber(self.number));
            let ranges = AckRange::new(number, number).into_iter();
            encoded(|ack| FrameWriter::new(ack).ack(delay, ranges))
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
    /// Panics if the packet numbers are used up, which no test does.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.sealer.next_number().expect("packet numbers are left")
    }

    /// Returns the next packet, with these frames.
    ///
    /// # Panics
    ///
    /// Panics if the packet numbers are used up, which no test does.
    pub fn datagram(&mut self, frames: &[u8]) -> Vec<u8> {
        self.sealer.datagram(frames)
    }

    /// Opens a packet of the other end. Returns `None` for any other datagram. The first packet of the next key epoch begins that
    /// epoch in both directions.
    pub fn open(&mut self, mut datagram: Vec<u8>) -> Option<OpenedPacket> {
        let key_phase = self.opener.key_phase();
        let (number, frames) = self.opener.open(&mut datagram)?;
        let packet = OpenedPacket { number, frames: frames.to_vec() };
        if self.opener.key_phase() != key_phase {
            self.sealer.change_keys();
        }
        Some(packet)
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

/// The number of bytes of a packet to a server without its frames: the type, the connection id, a packet number of four bytes, and the tag.
const AROUND_FRAMES_BYTES: usize = 1 + ConnectionId::BYTES + 4 + TAG_BYTES;

/// The number of bytes of a message frame without its payload and the second byte of the length: the type, channel 0, and the length.
const MESSAGE_FIELDS_BYTES: usize = 3;

/// The sealing half of a connection: it seals packets, each with the next packet number.
#[derive(Debug)]
pub struct PacketSealer {
    sealer: Sealer,
    connection_id: Option<ConnectionId>,
    key_phase: bool,
}

impl PacketSealer {
    pub(crate) fn new(keys: SealKeys, connection_id: Option<ConnectionId>) -> Self {
        let mut sealer = Sealer::new(keys);
        sealer.keep_expanded();
        Self { sealer, connection_id, key_phase: false }
    }

    /// Returns the number of the next packet, or `None` if the packet numbers are used up.
    #[must_use]
    pub fn next_number(&self) -> Option<u64> {
        self.sealer.next_number().ok()
    }

    /// Returns the length of the message in a packet to a server of `datagram_bytes` bytes, or `None` if the packet has no room
    /// for a message.
    #[must_use]
    pub fn payload_bytes(datagram_bytes: usize) -> Option<usize> {
        // The length field takes one byte or two. Where neither fits exactly, one byte of padding remains.
        let room = datagram_bytes.checked_sub(AROUND_FRAMES_BYTES + MESSAGE_FIELDS_BYTES)?;
        Some(if room < 128 { room } else { room - 1 })
    }

    /// Fills `datagram` with the next packet, which holds `payload` as an unreliable message on channel 0. Returns `None` if the
    /// payload does not have the length that [`Self::payload_bytes`] returns, or if the packet numbers are used up.
    pub fn seal(&mut self, datagram: &mut [u8], payload: &[u8]) -> Option<()> {
        if Self::payload_bytes(datagram.len())? != payload.len() {
            return None;
        }
        let message = Message { channel: ChannelId(0), delivery: Delivery::Unreliable, payload };
        let bytes = datagram.len();
        self.seal_frames(datagram, bytes, |frames| frames.message(&message).ok()).map(|_| ())
    }

    /// Writes the next packet to the front of `datagram`: an ack of at most 32 `ranges`, newest first and at least one packet
    /// apart. Returns the length of the packet, or `None` if it does not fit or the packet numbers are used up.
    pub fn seal_ack(
        &mut self,
        datagram: &mut [u8],
        delay: Duration,
        ranges: impl Iterator<Item = AckRange> + Clone,
    ) -> Option<usize> {
        self.seal_frames(datagram, 0, |frames| frames.ack(AckDelay::from_duration(delay), ranges).ok())
    }

    /// Writes the next packet to the front of `datagram`: the frames that `write` writes, and padding up to `min_bytes` and to the
    /// shortest length of a packet. Returns the length of the packet, or `None` if `write` does, the packet does not fit, or the
    /// packet numbers are used up.
    pub fn seal_frames(
        &mut self,
        datagram: &mut [u8],
        min_bytes: usize,
        write: impl FnOnce(&mut FrameWriter<&mut [u8]>) -> Option<()>,
    ) -> Option<usize> {
        let header = self.header()?;
        let (head, rest) = datagram.split_at_mut_checked(header.encoded_bytes())?;
        header.encode(&mut &mut *head).ok()?;
        let around_bytes = head.len() + TAG_BYTES;
        let mut frames = FrameWriter::new(rest.get_mut(..rest.len().checked_sub(TAG_BYTES)?)?);
        write(&mut frames)?;
        let least = min_bytes.saturating_sub(around_bytes).max(header.min_frames_bytes());
        frames.padding(least.saturating_sub(frames.written_bytes())).ok()?;
        let body_bytes = frames.written_bytes();
        let (body, tag) = rest.split_at_mut_checked(body_bytes)?;
        self.sealer.seal(head, body, tag.first_chunk_mut()?).ok()?;
        Some(body_bytes + around_bytes)
    }

    /// Returns the next packet, with exactly these frames.
    ///
    /// # Panics
    ///
    /// Panics if the packet numbers are used up, which no test does.
    pub fn datagram(&mut self, frames: &[u8]) -> Vec<u8> {
        let header = self.header().expect("packet numbers are left");
        let mut datagram = encoded(|datagram| header.encode(datagram));
        let (mut body, mut tag) = (frames.to_vec(), [0; TAG_BYTES]);
        self.sealer.seal(&datagram, &mut body, &mut tag).expect("packet numbers are left");
        datagram.extend(body);
        datagram.extend(tag);
        datagram
    }

    /// Begins the next key epoch of this direction.
    pub(crate) fn change_keys(&mut self) {
        self.sealer.step_to_next_epoch();
        self.sealer.keep_expanded();
        self.key_phase = !self.key_phase;
    }

    fn header(&self) -> Option<TransportHeader> {
        let number = PacketNumber(self.next_number()?).truncate(PacketNumberLength::Four);
        Some(TransportHeader { key_phase: self.key_phase, connection_id: self.connection_id, number })
    }
}

/// The opening half of a connection. Without a replay window, it also opens repeated packets.
#[derive(Debug)]
pub struct PacketOpener {
    opener: Opener,
    id_length: ConnectionIdLength,
    /// The largest packet number that the other end has sent.
    largest: Option<PacketNumber>,
}

impl PacketOpener {
    pub(crate) fn new(keys: OpenKeys, id_length: ConnectionIdLength) -> Self {
        let mut opener = Opener::new(keys);
        opener.keep_expanded();
        Self { opener, id_length, largest: None }
    }

    /// Returns the whole number of a packet with this header.
    #[must_use]
    pub fn number(&self, header: &TransportHeader) -> u64 {
        header.number.expand(self.largest).0
    }

    /// Opens a packet in place, and returns its number and its frames. Returns `None` for any other datagram.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<(u64, &'a mut [u8])> {
        let header = TransportHeader::decode(datagram, self.id_length).ok()?;
        self.open_with(&header, datagram)
    }

    /// Opens a packet whose header was decoded before, like [`Self::open`].
    pub fn open_with<'a>(
        &mut self,
        header: &TransportHeader,
        datagram: &'a mut [u8],
    ) -> Option<(u64, &'a mut [u8])> {
        let number = self.number(header);
        let (aad, sealed) = datagram.split_at_mut_checked(header.encoded_bytes())?;
        let opened = self.opener.open(number, header.key_phase, aad, sealed).ok()?;
        self.largest = self.largest.max(Some(PacketNumber(number)));
        Some((number, opened.body))
    }

    /// Returns the key phase of the newest epoch.
    pub(crate) const fn key_phase(&self) -> bool {
        self.opener.key_phase()
    }

    /// Begins the next key epoch of this direction.
    pub(crate) fn change_keys(&mut self) {
        self.opener.step_to_next_epoch();
    }
}
