//! Many peers that cost a server as much as they can: its memory stays within the limit of each connection, and
//! within that of all, as counted by the allocator. Its application reads nothing.

use allocation_counter::measure;
use bytes::Bytes;
use drumfire_proto::{
    ChannelId, Config, DropReason, Endpoint, Event, EventBatch, Inbound, Message, Moment, Now, PeerId,
    SingleWorker,
};
use drumfire_wire::FrameWriter;
use std::net::SocketAddr;
use std::time::Duration;

use crate::counted::{BUSY_BYTES, COUNTED_MEMORY_BYTES};
use crate::harness::{Random, config, server_config};
use crate::hostile::strategies::STRATEGIES;
use crate::puppet::joined;
use drumfire_puppet::Connection;

/// Packets of each peer: enough for each strategy to fill its limits.
const PACKETS: u64 = 300;

/// The memory of a connection for sending and receiving, plus a tenth for its tables.
const CONNECTION_BYTES: i64 = 2 * COUNTED_MEMORY_BYTES * 11 / 10;

/// The time between two handshake datagrams: a server computes 2,000 key agreements per second.
const HANDSHAKE_PACE: Duration = Duration::from_micros(200);

/// The time between two datagrams of connected peers, short enough that none times out.
const PACE: Duration = Duration::from_micros(1);

/// A server, and its memory.
struct Peers {
    server: Endpoint<SingleWorker>,
    now: Now,
    held_bytes: i64,
    members: Vec<HostilePeer>,
    /// Messages that the application has not read.
    unread: Vec<EventBatch>,
}

struct HostilePeer {
    client: Connection,
    peer: PeerId,
    address: SocketAddr,
    random: Random,
    strategy: usize,
}

impl Peers {
    fn new(config: Config) -> Self {
        let now = Now { monotonic: Moment::from_nanos(1), wall: Duration::ZERO };
        let seed = drumfire_proto::Secret::new([5; 32]);
        let server = Endpoint::server(config, server_config(), SingleWorker::default(), seed).unwrap();
        Self { server, now, held_bytes: 0, members: Vec::new(), unread: Vec::new() }
    }

    /// Passes a datagram to the server and lets it send. Returns its first datagram.
    fn deliver(
        &mut self,
        from: SocketAddr,
        datagram: &mut [u8],
        sends_to: Option<PeerId>,
    ) -> Option<Vec<u8>> {
        let pace = if sends_to.is_some() { PACE } else { HANDSHAKE_PACE };
        self.now.monotonic = self.now.monotonic.after(pace);
        let (now, mut memory, mut first_bytes) = (self.now, [0; 1_472], None);
        let (mut first, server) = ([0; 1_472], &mut self.server);
        let counted = measure(|| {
            server.handle_datagrams(now, [Inbound { from: from.into(), bytes: datagram }]);
            server.handle_timeout(now);
            if let Some(peer) = sends_to {
                let payload = Bytes::from(vec![7; 1_000]);
                // A full or closed connection accepts nothing.
                let _ = server.send(now, peer, Message::reliable_unordered(ChannelId(1), payload));
            }
            while let Some(transmit) = server.poll_transmit(now, &mut memory) {
                if first_bytes.is_none() {
                    first = memory;
                    first_bytes = Some(transmit.bytes);
                }
            }
        });
        self.held_bytes += counted.bytes_current;
        first_bytes.map(|bytes| first[..bytes].to_vec())
    }

    /// Connects another peer, if the server accepts it.
    fn join(&mut self, number: u32) -> bool {
        let address = SocketAddr::from(((0x0a00_0000 + number).to_be_bytes(), 5_000));
        let ephemeral = std::array::from_fn(|at| number.to_le_bytes()[at % 4] ^ at as u8);
        let client = joined(ephemeral, |hello| self.deliver(address, &mut hello.to_vec(), None));
        let Some(mut client) = client else { return false };
        self.deliver(address, &mut client.datagram(&[0; 4]), None);
        let (mut joined, mut batch) = (None, EventBatch::default());
        let (server, joined_peer, events) = (&mut self.server, &mut joined, &mut batch);
        let counted = measure(|| {
            server.take_events(events);
            // The new peer is the last one.
            while let Some(event) = events.pop() {
                if let Event::Connected { peer, .. } = event {
                    *joined_peer = Some(peer);
                }
            }
        });
        self.held_bytes += counted.bytes_current;
        self.unread.push(batch);
        let peer = joined.expect("it is connected");
        let strategy = number as usize % STRATEGIES.len();
        self.members.push(HostilePeer { client, peer, address, random: Random(number.into()), strategy });
        true
    }

