//! The steps of a packet's path between two endpoints in memory. A [`Meter`] measures some of them.
//!
//! Packets come in batches, as from one receive call. The preparation of input is no step.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{ChannelId, Config, DropReason, Endpoint, Inbound, Message, Now, PeerId, SingleWorker};
use drumfire_puppet::PacketSealer;

use crate::memory::{
    BATCH, Datagrams, Group, SealedPeers, UNLIMITED, client_address, server_address, take_messages,
};

/// The size of a packet, except for the few that are longer than usual.
pub const PACKET_BYTES: usize = 128;

/// The virtual time between two batches. It gives a million packets per second.
pub const BATCH_INTERVAL: Duration = Duration::from_micros(32);

const MILLISECOND: Duration = Duration::from_millis(1);

/// The virtual time within which an end may send again, in milliseconds.
const MAY_SEND_WITHIN_MS: u32 = 1_000;

/// A step that a [`Meter`] can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The steps before the open: header, look-up, and replay window.
    Find,
    /// The way from the packet to the event, and the acks that follow.
    Receive,
    /// Queueing a message.
    Queue,
    /// Making a packet of a message that waits: frames, bookkeeping, header, and sealing.
    Seal,
    /// Both of [`Self::Queue`] and [`Self::Seal`].
    Send,
    /// Handling the acks of packets.
    Ack,
}

/// Measures the steps that it is made for.
pub trait Meter {
    /// Whether this step is measured.
    fn is_of(&self, step: Step) -> bool;

    /// Does the work of a step that is measured.
    fn measure<T>(&mut self, work: impl FnOnce() -> T) -> T;
}

/// Does the work of a step.
fn run<T>(meter: &mut impl Meter, step: Step, work: impl FnOnce() -> T) -> T {
    if meter.is_of(step) { meter.measure(work) } else { work() }
}

/// Returns the sizes of the batches that add up to `count`.
pub fn batches(count: u64) -> impl Iterator<Item = usize> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    (0..count).step_by(BATCH).map(move |start| BATCH.min(count - start))
}

/// A packet with the address from which it comes.
pub type SealedPacket = (SocketAddr, [u8; PACKET_BYTES]);

/// Seals packets with one unreliable message each. The peers take turns.
///
/// # Panics
///
/// When packet numbers run out, which takes years.
pub fn packets(sealed: &mut SealedPeers, count: usize) -> Vec<SealedPacket> {
    let payload = [7; PACKET_BYTES];
    let length = PacketSealer::payload_bytes(PACKET_BYTES).expect("room for a message");
    let packet = || {
        sealed.peers.rotate_left(1);
        let (peer, mut packet) = (&mut sealed.peers[0], [0; PACKET_BYTES]);
        peer.sealer.seal(&mut packet, &payload[..length]).expect("numbers are left");
        (peer.address, packet)
    };
    std::iter::repeat_with(packet).take(count).collect()
}

/// Returns packets as they arrive.
pub fn inbound(packets: &mut [SealedPacket]) -> impl Iterator<Item = Inbound<'_>> {
    packets.iter_mut().map(|(from, bytes)| Inbound { from: (*from).into(), bytes })
}

/// Receives `count` copies of packets that were opened before, see [`Step::Find`].
///
/// # Panics
///
/// When a copy is not refused as a duplicate.
pub fn find(sealed: &mut SealedPeers, count: u64, meter: &mut impl Meter) {
    let peers = sealed.peers.len();
    // The replay window of a new connection is narrow. It must remember all copies, or they are too old instead of duplicates.
    let copies = packets(sealed, BATCH * peers.min(16));
    // After newer packets, no copy is of a connection's newest packet, which could start a migration.
    for mut opened in [copies.clone(), packets(sealed, peers)] {
        for batch in opened.chunks_mut(BATCH) {
            sealed.pass(BATCH_INTERVAL);
            sealed.endpoint.handle_datagrams(sealed.now, inbound(batch));
            take_messages(&mut sealed.endpoint);
        }
    }
    for (place, batch) in batches(count).enumerate() {
        let mut copies: Vec<_> =
            copies.chunks(BATCH).cycle().nth(place % peers.min(16)).unwrap_or_default().to_vec();
        sealed.pass(BATCH_INTERVAL);
        let (server, now) = (&mut sealed.endpoint, sealed.now);
        run(meter, Step::Find, || server.handle_datagrams(now, inbound(&mut copies[..batch])));
    }
    assert_eq!(sealed.endpoint.stats().dropped(DropReason::Duplicate), count, "every copy is a duplicate");
}

/// All work of an endpoint for a batch of packets. Returns the number of messages that it delivered.
pub fn receive<'a>(
    endpoint: &mut Endpoint<SingleWorker>,
    now: Now,
    batch: impl Iterator<Item = Inbound<'a>>,
    answers: &mut Datagrams,
) -> u64 {
    endpoint.handle_datagrams(now, batch);
    endpoint.handle_timeout(now);
    let delivered = take_messages(endpoint);
    answers.take_all_from(endpoint, now);
    delivered
}

