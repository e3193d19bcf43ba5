//! The steps of a packet's path between two endpoints in memory, of which callgrind counts one.
//!
//! Packets arrive in batches, as from one receive call. The preparation of input is no step.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{ChannelId, Config, DropReason, Endpoint, Inbound, Message, Now, SingleWorker};
use drumfire_puppet::PacketSealer;

use crate::memory::{
    BATCH, Datagrams, Group, SealedPeer, UNLIMITED, client_address, server_address, take_messages,
};

/// The size of a packet, except for the few that are longer than usual.
pub const PACKET_BYTES: usize = 128;

/// The virtual time between two batches. It gives a million packets per second.
pub const BATCH_INTERVAL: Duration = Duration::from_micros(32);

const MILLISECOND: Duration = Duration::from_millis(1);

/// The virtual time within which an end may send again, in milliseconds.
const MAY_SEND_WITHIN_MS: u32 = 1_000;

/// The name of [`counted_part`] in the patterns of callgrind.
pub const COUNTED_PART: &str = "*counted_part*";

/// Does work whose instructions count.
#[inline(never)]
pub fn counted_part<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Does work that counts only if `counts`.
pub fn count_if<T>(counts: bool, work: impl FnOnce() -> T) -> T {
    if counts { counted_part(work) } else { work() }
}

/// The step of a [`Stream`] that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
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

/// Returns the sizes of the batches that add up to `count`.
pub fn batches(count: u64) -> impl Iterator<Item = usize> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    (0..count).step_by(BATCH).map(move |start| BATCH.min(count - start))
}

/// Seals packets with one unreliable message each.
///
/// # Panics
///
/// When packet numbers run out, which takes years.
pub fn packets(peer: &mut SealedPeer, count: usize) -> Vec<[u8; PACKET_BYTES]> {
    let payload = [7; PACKET_BYTES];
    let length = PacketSealer::payload_bytes(PACKET_BYTES).expect("room for a message");
    let packet = || {
        let mut packet = [0; PACKET_BYTES];
        peer.sealer.seal(&mut packet, &payload[..length]).expect("numbers are left");
        packet
    };
    std::iter::repeat_with(packet).take(count).collect()
}

/// Returns packets as they arrive from the peer.
pub fn inbound(packets: &mut [[u8; PACKET_BYTES]]) -> impl Iterator<Item = Inbound<'_>> {
    packets.iter_mut().map(|bytes| Inbound { from: client_address().into(), bytes })
}

/// Receives `count` copies of packets that were opened before. Header, look-up, and replay window count.
///
/// # Panics
///
/// When a copy is not refused as a duplicate.
pub fn find(peer: &mut SealedPeer, count: u64) {
    let copies = packets(peer, BATCH);
    // After a newer packet, no copy is of the newest packet, which could start a migration.
    for mut opened in [copies.clone(), packets(peer, 1)] {
        peer.pass(BATCH_INTERVAL);
        peer.endpoint.handle_datagrams(peer.now, inbound(&mut opened));
        take_messages(&mut peer.endpoint);
    }
    for batch in batches(count) {
        let mut copies = copies.clone();
        peer.pass(BATCH_INTERVAL);
        counted_part(|| peer.endpoint.handle_datagrams(peer.now, inbound(&mut copies[..batch])));
    }
    assert_eq!(peer.endpoint.stats().dropped(DropReason::Duplicate), count, "every copy is a duplicate");
}

/// All work of an endpoint for a batch of packets. Returns the number of messages that it delivered.
fn receive<'a>(
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

/// Receives packets of unreliable messages, up to the events and the acks that follow. Counts all of it, or taking the events alone.
///
/// # Panics
///
/// When a message is not delivered.
pub fn receive_unreliable(peer: &mut SealedPeer, counts_all: bool, count: u64) {
    let (mut answers, mut taken) = (Datagrams::default(), 0);
    answers.reserve(2 * BATCH);
    for batch in batches(count) {
        let mut packets = packets(peer, batch);
        peer.pass(BATCH_INTERVAL);
        answers.clear();
        let (server, now) = (&mut peer.endpoint, peer.now);
        count_if(counts_all, || {
            server.handle_datagrams(now, inbound(&mut packets));
            server.handle_timeout(now);
        });
        taken += counted_part(|| take_messages(server));
        count_if(counts_all, || answers.take_all_from(server, now));
    }
    assert_eq!((taken, peer.endpoint.stats().dropped_count()), (count, 0), "delivered and dropped");
}

