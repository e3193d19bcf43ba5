//! The stages: receiving and sending at a server, connections without traffic, and datagrams that a server refuses.
//!
//! Only the work within [`counted_part`] counts. The code around it makes the input and checks the outcome.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use drumfire::{Bytes, Client, ClientConfig, Event, PeerId, Server, Workers};
use drumfire_benches::OpenAlone;
use drumfire_benches::hellos::{Flaw, Refusals};
use drumfire_benches::memory::{
    BATCH, Datagrams, Group, SealedPeer, UNLIMITED, client_address, server_address, take_messages,
};
use drumfire_benches::roles::{config, key};
use drumfire_benches::steps::{BATCH_INTERVAL, PACKET_BYTES, batches, count_if, counted_part};
use drumfire_crypto::Suite;
use drumfire_proto::{BlockOptions, ChannelId, Config, DropReason, Inbound, MessageBlock, SendOptions};
use drumfire_puppet::PacketSealer;
use drumfire_wire::{
    AckRange, ConnectionId, ConnectionIdLength, Delivery, FrameWriter, Frames, Message, PacketNumber,
    PacketNumberLength, TransportHeader, limits::ACK_RANGES_SENT,
};

/// The payload of a reliable message that fills a packet of [`PACKET_BYTES`].
pub(crate) const PAYLOAD: &[u8] = &[7; 97];

/// The members of a group, and the messages that are broadcast to it in one turn.
const MEMBERS: u32 = 64;
const MESSAGES: usize = 137;

/// The messages that the members receive in one turn.
pub(crate) const DELIVERIES: u64 = MEMBERS as u64 * MESSAGES as u64;

/// A server with one client whose packets carry no acks.
pub(crate) fn sealed(config: Config) -> SealedPeer {
    SealedPeer::of_server(config.has_aes_gcm(false), None).expect("a connection")
}

