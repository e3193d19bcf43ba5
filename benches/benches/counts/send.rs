//! Stages of sending, at a server: making packets, and hearing what became of them.

use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::group::{BATCH, Datagrams, Group, UNLIMITED, client_address};
use drumfire_benches::pair::{Crowd, server_address};
use drumfire_proto::{Alone, ChannelId, Config, Endpoint, Inbound, SendOptions};
use drumfire_wire::{AckRange, ConnectionIdLength, PacketNumber, TransportHeader};

use crate::counted_part;

/// A message that fills a packet of about 128 B.
const PAYLOAD: &[u8] = &[7; 97];
/// Between two batches, in virtual time.
const BATCH_INTERVAL: Duration = Duration::from_micros(32);
/// Room for an ack and what is around it.
const ACK_BYTES: usize = 64;
/// How long a server may have to wait until it may send.
const PATIENCE_MS: u32 = 1_000;

/// An ack with one new packet: parsed, opened, the packet settled, the round trip measured.
pub(crate) fn ack_of_one(count: u64) {
    acks(count, 1);
}

/// The same with 32 new packets, in one range as a rule.
pub(crate) fn ack_of_32(count: u64) {
    acks(count, 32);
}

fn acks(count: u64, packets: u64) {
    let settings = Config::default().congestion(UNLIMITED);
    let mut crowd = Crowd::connect_to(settings, 1, false).expect("a connection");
    let peer = *crowd.peers.first().expect("a connection");
    let (mut memory, mut newest) = ([0; 1_200], None);
    let server = &mut crowd.server;
    let (from, sealer) = crowd.sealers.first_mut().expect("a connection");
    for _ in 0..count {
        crowd.now.monotonic = crowd.now.monotonic.after(BATCH_INTERVAL);
        let mut numbers = Vec::new();
        for _ in 0..packets {
            let (payload, options) = (Bytes::from_static(PAYLOAD), SendOptions::unreliable());
            server.send(crowd.now, peer, ChannelId(0), payload, options).expect("room for a message");
            let sent = server.poll_transmit(crowd.now, &mut memory).expect("a packet");
            newest = number(&memory[..sent.bytes], newest);
            numbers.extend(newest);
        }
        let mut datagram = [0; ACK_BYTES];
        let sealed = sealer.seal_ack(&mut datagram, Duration::ZERO, ranges(&numbers).into_iter());
        let bytes = sealed.expect("numbers and room are left");
        let (now, from) = (crowd.now, *from);
        counted_part(|| {
            let bytes = &mut datagram[..bytes];
            server.handle_datagrams(now, [Inbound { from: from.into(), bytes }]);
        });
        let in_flight = server.peer_stats(now, peer).map(|stats| stats.in_flight_bytes);
        assert_eq!(in_flight, Some(0), "the ack settled all");
    }
}

/// Numbers that rise as ranges, newest first: a sender leaves numbers out, and an ack of those is refused.
pub(crate) fn ranges(numbers: &[PacketNumber]) -> Vec<AckRange> {
    let runs = numbers.chunk_by(|before, next| before.0 + 1 == next.0);
    runs.rev().filter_map(|run| AckRange::new(*run.first()?, *run.last()?)).collect()
}

/// The number of a packet of the server.
pub(crate) fn number(packet: &[u8], newest: Option<PacketNumber>) -> Option<PacketNumber> {
    let header = TransportHeader::decode(packet, ConnectionIdLength::Zero).expect("a packet");
    Some(header.number.expand(newest))
}

/// A packet of one message that waits: frames, books, header, seal (ChaCha20-Poly1305).
pub(crate) fn build_and_seal(count: u64) {
    Sending::new().run(count, false);
}

/// From the application's message to the packet's bytes.
pub(crate) fn whole(count: u64) {
    Sending::new().run(count, true);
}

/// A server that sends, and a client's endpoint that hears and acknowledges.
struct Sending {
    group: Group,
    packets: Datagrams,
    answers: Datagrams,
    /// Messages so far.
    given: u64,
}

impl Sending {
    fn new() -> Self {
        let group = Group::connect(1, &Config::default().congestion(UNLIMITED)).expect("a connection");
        let mut packets = Datagrams::default();
        packets.reserve(2 * BATCH);
        Self { group, packets, answers: Datagrams::default(), given: 0 }
    }

    /// Makes so many packets; giving the message counts where `is_whole`.
    fn run(&mut self, count: u64, is_whole: bool) {
        for made in 0..count {
            for waited in 0.. {
                if self.make_one(is_whole) {
                    break;
                }
                assert!(waited < PATIENCE_MS, "a server that may send nothing");
                self.group.pass(Duration::from_millis(1));
                self.hand_over();
            }
            if (made + 1).is_multiple_of(BATCH as u64) {
                self.group.pass(BATCH_INTERVAL);
                self.hand_over();
            }
        }
        assert_eq!(self.group.server.stats().messages_sent, count);
    }

    /// Gives a message and makes its packet; false when there is no room for one now.
    fn make_one(&mut self, is_whole: bool) -> bool {
        let Group { server, links, now, .. } = &mut self.group;
        let (now, peer) = (*now, links[0].client);
        let packets = &mut self.packets;
        // A message that waits goes before the next is given.
        let is_given = server.stats().messages_sent < self.given;
        let mut give = |server: &mut Endpoint<Alone>| {
            let (payload, options) = (Bytes::from_static(PAYLOAD), SendOptions::reliable_ordered());
            let has_given = is_given || server.send(now, peer, ChannelId(0), payload, options).is_ok();
            self.given += u64::from(has_given && !is_given);
            has_given
        };
        if is_whole {
            return counted_part(|| give(server) && packets.take_from(server, now));
        }
        give(server) && counted_part(|| packets.take_from(server, now))
    }

    /// The client hears all, the server hears the acks.
    fn hand_over(&mut self) {
        let Group { server, client, now, .. } = &mut self.group;
        client.handle_datagrams(*now, self.packets.inbound(server_address()));
        client.handle_timeout(*now);
        while client.poll_event().is_some() {}
        self.packets.clear();
        self.answers.take_all_from(client, *now);
        server.handle_datagrams(*now, self.answers.inbound(client_address()));
        server.handle_timeout(*now);
        while server.poll_event().is_some() {}
        self.answers.clear();
    }
}