    /// Sends the next packet of a peer, after which the server sends to it.
    fn attack(&mut self, member: usize, step: u64) {
        let member = &mut self.members[member];
        let mut frames = [0; 1_100];
        let mut writer = FrameWriter::new(&mut frames[..]);
        STRATEGIES[member.strategy].1(&mut writer, &mut member.random, step).unwrap();
        let bytes = writer.written_bytes();
        let mut datagram = member.client.datagram(&frames[..bytes]);
        let (address, peer) = (member.address, member.peer);
        self.deliver(address, &mut datagram, Some(peer));
    }
}

#[test]
fn two_hundred_hostile_peers_stay_within_their_memory() {
    let mut peers = Peers::new(config());
    for number in 0..200 {
        assert!(peers.join(number));
    }
    let mut max = 0;
    for step in 0..PACKETS {
        for member in 0..200 {
            peers.attack(member, step);
        }
        max = max.max(peers.held_bytes);
    }
    println!("at most {max} B, {} of each", max / 200);
    assert!(max <= 200 * CONNECTION_BYTES, "{max} B");
    assert!(max > 200 * 64 * 1_024, "{max} B: the peers must use most of their limits");
}

#[test]
fn skips_of_one_peer_cost_another_peer_no_message() {
    let mut peers = Peers::new(config());
    assert!(peers.join(0) && peers.join(1));
    let skips = STRATEGIES.iter().position(|(name, _)| *name == "skips on two channels");
    peers.members[0].strategy = skips.expect("it is a strategy");
    for step in 0..3_600 {
        peers.attack(0, step);
    }
    let held_bytes = peers.server.held_bytes();
    assert!(held_bytes <= 512 * 1_024, "{held_bytes} B of two connections");
    let delivered = peers.server.stats().messages_delivered;
    let (peer, address) = (peers.members[1].peer, peers.members[1].address);
    let frames = [&[0x82, 0, 0, 7][..], b"message"].concat();
    let mut datagram = peers.members[1].client.datagram(&frames);
    peers.deliver(address, &mut datagram, Some(peer));
    assert_eq!(peers.server.stats().messages_delivered, delivered + 1);
    assert_eq!(peers.server.stats().dropped(DropReason::ReceiveMemory), 0);
}

/// Connects this many peers one after the other. Each fills its limits before the next connects.
fn connect_and_fill(count: u32, config: Config) {
    let limit = i64::try_from(config.worker_memory_bytes).unwrap();
    let mut peers = Peers::new(config);
    let (mut max, mut refused) = (0, 0);
    for number in 0..count {
        if !peers.join(number) {
            refused += 1;
            continue;
        }
        for step in 0..PACKETS {
            peers.attack(peers.members.len() - 1, step);
            max = max.max(peers.held_bytes);
        }
    }
    let accepted = i64::try_from(peers.members.len()).unwrap();
    let held_bytes = peers.server.held_bytes();
    println!(
        "{accepted} accepted, {refused} refused, at most {max} B, {held_bytes} B of messages at the end"
    );
    assert_eq!(peers.server.stats().dropped(DropReason::MemoryFull), refused);
    assert!(refused > 0);
    let allowed = limit * 11 / 10 + accepted * BUSY_BYTES + CONNECTION_BYTES;
    assert!(max <= allowed, "{max} of {allowed} B");
}

#[test]
fn successive_hostile_peers_stay_within_worker_memory() {
    // The first peers time out before the last ones connect.
    let config = config().timeouts(Duration::from_secs(86_400), Duration::from_secs(86_400));
    connect_and_fill(300, config.worker_memory_bytes(16 * 1_024 * 1_024));
}
