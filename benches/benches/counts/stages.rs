//! The stages: receiving and sending at a server, connections without traffic, and datagrams that a server refuses.
//!
//! Only the work within [`counted_part`] counts. The code around it makes the input and checks the outcome.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_benches::OpenAlone;
use drumfire_benches::hellos::{Flaw, Refusals};
use drumfire_benches::memory::{
    BATCH, Datagrams, Group, SealedPeers, UNLIMITED, at_ms, client, client_address, pass_datagram, server,
    server_address, take_datagram, take_messages,
};
use drumfire_benches::steps::{self, BATCH_INTERVAL, PACKET_BYTES, Step, batches, inbound, packets};
use drumfire_crypto::Suite;
use drumfire_proto::{
    Access, ChannelId, ClientConfig, Config, DropReason, Endpoint, Event, Inbound, Now, SendOptions,
    SingleWorker,
};
use drumfire_puppet::PacketSealer;
use drumfire_wire::{
    AckRange, ConnectionId, ConnectionIdLength, Delivery, FrameWriter, Frames, Message, PacketNumber,
    PacketNumberLength, TransportHeader, limits::ACK_RANGES_SENT,
};

use crate::{StepCounter, counted_part};

/// The payload of a reliable message that fills a packet of [`PACKET_BYTES`].
pub(crate) const PAYLOAD: &[u8] = &[7; 97];

/// Room for the widest ack and for the packet around it.
const ACK_BYTES: usize = 512;

/// The number of idle connections.
const IDLE: u32 = 8_192;

const MILLISECOND: Duration = Duration::from_millis(1);

/// A server with one client whose packets carry no acks.
fn sealed(config: Config) -> SealedPeers {
    SealedPeers::of_server(config.has_aes_gcm(false), 1, None).expect("a connection")
}