/// Receives packets of unreliable messages, see [`Step::Receive`]. Returns the number of acks.
///
/// # Panics
///
/// When a message is not delivered.
pub fn receive_unreliable(sealed: &mut SealedPeers, count: u64, meter: &mut impl Meter) -> usize {
    let (mut answers, mut acks, mut delivered) = (Datagrams::default(), 0, 0);
    answers.reserve(2 * BATCH);
    for batch in batches(count) {
        let mut packets = packets(sealed, batch);
        sealed.pass(BATCH_INTERVAL);
        answers.clear();
        let (server, now) = (&mut sealed.endpoint, sealed.now);
        delivered += run(meter, Step::Receive, || receive(server, now, inbound(&mut packets), &mut answers));
        acks += answers.count();
    }
    assert_eq!((delivered, sealed.endpoint.stats().dropped_count()), (count, 0), "delivered and dropped");
    acks
}

/// Two endpoints, of which one sends reliable messages to the other.
pub struct Stream {
    sender: Endpoint<SingleWorker>,
    receiver: Endpoint<SingleWorker>,
    /// The handle of the receiver, at the sender.
    peer: PeerId,
    /// The addresses of the sender and of the receiver.
    addresses: [SocketAddr; 2],
    now: Now,
    packets: Datagrams,
    answers: Datagrams,
    /// The number of messages in a packet, and the payload of each.
    per_packet: u64,
    payload: &'static [u8],
    /// Messages that the application sent, and those that arrived.
    given: u64,
    delivered: u64,
    /// Datagrams with acks, and the bytes of all packets.
    acks: usize,
    bytes: usize,
}

impl Stream {
    /// A stream to the server, or from it, of packets that `per_packet` messages fill.
    ///
    /// # Panics
    ///
    /// When no connection is made.
    pub fn new(is_to_server: bool, config: Config, (per_packet, payload): (u64, &'static [u8])) -> Self {
        let group = Group::connect(1, &config.congestion(UNLIMITED)).expect("a connection");
        let Group { server, client, links, now } = group;
        let (sender, receiver, peer, addresses) = if is_to_server {
            (client, server, links[0].server, [client_address(), server_address()])
        } else {
            (server, client, links[0].client, [server_address(), client_address()])
        };
        let [mut packets, mut answers] = [Datagrams::default(), Datagrams::default()];
        packets.reserve(2 * BATCH);
        answers.reserve(2 * BATCH);
        let (given, delivered, acks, bytes) = (0, 0, 0, 0);
        Self {
            sender,
            receiver,
            peer,
            addresses,
            now,
            packets,
            answers,
            per_packet,
            payload,
            given,
            delivered,
            acks,
            bytes,
        }
    }

    /// Sends this number of packets. Returns the number of acks, and the bytes of all packets.
    ///
    /// # Panics
    ///
    /// When a message is not delivered.
    pub fn run(mut self, packets: u64, meter: &mut impl Meter) -> (usize, usize) {
        for made in 1..=packets {
            for waited in 0.. {
                if self.make_packet(meter) {
                    break;
                }
                assert!(waited < MAY_SEND_WITHIN_MS, "the sender may not send");
                self.now.monotonic = self.now.monotonic.after(MILLISECOND);
                self.deliver(meter);
            }
            if made.is_multiple_of(BATCH as u64) || made == packets {
                self.now.monotonic = self.now.monotonic.after(BATCH_INTERVAL);
                self.deliver(meter);
            }
        }
        let sent = packets * self.per_packet;
        assert_eq!((self.sender.stats().messages_sent, self.delivered), (sent, sent));
        assert_eq!(self.receiver.stats().dropped_count(), 0);
        (self.acks, self.bytes)
    }

    /// Sends messages and makes their packet. Returns false when no packet may be sent now.
    fn make_packet(&mut self, meter: &mut impl Meter) -> bool {
        let Self { sender, packets, given, per_packet, payload, .. } = self;
        let (now, peer) = (self.now, self.peer);
        // Messages that wait are sent before the next ones are given.
        let wanted = sender.stats().messages_sent + *per_packet;
        let mut give = |sender: &mut Endpoint<SingleWorker>| {
            while *given < wanted {
                let message = Message::reliable_ordered(ChannelId(0), *payload);
                if sender.send(now, peer, message).is_err() {
                    return false;
                }
                *given += 1;
            }
            true
        };
        if meter.is_of(Step::Send) {
            return meter.measure(|| give(sender) && packets.take_from(sender, now));
        }
        run(meter, Step::Queue, || give(sender)) && run(meter, Step::Seal, || packets.take_from(sender, now))
    }

    /// Delivers the packets, and the acks that the receiver sends.
    fn deliver(&mut self, meter: &mut impl Meter) {
        let Self { sender, receiver, addresses: [from, to], packets, answers, .. } = self;
        let now = self.now;
        self.bytes += packets.inbound(*from).map(|packet| packet.bytes.len()).sum::<usize>();
        let inbound = packets.inbound(*from);
        self.delivered += run(meter, Step::Receive, || receive(receiver, now, inbound, answers));
        packets.clear();
        self.acks += answers.count();
        let answered = answers.inbound(*to);
        run(meter, Step::Ack, || {
            sender.handle_datagrams(now, answered);
            sender.handle_timeout(now);
            while sender.poll_event().is_some() {}
        });
        answers.clear();
    }
}
