//! For tools that measure: the first two stages of receiving alone, packets sealed without a connection's books, and counts
//! that no application needs (feature `measure`).
//!
//! Nothing here belongs into a game: what is opened only is neither acknowledged nor delivered, and what a
//! [`PacketSealer`] sends is never sent again.

use std::time::Duration;

use drumfire_crypto::{Entropy, Secret, TAG_BYTES};
use drumfire_wire::{
    AckDelay, AckRange, ChannelId, ConnectionId, Delivery, FrameWriter, Message, PacketNumber,
    PacketNumberLength, TransportHeader,
};

use super::Endpoint;
use crate::datagram::Inbound;
use crate::placement::Placement;
use crate::session::Session;
use crate::slab::PeerId;
use crate::stats::add;
use crate::time::Now;

/// Bytes of the connection id, the header's other parts with a packet number of four bytes, and the tag.
const PACKET_BYTES: usize = 1 + 8 + 4 + TAG_BYTES;

impl<P: Placement> Endpoint<P> {
    /// Parses and opens datagrams like [`Endpoint::handle_datagrams`], and gives the frames of every packet that
    /// opened to `opened` instead of delivering them. Handshakes are taken in as ever, and drops are counted.
    ///
    /// Connections that are only opened look silent: give them long timeouts.
    pub fn open_datagrams<'a>(
        &mut self,
        now: Now,
        batch: impl IntoIterator<Item = Inbound<'a>>,
        mut opened: impl FnMut(&[u8]),
    ) {
        self.stages(now, batch, |endpoint, now, staged| match staged.frames() {
            Some(frames) => {
                add(&mut endpoint.stats.packets_received, 1);
                opened(frames);
            }
            None => endpoint.deliver(now, staged),
        });
    }

    /// Takes a connection out of the endpoint and returns its sealing half, with which packets can be sent that no connection
    /// remembers. `None` for a stale id and before the handshake is over.
    pub fn take_sealer(&mut self, peer: PeerId) -> Option<PacketSealer> {
        let connection = self.connections.get_mut(peer)?;
        let connection_id = connection.path.remote_id;
        let mut session = connection.session.take()?;
        session.expand();
        self.remove(peer);
        Some(PacketSealer { session, connection_id })
    }

    /// Bytes of a connection's packets that ask for an ack and have none, `None` for a stale id.
    #[must_use]
    pub fn in_flight_bytes(&self, peer: PeerId) -> Option<usize> {
        self.connections.get(peer).map(|connection| connection.loss.in_flight_bytes())
    }

    /// How many lines of waiting messages were looked at so far to fill a connection's packets, `None` for a stale id.
    /// Counted from 0 again after the connection was idle.
    #[must_use]
    pub fn lines_visited(&self, peer: PeerId) -> Option<u64> {
        self.connections.get(peer).map(|connection| connection.sending.visits())
    }

    /// How many slots and timers were looked at so far to find what is due, and connections to find what there is to send.
    #[must_use]
    pub const fn connections_visited(&self) -> u64 {
        self.timers.visits().saturating_add(self.turns)
    }

    /// What is random comes from this seed from now on, so that endpoints with unlike pasts can be compared.
    pub fn reseed(&mut self, seed: Secret<32>) {
        self.entropy = Entropy::from_seed(seed);
    }
}

/// Seals packets one after the other: of one unreliable message, of one ack, or of any frames.
#[derive(Debug)]
pub struct PacketSealer {
    session: Session,
    connection_id: Option<ConnectionId>,
}

impl PacketSealer {
    /// How long the message of a datagram of this many bytes is; `None` when the datagram has no room for one.
    #[must_use]
    pub fn payload_bytes(datagram_bytes: usize) -> Option<usize> {
        // Type, channel 0, and the length in one byte or two; where neither is right, a byte stays for padding.
        let room = datagram_bytes.checked_sub(PACKET_BYTES)?.checked_sub(3)?;
        Some(if room < 128 { room } else { room.saturating_sub(1) })
    }

