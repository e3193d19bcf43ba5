//! Stages of receiving, at a server.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::OpenAlone;
use drumfire_benches::group::{BATCH, Datagrams, Group, UNLIMITED, client_address};
use drumfire_benches::pair::{Crowd, server_address, take_messages};
use drumfire_crypto::Suite;
use drumfire_proto::{Alone, ChannelId, Config, DropReason, Endpoint, Inbound, Now, SendOptions};
use drumfire_puppet::PacketSealer;
use drumfire_wire::{
    ConnectionId, ConnectionIdLength, Delivery, FrameWriter, Frames, Message, PacketNumber,
    PacketNumberLength, TransportHeader,
};

use crate::counted_part;

/// Length of every packet.
const DATAGRAM_BYTES: usize = 128;
/// Between two batches, in virtual time.
const BATCH_INTERVAL: Duration = Duration::from_micros(32);
/// How long a client may have nothing to send.
const PATIENCE_MS: u32 = 1_000;

type Packet = (SocketAddr, [u8; DATAGRAM_BYTES]);

/// Calls `batch` with how many are to be done, [`BATCH`] at most, until all are done.
fn batches(count: u64, mut batch: impl FnMut(usize)) {
    let mut left = count;
    while left > 0 {
        let now = left.min(BATCH as u64);
        batch(usize::try_from(now).expect("few"));
        left -= now;
    }
}

/// The header, and the frames as if the packet were open: one unreliable message.
pub(crate) fn parse(count: u64) {
    let mut packet = Vec::new();
    let header = TransportHeader {
        key_phase: false,
        connection_id: Some(ConnectionId::from_bytes([7; 8])),
        number: PacketNumber(77_777).truncate(PacketNumberLength::Four),
    };
    header.encode(&mut packet).expect("room");
    let head_bytes = packet.len();
    let payload = [7; DATAGRAM_BYTES];
    let length = PacketSealer::payload_bytes(DATAGRAM_BYTES).expect("room for a message");
    let message =
        Message { channel: ChannelId(0), delivery: Delivery::Unreliable, payload: &payload[..length] };
    FrameWriter::new(&mut packet).message(&message).expect("room");
    batches(count, |batch| {
        counted_part(|| {
            for _ in 0..batch {
                let packet = black_box(&packet[..]);
                let header = TransportHeader::decode(packet, ConnectionIdLength::Eight);
                assert!(black_box(header).is_ok());
                let frames = Frames::new(&packet[head_bytes..]);
                assert_eq!(frames.filter(|frame| black_box(frame).is_ok()).count(), 1);
            }
        });
    });
}

fn packets(crowd: &mut Crowd, count: usize) -> Vec<Packet> {
    let payload = [7; DATAGRAM_BYTES];
    let length = PacketSealer::payload_bytes(DATAGRAM_BYTES).expect("room for a message");
    let (from, sealer) = crowd.sealers.first_mut().expect("a connection");
    let packet = || {
        let mut datagram = [0; DATAGRAM_BYTES];
        sealer.seal(&mut datagram, &payload[..length]).expect("numbers are left");
        (*from, datagram)
    };
    std::iter::repeat_with(packet).take(count).collect()
}

fn inbound(packets: &mut [Packet]) -> impl Iterator<Item = Inbound<'_>> {
    packets.iter_mut().map(|(from, bytes)| Inbound { from: (*from).into(), bytes })
}

fn pass(now: &mut Now) {
    now.monotonic = now.monotonic.after(BATCH_INTERVAL);
}

/// Copies of packets that were opened before: their header is read, their connection found, the replay window asked.
pub(crate) fn find(count: u64) {
    let mut crowd = Crowd::connect(1, false).expect("a connection");
    let copies = packets(&mut crowd, BATCH);
    // One more, so that no copy is of the newest packet, which might tell of another path.
    for mut opened in [copies.clone(), packets(&mut crowd, 1)] {
        pass(&mut crowd.now);
        crowd.server.handle_datagrams(crowd.now, inbound(&mut opened));
        take_messages(&mut crowd.server);
    }
    batches(count, |batch| {
        let mut copies = copies.clone();
        pass(&mut crowd.now);
        let (server, now) = (&mut crowd.server, crowd.now);
        counted_part(|| server.handle_datagrams(now, inbound(&mut copies[..batch])));
    });
    assert_eq!(crowd.server.stats().dropped(DropReason::Duplicate), count, "every copy ends under its name");
}

