//! The two halves of a connection after its handshake. They seal and open packets in place and remember nothing of them.

use std::time::Duration;

use drumfire_crypto::{OpenKeys, Opener, SealKeys, Sealer, TAG_BYTES};
use drumfire_wire::{
    AckDelay, AckRange, ChannelId, ConnectionId, ConnectionIdLength, Delivery, FrameWriter, Message,
    PacketNumber, PacketNumberLength, TransportHeader,
};

/// Bytes of a packet to a server without its frames: the type, the connection id, a packet number of four bytes, and the tag.
const AROUND_FRAMES_BYTES: usize = 1 + ConnectionId::BYTES + 4 + TAG_BYTES;

/// Bytes of a message frame without its payload and the second byte of the length: the type, channel 0, and the length.
const MESSAGE_FIELDS_BYTES: usize = 3;

/// Seals packets, each with the next packet number.
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
    /// If the packet numbers are used up, which no test does.
    pub fn datagram(&mut self, frames: &[u8]) -> Vec<u8> {
        let header = self.header().expect("packet numbers are left");
        let mut datagram = Vec::new();
        header.encode(&mut datagram).expect("a vector has room");
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

/// Opens packets. It takes a packet as often as it comes, because it has no replay window.
#[derive(Debug)]
pub struct PacketOpener {
    opener: Opener,
    id_length: ConnectionIdLength,
    /// The largest packet number that came from the other end.
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