/// Returns the header of a packet with this connection id.
fn header(id: [u8; 8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let number = PacketNumber(77_777).truncate(PacketNumberLength::Four);
    let connection_id = Some(ConnectionId::from_bytes(id));
    TransportHeader { key_phase: false, connection_id, number }.encode(&mut packet).expect("room");
    packet
}

/// Reads the header, and the frames as if the packet were open: one unreliable message.
pub(crate) fn parse(count: u64) {
    let mut packet = header([7; 8]);
    let head_bytes = packet.len();
    let payload = [7; PACKET_BYTES];
    let length = PacketSealer::payload_bytes(PACKET_BYTES).expect("room for a message");
    let message =
        Message { channel: ChannelId(0), delivery: Delivery::Unreliable, payload: &payload[..length] };
    FrameWriter::new(&mut packet).message(&message).expect("room");
    for batch in batches(count) {
        counted_part(|| {
            for _ in 0..batch {
                let packet = black_box(&packet[..]);
                let header = TransportHeader::decode(packet, ConnectionIdLength::Eight);
                assert!(black_box(header).is_ok());
                let frames = Frames::new(&packet[head_bytes..]);
                assert_eq!(frames.filter(|frame| black_box(frame).is_ok()).count(), 1);
            }
        });
    }
}

/// Opens packets with the cipher alone.
pub(crate) fn open(suite: Suite, count: u64) {
    OpenAlone::new(suite).run(count, |open| counted_part(open));
}

/// Receives an ack of `packets` new packets: parse, open, remove the packets from those in flight, and measure the round trip.
pub(crate) fn receive_acks(count: u64, packets: u64) {
    let mut sealed = sealed(Config::default().congestion(UNLIMITED));
    for _ in 0..count {
        sealed.pass(BATCH_INTERVAL);
        let mut numbers = Vec::new();
        for _ in 0..packets {
            sealed.send(PAYLOAD, SendOptions::unreliable());
            numbers.push(sealed.take_packet().expect("a packet"));
        }
        receive_ack(&mut sealed, &numbers);
        let in_flight = sealed.endpoint.peer_stats(sealed.now, sealed.id);
        assert_eq!(in_flight.map(|stats| stats.in_flight_bytes), Some(0), "the ack is of all packets");
    }
}

/// Seals an ack of these packets, and receives it.
fn receive_ack(sealed: &mut SealedPeer, numbers: &[PacketNumber]) {
    // Room for the widest ack and for the packet around it.
    let mut datagram = [0; 512];
    let bytes = sealed.sealer.seal_ack(&mut datagram, Duration::ZERO, ranges(numbers).into_iter());
    let bytes = &mut datagram[..bytes.expect("numbers and room are left")];
    let SealedPeer { endpoint, now, address, .. } = sealed;
    counted_part(|| endpoint.handle_datagrams(*now, [Inbound { from: (*address).into(), bytes }]));
}

/// Returns rising numbers as ranges, the newest first. A sender skips numbers, and refuses an ack of a skipped one.
pub(crate) fn ranges(numbers: &[PacketNumber]) -> Vec<AckRange> {
    let runs = numbers.chunk_by(|before, next| before.0 + 1 == next.0);
    runs.rev().filter_map(|run| AckRange::new(*run.first()?, *run.last()?)).collect()
}

/// Sends the values of these keys, one per packet. Returns the numbers of the packets.
///
/// Values stand for reliable messages: their packets are remembered until they are acknowledged, and no credit limits them.
pub(crate) fn send_values(sealed: &mut SealedPeer, keys: std::ops::Range<u64>) -> Vec<PacketNumber> {
    let mut numbers = Vec::new();
    for key in keys {
        sealed.send(&[7; 8], SendOptions::reliable_latest(key));
        let number = (0..1_000).find_map(|_| {
            sealed.pass(Duration::from_micros(1));
            sealed.take_packet()
        });
        numbers.push(number.expect("the server may send"));
    }
    numbers
}

/// Receives acks of 32 ranges with one new packet in each, which is the newest of `step` packets in flight. The others of them are lost.
/// Each ack is on a connection of its own, because lost values are sent again in the next packets.
pub(crate) fn widest_acks(count: u64, in_flight: u64, step: usize) {
    let config =
        Config::default().congestion(UNLIMITED).memory_bytes(4 << 20, 4 << 20).in_flight_bytes(64 << 20);
    for _ in 0..count {
        let mut sealed = sealed(config.clone());
        let numbers = send_values(&mut sealed, 1..1 + in_flight);
        let newest: Vec<_> =
            numbers.chunks_exact(step).take(ACK_RANGES_SENT).map(|of| of[step - 1]).collect();
        receive_ack(&mut sealed, &newest);
        let between = (ACK_RANGES_SENT * (step - 1)) as u64;
        let lost = sealed.endpoint.stats().packets_lost;
        // The packets just below the newest acknowledged one may still arrive.
        assert!((between.saturating_sub(4)..=between).contains(&lost), "{lost} of {between} are lost");
    }
}

/// Receives a keep-alive of a client, and acknowledges it.
pub(crate) fn keep_alive(count: u64) {
    let mut group = idle(1);
    let received = |group: &Group| group.server.stats().packets_received;
    let before = received(&group);
    for exchange in 1..=count {
        let is_received = (0..100).any(|_| {
            let due = [group.client.poll_timeout(), group.server.poll_timeout()].into_iter().flatten().min();
            group.now.monotonic = group.now.monotonic.max(due.expect("an end has a timer"));
            group.exchange(true);
            while group.client.poll_event().is_some() {}
            received(&group) >= before + exchange
        });
        assert!(is_received, "the client sends no keep-alive");
    }
    assert_eq!(group.server.connection_count(), 1, "the connection lives");
}

/// Connections that were silent for two seconds, after which nothing is left of the handshakes.
fn idle(connections: u32) -> Group {
    let mut group = Group::connect(connections, &Config::default()).expect("connections");
    for _ in 0..2_000 {
        group.pass(Duration::from_millis(1));
        while group.exchange(false) {}
    }
    group
}

/// Runs a millisecond in which no timer fires. Timers that are due later move closer in the timer wheel.
pub(crate) fn tick(count: u64) {
    let mut group = idle(8_192);
    let mut datagrams = Datagrams::default();
    datagrams.reserve(1);
    for _ in 0..count {
        group.pass(Duration::from_millis(1));
        let (server, now) = (&mut group.server, group.now);
        counted_part(|| {
            server.handle_timeout(now);
            assert!(server.poll_event().is_none(), "an idle connection has no event");
            datagrams.take_all_from(server, now);
        });
        assert_eq!(datagrams.count(), 0, "an idle connection sends nothing");
    }
    assert_eq!(group.server.connection_count(), group.links.len());
}

/// Broadcasts messages to all members until each has received its share of `count`. Counts encoding, queueing, and sealing.
pub(crate) fn broadcast(count: u64) {
    let mut group = Group::connect(MEMBERS, &Config::default().congestion(UNLIMITED)).expect("connections");
    let members: Vec<_> = group.links.iter().map(|link| link.client).collect();
    let options = BlockOptions { channel: ChannelId(0), options: SendOptions::reliable_ordered() };
    let (mut packets, mut delivered) = (Datagrams::default(), 0);
    for _ in 0..count / DELIVERIES {
        let (server, now) = (&mut group.server, group.now);
        counted_part(|| {
            let mut block = MessageBlock::new();
            assert!((0..MESSAGES).all(|_| block.push(&[7; 36])), "the messages of a turn fit into a block");
            let block = Arc::new(block);
            for member in &members {
                let sent = server.send_block(now, *member, &options, &block, 0..MESSAGES);
                assert_eq!(sent, Ok(MESSAGES), "each member has room");
            }
            packets.take_all_from(server, now);
        });
        group.client.handle_datagrams(now, packets.inbound(server_address()));
        packets.clear();
        // All packets are acknowledged before the next turn.
        group.pass(Duration::from_millis(50));
        while group.exchange(false) {}
        delivered += take_messages(&mut group.client);
        while group.server.poll_event().is_some() {}
        assert!(members.iter().all(|member| group.server.undelivered_bytes(*member) == 0));
    }
    assert_eq!(delivered, count);
}

/// Connects clients, from the first Hello of each to the event at the server.
pub(crate) fn handshake(count: u64) {
    let mut group = Group::connect(0, &Config::default().has_aes_gcm(false)).expect("two ends");
    (0..count).for_each(|_| group.join(true).expect("a connection"));
}

/// Receives Hellos with a flaw. Making the answer counts, and taking it does not.
pub(crate) fn refuse(flaw: Flaw, count: u64) {
    let mut refusals = Refusals::new(flaw).expect("a Hello");
    for _ in 0..count {
        counted_part(|| refusals.pass_hello());
        refusals.take_answers();
    }
}

/// Receives packets whose connection id the server did not make.
pub(crate) fn forged_id(count: u64) {
    let mut sealed = sealed(Config::default());
    let packet = |at: u64| {
        let mut packet = header(at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        packet.resize(PACKET_BYTES, 7);
        packet
    };
    let mut packets: Vec<Vec<u8>> = (0..count).map(packet).collect();
    let (server, now) = (&mut sealed.endpoint, sealed.now);
    for batch in packets.chunks_mut(BATCH) {
        let batch = batch.iter_mut().map(|bytes| Inbound { from: client_address().into(), bytes });
        counted_part(|| server.handle_datagrams(now, batch));
    }
    assert_eq!(server.stats().dropped(DropReason::ForgedId), count, "every id is forged");
}

/// Echoes this number of messages through a server without threads. The way in is `poll` and the event of a message, the way out is `send`
/// and `flush` of the answer. The server has real sockets and the real clock, and a client on the same thread.
pub(crate) fn echo(counts_way_in: bool, count: u64) {
    let config = config(1).workers(Workers::Inline);
    let mut server = Server::bind(config).expect("a server on the loopback");
    let mut client = Client::new(ClientConfig::default()).expect("a client");
    let to_server = client.connect((server.local_addr(), key().public())).expect("an address");
    while !matches!(client.next_event(), Some(Event::Connected { .. })) {
        server.poll(Duration::ZERO);
        client.poll(Duration::ZERO);
    }
    for _ in 0..count {
        let message = drumfire::Message::unreliable(ChannelId(0), &PAYLOAD[..64]);
        client.send(to_server, message).expect("there is room for a message");
        client.flush();
        let (to_client, payload) = count_if(counts_way_in, || {
            server.poll(Duration::ZERO);
            next_message(|| server.next_event())
        });
        count_if(!counts_way_in, || {
            let answer = drumfire::Message::unreliable(ChannelId(0), payload);
            server.send(to_client, answer).expect("there is room for an answer");
            server.flush();
        });
        client.poll(Duration::ZERO);
        assert_eq!(next_message(|| client.next_event()).1, &PAYLOAD[..64]);
    }
}

/// Returns the message that must have arrived, because the loopback has no delay, and its sender.
fn next_message(mut next_event: impl FnMut() -> Option<Event>) -> (PeerId, Bytes) {
    loop {
        if let Event::Message { peer, payload, .. } = next_event().expect("a message") {
            return (peer, payload);
        }
    }
}