/// The cipher alone.
pub(crate) fn open_chacha(count: u64) {
    open(Suite::ChaCha20Poly1305, count);
}

/// The cipher alone.
pub(crate) fn open_aes(count: u64) {
    open(Suite::Aes128Gcm, count);
}

fn open(suite: Suite, count: u64) {
    OpenAlone::<DATAGRAM_BYTES>::new(suite).run(count, |open| counted_part(open));
}

/// Taking messages that were delivered.
pub(crate) fn events(count: u64) {
    let mut crowd = Crowd::connect(1, false).expect("a connection");
    let (mut answers, mut taken) = (Datagrams::default(), 0);
    batches(count, |batch| {
        let mut packets = packets(&mut crowd, batch);
        pass(&mut crowd.now);
        crowd.server.handle_datagrams(crowd.now, inbound(&mut packets));
        let server = &mut crowd.server;
        taken += counted_part(|| take_messages(server));
        answers.clear();
        answers.take_all_from(server, crowd.now);
    });
    assert_eq!(taken, count);
}

/// All that a server does with a batch: answers how many messages it delivered.
fn receive<'a>(
    server: &mut Endpoint<Alone>,
    now: Now,
    batch: impl Iterator<Item = Inbound<'a>>,
    answers: &mut Datagrams,
) -> u64 {
    counted_part(|| {
        server.handle_datagrams(now, batch);
        server.handle_timeout(now);
        let delivered = take_messages(server);
        answers.take_all_from(server, now);
        delivered
    })
}

/// From the datagram's bytes to the message in the application's hands, and the acks that follow.
pub(crate) fn unreliable(count: u64) {
    let mut crowd = Crowd::connect(1, false).expect("a connection");
    let (mut answers, mut delivered) = (Datagrams::default(), 0);
    answers.reserve(2 * BATCH);
    batches(count, |batch| {
        let mut packets = packets(&mut crowd, batch);
        pass(&mut crowd.now);
        answers.clear();
        delivered += receive(&mut crowd.server, crowd.now, inbound(&mut packets), &mut answers);
    });
    assert_eq!(delivered, count);
}

/// The same of a client's endpoint, which hears the acks.
pub(crate) fn reliable_ordered(count: u64) {
    let mut group = Group::connect(1, &Config::default().congestion(UNLIMITED)).expect("a connection");
    let (mut packets, mut answers) = (Datagrams::default(), Datagrams::default());
    let (mut given, mut delivered) = (0, 0);
    answers.reserve(2 * BATCH);
    batches(count, |batch| {
        packets.clear();
        for _ in 0..PATIENCE_MS {
            prepare(&mut group, &mut given, batch, &mut packets);
            if packets.count() == batch {
                break;
            }
            group.pass(Duration::from_millis(1));
            hear(&mut group, &mut answers);
        }
        assert_eq!(packets.count(), batch, "a client that may send nothing");
        pass(&mut group.now);
        let inbound = packets.inbound(client_address());
        delivered += receive(&mut group.server, group.now, inbound, &mut answers);
        hear(&mut group, &mut answers);
    });
    assert_eq!(delivered, given);
    assert_eq!(group.server.stats().dropped_count(), 0);
}

/// Packets of one message each, until there are so many or no more may be under way.
fn prepare(group: &mut Group, given: &mut u64, count: usize, packets: &mut Datagrams) {
    const PAYLOAD: &[u8] = &[7; 97];
    let Group { client, links, now, .. } = group;
    while packets.count() < count {
        // A message that waits goes before the next is given.
        if client.stats().messages_sent == *given {
            let payload = Bytes::from_static(PAYLOAD);
            let options = SendOptions::reliable_ordered();
            if client.send(*now, links[0].server, ChannelId(0), payload, options).is_err() {
                return;
            }
            *given += 1;
        }
        if !packets.take_from(client, *now) {
            return;
        }
    }
}

/// The client hears what the server had to say.
fn hear(group: &mut Group, answers: &mut Datagrams) {
    answers.take_all_from(&mut group.server, group.now);
    group.client.handle_datagrams(group.now, answers.inbound(server_address()));
    group.client.handle_timeout(group.now);
    while group.client.poll_event().is_some() {}
    answers.clear();
}