/// Reads the header, and the frames as if the packet were open: one unreliable message.
pub(crate) fn parse(count: u64) {
    let mut packet = Vec::new();
    let header = TransportHeader {
        key_phase: false,
        connection_id: Some(ConnectionId::from_bytes([7; 8])),
        number: PacketNumber(77_777).truncate(PacketNumberLength::Four),
    };
    header.encode(&mut packet).expect("room");
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

/// Receives copies of packets that were opened before.
pub(crate) fn find(count: u64) {
    steps::find(&mut sealed(Config::default()), count, &mut StepCounter(Step::Find));
}

/// Opens packets with the cipher alone.
pub(crate) fn open(suite: Suite, count: u64) {
    OpenAlone::new(suite).run(count, |open| counted_part(open));
}

/// Takes the messages that were delivered.
pub(crate) fn take_events(count: u64) {
    let (mut sealed, mut answers, mut taken) = (sealed(Config::default()), Datagrams::default(), 0);
    for batch in batches(count) {
        let mut packets = packets(&mut sealed, batch);
        sealed.pass(BATCH_INTERVAL);
        sealed.endpoint.handle_datagrams(sealed.now, inbound(&mut packets));
        let server = &mut sealed.endpoint;
        taken += counted_part(|| take_messages(server));
        answers.clear();
        answers.take_all_from(server, sealed.now);
    }
    assert_eq!(taken, count);
}

/// Receives packets of unreliable messages, up to the event and the acks that follow.
pub(crate) fn receive_unreliable(count: u64) {
    steps::receive_unreliable(&mut sealed(Config::default()), count, &mut StepCounter(Step::Receive));
}

/// Receives an ack of `packets` new packets: parse, open, remove the packets from those in flight, and measure the round trip.
pub(crate) fn receive_acks(count: u64, packets: u64) {
    let mut sealed = sealed(Config::default().congestion(UNLIMITED));
    for _ in 0..count {
        sealed.pass(BATCH_INTERVAL);
        let mut numbers = Vec::new();
        for _ in 0..packets {
            sealed.send(PAYLOAD, SendOptions::unreliable());
            numbers.push(sealed.take_packet().expect("a packet").0);
        }
        receive_ack(&mut sealed, &numbers);
        let in_flight = sealed.endpoint.peer_stats(sealed.now, sealed.peers[0].id);
        assert_eq!(in_flight.map(|stats| stats.in_flight_bytes), Some(0), "the ack is of all packets");
    }
}

/// Seals an ack of these packets, and receives it.
fn receive_ack(sealed: &mut SealedPeers, numbers: &[PacketNumber]) {
    let (mut datagram, peer) = ([0; ACK_BYTES], &mut sealed.peers[0]);
    let bytes = peer.sealer.seal_ack(&mut datagram, Duration::ZERO, ranges(numbers).into_iter());
    let bytes = &mut datagram[..bytes.expect("numbers and room are left")];
    let (server, now, from) = (&mut sealed.endpoint, sealed.now, peer.address);
    counted_part(|| server.handle_datagrams(now, [Inbound { from: from.into(), bytes }]));
}

/// Returns rising numbers as ranges, the newest first. A sender skips numbers, and refuses an ack of a skipped one.
pub(crate) fn ranges(numbers: &[PacketNumber]) -> Vec<AckRange> {
    let runs = numbers.chunk_by(|before, next| before.0 + 1 == next.0);
    runs.rev().filter_map(|run| AckRange::new(*run.first()?, *run.last()?)).collect()
}

/// Sends the values of these keys, one per packet. Returns the numbers of the packets.
///
/// Values stand for reliable messages: their packets are remembered until they are acknowledged, and no credit limits them.
pub(crate) fn send_values(sealed: &mut SealedPeers, keys: std::ops::Range<u64>) -> Vec<PacketNumber> {
    let mut numbers = Vec::new();
    for key in keys {
        sealed.send(&[7; 8], SendOptions::reliable_latest(key));
        let mut polls = std::iter::repeat_with(|| {
            sealed.pass(Duration::from_micros(1));
            sealed.take_packet()
        });
        let (number, _) = polls.by_ref().take(1_000).flatten().next().expect("the server may send");
        numbers.push(number);
    }
    numbers
}

/// Receives an ack of 32 ranges with a new packet in each, and a lost packet between each two.
pub(crate) fn widest_acks(count: u64, in_flight: u64) {
    acks_among(count, in_flight, |numbers| {
        numbers.iter().copied().step_by(2).take(ACK_RANGES_SENT).collect()
    });
}

/// Receives an ack of 32 ranges up to the newest packet. All other packets in flight are lost.
pub(crate) fn acks_with_losses(count: u64, in_flight: u64) {
    acks_among(count, in_flight, |numbers| {
        let spread = numbers.iter().rev().step_by(numbers.len() / ACK_RANGES_SENT).take(ACK_RANGES_SENT);
        spread.rev().copied().collect()
    });
}

/// Receives acks of the packets that `pick` selects among those in flight. Each ack is on a connection of its own, because lost values
/// are sent again in the next packets.
fn acks_among(count: u64, in_flight: u64, pick: impl Fn(&[PacketNumber]) -> Vec<PacketNumber>) {
    let config =
        Config::default().congestion(UNLIMITED).memory_bytes(4 << 20, 4 << 20).in_flight_bytes(64 << 20);
    for _ in 0..count {
        let mut sealed = sealed(config.clone());
        let numbers = send_values(&mut sealed, 1..1 + in_flight);
        let picked = pick(&numbers);
        receive_ack(&mut sealed, &picked);
        let covered = numbers.iter().take_while(|number| Some(number) <= picked.last().as_ref()).count();
        let between = (covered - picked.len()) as u64;
        let lost = sealed.endpoint.stats().packets_lost;
        // The packets just below the newest acknowledged one may still arrive.
        assert!((between.saturating_sub(4)..=between).contains(&lost), "{lost} of {between} are lost");
    }
}

/// Receives a keep-alive of a client, and acknowledges it.
pub(crate) fn keep_alive(count: u64) {
    let mut group = Group::connect(1, &Config::default()).expect("a connection");
    be_silent(&mut group);
    let mut datagrams = Datagrams::default();
    let received = |group: &Group| group.server.stats().packets_received;
    let before = received(&group);
    for exchange in 1..=count {
        let mut steps = 100;
        while received(&group) < before + exchange {
            step(&mut group, &mut datagrams);
            steps -= 1;
            assert!(steps > 0, "the client sends no keep-alive");
        }
    }
    assert_eq!(group.server.connection_count(), 1, "the connection lives");
}

/// Advances to the next timer of an end, and runs both ends.
fn step(group: &mut Group, datagrams: &mut Datagrams) {
    let due = [group.client.poll_timeout(), group.server.poll_timeout()].into_iter().flatten().min();
    group.now.monotonic = group.now.monotonic.max(due.expect("an end has a timer"));
    let Group { server, client, now, .. } = group;
    client.handle_timeout(*now);
    datagrams.clear();
    datagrams.take_all_from(client, *now);
    counted_part(|| {
        server.handle_datagrams(*now, datagrams.inbound(client_address()));
        server.handle_timeout(*now);
        datagrams.clear();
        datagrams.take_all_from(server, *now);
    });
    client.handle_datagrams(*now, datagrams.inbound(server_address()));
    while client.poll_event().is_some() {}
}

/// Advances by two seconds, after which nothing is left of the handshakes.
fn be_silent(group: &mut Group) {
    for _ in 0..2_000 {
        group.pass(MILLISECOND);
        group.client.handle_timeout(group.now);
        group.server.handle_timeout(group.now);
        group.settle();
    }
}

/// Runs a millisecond in which no timer fires. Timers that are due later move closer in the timer wheel.
pub(crate) fn tick(count: u64) {
    let mut group = Group::connect(IDLE, &Config::default()).expect("connections");
    be_silent(&mut group);
    let mut datagrams = Datagrams::default();
    datagrams.reserve(1);
    for _ in 0..count {
        group.pass(MILLISECOND);
        let (server, now) = (&mut group.server, group.now);
        counted_part(|| {
            server.handle_timeout(now);
            assert!(server.poll_event().is_none(), "an idle connection has no event");
            datagrams.take_all_from(server, now);
        });
        assert_eq!(datagrams.count(), 0, "an idle connection sends nothing");
    }
    assert_eq!(group.server.connection_count(), IDLE as usize);
}

/// Connects a client, from its first Hello to the event at the server.
pub(crate) fn handshake(count: u64) {
    let (mut server, identity) = server(Config::default(), Access::Open).expect("a server");
    for number in 0..count {
        let now = at_ms(number);
        let [.., high, low] = u16::try_from(number).expect("few clients").to_be_bytes();
        let from = SocketAddr::from(([192, 0, high, low], 50_000));
        let config = Config::default().has_aes_gcm(false);
        let mut client = client(config, ClientConfig::default(), low).expect("a client");
        client.connect(now, server_address(), &identity, None).expect("an attempt");
        let mut is_connected = false;
        while let Some(mut datagram) = take_datagram(&mut client, now) {
            let (answers, connected) = counted_part(|| answer(&mut server, now, from, &mut datagram));
            is_connected |= connected;
            for mut answer in answers {
                pass_datagram(&mut client, now, server_address(), &mut answer);
            }
        }
        assert!(is_connected, "client {number} is connected");
    }
}

/// Passes a datagram to the server. Returns its answers, and whether a client is connected now.
fn answer(
    server: &mut Endpoint<SingleWorker>,
    now: Now,
    from: SocketAddr,
    bytes: &mut [u8],
) -> (Vec<Vec<u8>>, bool) {
    pass_datagram(server, now, from, bytes);
    server.handle_timeout(now);
    let mut is_connected = false;
    while let Some(event) = server.poll_event() {
        is_connected |= matches!(event, Event::Connected { .. });
    }
    (std::iter::from_fn(|| take_datagram(server, now)).collect(), is_connected)
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
        let mut packet = Vec::new();
        let id = ConnectionId::from_bytes(at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        let number = PacketNumber(77_777).truncate(PacketNumberLength::Four);
        let header = TransportHeader { key_phase: false, connection_id: Some(id), number };
        header.encode(&mut packet).expect("room");
        packet.resize(PACKET_BYTES, 7);
        packet
    };
    let mut packets: Vec<Vec<u8>> = (0..count).map(packet).collect();
    let (server, now, from) = (&mut sealed.endpoint, sealed.now, sealed.peers[0].address);
    for batch in packets.chunks_mut(BATCH) {
        let batch = batch.iter_mut().map(|bytes| Inbound { from: from.into(), bytes });
        counted_part(|| server.handle_datagrams(now, batch));
    }
    assert_eq!(server.stats().dropped(DropReason::ForgedId), count, "every id is forged");
}