    /// Fills `datagram` with the next packet, whose message is `payload`, on channel 0. It must be as long as
    /// [`Self::payload_bytes`] says. `None` when that is not so, or when the keys are used up.
    pub fn seal(&mut self, datagram: &mut [u8], payload: &[u8]) -> Option<()> {
        if Self::payload_bytes(datagram.len())? != payload.len() {
            return None;
        }
        let message = Message { channel: ChannelId(0), delivery: Delivery::Unreliable, payload };
        let bytes = datagram.len();
        self.seal_frames(datagram, bytes, |frames| frames.message(&message).ok()).map(|_| ())
    }

    /// Writes the next packet to the front of `datagram`: an ack of `ranges`, which come newest first and at least one packet
    /// apart, at most 32 of them. Answers its length; `None` when it does not fit, or when the keys are used up.
    pub fn seal_ack(
        &mut self,
        datagram: &mut [u8],
        delay: Duration,
        ranges: impl Iterator<Item = AckRange> + Clone,
    ) -> Option<usize> {
        self.seal_frames(datagram, 0, |frames| frames.ack(AckDelay::from_duration(delay), ranges).ok())
    }

    /// Writes the next packet to the front of `datagram`: what `write` writes, and padding where that has fewer than
    /// `min_bytes` or than any packet must have. Returns the length of the packet; `None` when it does not fit, or when the keys
    /// are used up.
    pub fn seal_frames(
        &mut self,
        datagram: &mut [u8],
        min_bytes: usize,
        write: impl FnOnce(&mut FrameWriter<&mut [u8]>) -> Option<()>,
    ) -> Option<usize> {
        let number = PacketNumber(self.session.unused());
        let header = TransportHeader {
            key_phase: false,
            connection_id: self.connection_id,
            number: number.truncate(PacketNumberLength::Four),
        };
        let (head, rest) = datagram.split_at_mut_checked(header.encoded_bytes())?;
        header.encode(&mut &mut *head).ok()?;
        let around_bytes = head.len().checked_add(TAG_BYTES)?;
        let mut frames = FrameWriter::new(rest.get_mut(..rest.len().checked_sub(TAG_BYTES)?)?);
        write(&mut frames)?;
        let least = min_bytes.saturating_sub(around_bytes).max(header.min_frames_bytes());
        frames.padding(least.saturating_sub(frames.written_bytes())).ok()?;
        let body_bytes = frames.written_bytes();
        let (body, tag) = rest.split_at_mut_checked(body_bytes)?;
        self.session.seal(head, body, tag.first_chunk_mut()?).ok()?;
        body_bytes.checked_add(around_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Alone, ClientConfig, Config, Event, Moment, Secret, ServerConfig, ServerIdentity, ServerKeyPair,
    };
    use drumfire_wire::{Frame, Frames};
    use std::net::SocketAddr;

    const CLIENT: &str = "192.0.2.1:1";

    fn connected() -> (Endpoint<Alone>, PacketSealer) {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
        let server = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
        let mut server =
            Endpoint::server(Config::default(), server, Alone::default(), Secret::new([4; 32])).unwrap();
        let mut client =
            Endpoint::client(Config::default(), ClientConfig::default(), Secret::new([5; 32])).unwrap();
        let (now, at) = (Now::default(), "192.0.2.2:2".parse().unwrap());
        let peer = client.connect(now, at, &identity, None).unwrap();
        assert!(client.take_sealer(peer).is_none(), "there are no keys yet");
        let peer = client.connect(now, at, &identity, None).unwrap_or(peer);
        let mut memory = [0; 1200];
        for _ in 0..4 {
            while let Some(sent) = client.poll_transmit(now, &mut memory) {
                take(&mut server, &mut memory[..sent.bytes]);
            }
            while let Some(sent) = server.poll_transmit(now, &mut memory) {
                client.handle_datagrams(now, [Inbound { from: at.into(), bytes: &mut memory[..sent.bytes] }]);
            }
        }
        while server.poll_event().is_some() {}
        (server, client.take_sealer(peer).unwrap())
    }

    fn take(server: &mut Endpoint<Alone>, bytes: &mut [u8]) {
        server.handle_datagrams(
            Now::default(),
            [Inbound { from: CLIENT.parse::<SocketAddr>().unwrap().into(), bytes }],
        );
    }

    #[test]
    fn a_packet_has_the_length_asked_for_and_its_message_is_delivered() {
        let (mut server, mut sealer) = connected();
        for bytes in 32..=1_200 {
            let payload = vec![7; PacketSealer::payload_bytes(bytes).unwrap()];
            let mut datagram = vec![0; bytes];
            sealer.seal(&mut datagram, &payload).unwrap();
            // Another pass each time: of one connection a pass opens only so many.
            let now = Now { monotonic: Moment::from_nanos(bytes as u64), ..Now::default() };
            let from = CLIENT.parse::<SocketAddr>().unwrap();
            server.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut datagram }]);
            let Some(Event::Message { bytes, .. }) = server.poll_event() else { panic!("{bytes}") };
            assert_eq!(bytes, payload);
        }
    }

    #[test]
    fn what_does_not_fit_exactly_is_not_sealed() {
        let (_, mut sealer) = connected();
        assert_eq!(PacketSealer::payload_bytes(31), None);
        assert_eq!(PacketSealer::payload_bytes(32), Some(0));
        assert_eq!(PacketSealer::payload_bytes(159), Some(127));
        assert_eq!(PacketSealer::payload_bytes(160), Some(127));
        assert_eq!(PacketSealer::payload_bytes(161), Some(128));
        assert!(sealer.seal(&mut [0; 100], &[0; 67]).is_none());
        assert!(sealer.seal(&mut [0; 100], &[0; 68]).is_some());
        assert!(sealer.seal(&mut [0; 100], &[0; 69]).is_none());
    }

    #[test]
    fn an_ack_that_was_sealed_settles_what_is_under_way_and_a_sent_message_visits_its_line() {
        let (mut server, mut sealer) = connected();
        let peer = server.connections.id_at(0).unwrap();
        let (now, mut memory) = (Now::default(), [0; 1200]);
        while server.poll_transmit(now, &mut memory).is_some() {}
        assert_eq!(server.lines_visited(peer), Some(0));
        let number = PacketNumber(server.connections.get(peer).unwrap().session.as_ref().unwrap().unused());
        server.send(now, peer, ChannelId(3), "x".into(), crate::SendOptions::reliable_ordered()).unwrap();
        let sent = server.poll_transmit(now, &mut memory).unwrap();
        assert!(server.lines_visited(peer).unwrap() > 0);
        assert!(server.in_flight_bytes(peer).unwrap() >= sent.bytes);
        let mut datagram = [0; 100];
        let ranges = AckRange::new(PacketNumber(0), number).into_iter();
        let bytes = sealer.seal_ack(&mut datagram, Duration::ZERO, ranges).unwrap();
        assert!(bytes < 50, "no more than it must be: {bytes}");
        take(&mut server, &mut datagram[..bytes]);
        assert_eq!((server.in_flight_bytes(peer), server.stats().dropped_count()), (Some(0), 0));
    }

    #[test]
    fn opening_alone_delivers_and_acknowledges_nothing() {
        let (mut server, mut sealer) = connected();
        let mut memory = [0; 1200];
        while server.poll_transmit(Now::default(), &mut memory).is_some() {}
        let mut datagram = [0; 100];
        sealer.seal(&mut datagram, &[9; 68]).unwrap();
        let (mut first, mut forged) = (datagram, datagram);
        forged[50] ^= 1;
        let mut payloads = Vec::new();
        for bytes in [&mut first[..], &mut datagram, &mut forged] {
            let batch = [Inbound { from: CLIENT.parse::<SocketAddr>().unwrap().into(), bytes }];
            server.open_datagrams(Now::default(), batch, |frames| {
                let Some(Ok(Frame::Message(message))) = Frames::new(frames).next() else {
                    panic!("a message")
                };
                payloads.push(message.payload.to_vec());
            });
        }
        assert_eq!(payloads, [[9; 68]]);
        assert!(server.poll_event().is_none() && server.poll_transmit(Now::default(), &mut memory).is_none());
        assert_eq!(server.stats().dropped(crate::DropReason::Duplicate), 2);
    }
}