/// Two endpoints, of which one sends reliable messages to the other.
pub struct Stream {
    group: Group,
    is_to_server: bool,
    packets: Datagrams,
    answers: Datagrams,
    /// The number of messages in a packet, and the payload of each.
    per_packet: u64,
    payload: &'static [u8],
    /// Messages that the application sent, and those that arrived.
    given: u64,
    delivered: u64,
}

impl Stream {
    /// A stream to the server, or from it, of packets that `per_packet` messages fill.
    ///
    /// # Panics
    ///
    /// When no connection is made.
    pub fn new(is_to_server: bool, (per_packet, payload): (u64, &'static [u8])) -> Self {
        let group = Group::connect(1, &Config::default().congestion(UNLIMITED)).expect("a connection");
        let [mut packets, mut answers] = [Datagrams::default(), Datagrams::default()];
        packets.reserve(2 * BATCH);
        answers.reserve(2 * BATCH);
        Self { group, is_to_server, packets, answers, per_packet, payload, given: 0, delivered: 0 }
    }

    /// Sends this number of packets, of which this step counts.
    ///
    /// # Panics
    ///
    /// When a message is not delivered.
    pub fn run(mut self, packets: u64, step: Step) {
        for made in 1..=packets {
            for waited in 0.. {
                if self.make_packet(step) {
                    break;
                }
                assert!(waited < MAY_SEND_WITHIN_MS, "the sender may not send");
                self.group.pass(MILLISECOND);
                self.deliver(step);
            }
            if made.is_multiple_of(BATCH as u64) || made == packets {
                self.group.pass(BATCH_INTERVAL);
                self.deliver(step);
            }
        }
        let sent = packets * self.per_packet;
        let [(sender, _), (receiver, _)] = ends(&mut self.group, self.is_to_server);
        assert_eq!((sender.stats().messages_sent, self.delivered), (sent, sent));
        assert_eq!(receiver.stats().dropped_count(), 0);
    }

    /// Sends messages and makes their packet. Returns false when no packet may be sent now.
    fn make_packet(&mut self, step: Step) -> bool {
        let (link, now) = (self.group.links[0], self.group.now);
        let peer = if self.is_to_server { link.server } else { link.client };
        let Self { group, is_to_server, packets, given, per_packet, payload, .. } = self;
        let [(sender, _), _] = ends(group, *is_to_server);
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
        count_if(matches!(step, Step::Queue | Step::Send), || give(sender))
            && count_if(matches!(step, Step::Seal | Step::Send), || packets.take_from(sender, now))
    }

    /// Delivers the packets, and the acks that the receiver sends.
    fn deliver(&mut self, step: Step) {
        let now = self.group.now;
        let Self { group, is_to_server, packets, answers, delivered, .. } = self;
        let [(sender, from), (receiver, to)] = ends(group, *is_to_server);
        let inbound = packets.inbound(from);
        *delivered += count_if(step == Step::Receive, || receive(receiver, now, inbound, answers));
        packets.clear();
        let answered = answers.inbound(to);
        count_if(step == Step::Ack, || {
            sender.handle_datagrams(now, answered);
            sender.handle_timeout(now);
            while sender.poll_event().is_some() {}
        });
        answers.clear();
    }
}

/// The sender and the receiver of a stream, each with its address.
fn ends(group: &mut Group, is_to_server: bool) -> [(&mut Endpoint<SingleWorker>, SocketAddr); 2] {
    let Group { server, client, .. } = group;
    let (client, server) = ((client, client_address()), (server, server_address()));
    if is_to_server { [client, server] } else { [server, client] }
}
