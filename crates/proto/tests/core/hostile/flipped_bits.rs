//! Every prefix of a packet and every packet with a flipped bit, before the packet itself arrives. Each is dropped
//! with a reason, all together allocate no more than what an end needs once, and the genuine packet is accepted.
//!
//! `DRUMFIRE_FULL=1` tests a thousand packets, and other runs a fifth of them.

use crate::harness::{CLEAN, CLIENT, Random, SERVER, Seen, World, address};
use allocation_counter::measure;
use drumfire_proto::{DropReason, Endpoint, Inbound, Moment, PeerId, SendOptions};
use drumfire_tries::tries;
use std::time::Duration;

/// Passes datagrams to one end, and counts them.
struct Corrupter<'a> {
    end: &'a mut Endpoint,
    from: std::net::SocketAddr,
    now: drumfire_proto::Now,
    handed: u64,
    memory: [u8; 1_472],
}

impl Corrupter<'_> {
    fn deliver(&mut self, datagram: &[u8]) {
        self.handed += 1;
        // More of them at one moment would not be processed.
        if self.handed.is_multiple_of(32) {
            self.now.monotonic = self.now.monotonic.after(Duration::from_nanos(10));
        }
        let bytes = &mut self.memory[..datagram.len()];
        bytes.copy_from_slice(datagram);
        self.end.handle_datagrams(self.now, [Inbound { from: self.from.into(), bytes }]);
    }

    fn corrupt(&mut self, packet: &mut [u8]) {
        for end in 0..packet.len() {
            self.deliver(&packet[..end]);
        }
        for bit in 0..8 * packet.len() {
            packet[bit / 8] ^= 1 << (bit % 8);
            self.deliver(packet);
            packet[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// The outcome.
struct Corrupted {
    handed: u64,
    allocated_bytes: u64,
    until: Moment,
}

/// Spoils all datagrams in flight to one end in every way.
fn corrupt(world: &mut World, end: usize) -> Corrupted {
    let on_the_way = world.in_flight.values().filter(|datagram| datagram.to == end);
    let packets: Vec<Vec<u8>> = on_the_way.map(|datagram| datagram.bytes.clone()).collect();
    let (now, from) = (world.now(), address(1 - end));
    let end = &mut world.ends[end];
    let mut corrupter = Corrupter { end, from, now, handed: 0, memory: [0; 1_472] };
    let mut allocated_bytes = 0;
    for mut packet in packets {
        let info = measure(|| corrupter.corrupt(&mut packet));
        allocated_bytes += info.bytes_total;
    }
    Corrupted { handed: corrupter.handed, allocated_bytes, until: corrupter.now.monotonic }
}

/// A message of some length in some mode.
fn send_frames(world: &mut World, random: &mut Random, end: usize, peer: PeerId) {
    let modes =
        [SendOptions::unreliable(), SendOptions::unreliable_sequenced(), SendOptions::reliable_unordered()];
    let options = *modes.get(random.below(6) as usize).unwrap_or(&SendOptions::reliable_ordered());
    let bytes = if random.happens(3) { 1_000 } else { random.below(60) as usize };
    world.send(end, peer, random.below(3) as u16, &vec![7; bytes], options).unwrap();
}

#[test]
fn every_prefix_and_bit_flip_of_a_thousand_packets_is_dropped() {
    let (mut world, mut random) = (World::new(1, CLEAN), Random(1));
    let peers: [PeerId; 2] = world.connected().into();
    let before = [CLIENT, SERVER].map(|end| world.ends[end].stats().dropped_count());
    let (mut handed, mut sent) = ([0, 0], [0, 0]);
    let (mut packets, mut allocated_bytes) = (0, 0);
    // A hundredth would be too few for all lengths and modes.
    while packets < tries(20_000).min(1_000) as usize {
        let end = random.below(2) as usize;
        send_frames(&mut world, &mut random, 1 - end, peers[1 - end]);
        sent[end] += 1;
        world.flush();
        packets += world.in_flight.values().filter(|datagram| datagram.to == end).count();
        let corrupted = corrupt(&mut world, end);
        handed[end] += corrupted.handed;
        allocated_bytes += corrupted.allocated_bytes;
        world.now = world.now.max(corrupted.until);
        world.run(Duration::from_millis(30));
    }
    world.run(Duration::from_secs(1));
    // With the first bad packet, an end expands its keys and allocates state that it keeps.
    assert!(allocated_bytes <= 2_048, "{allocated_bytes} B");
    assert_eq!([CLIENT, SERVER].map(|end| world.messages(end).len()), sent);
    for end in [CLIENT, SERVER] {
        let stats = world.ends[end].stats();
        assert_eq!(stats.dropped_count() - before[end], handed[end], "each is dropped, and nothing else is");
        assert_eq!((stats.unexplained(), stats.dropped(DropReason::PassShare)), (0, 0));
        assert!(stats.dropped(DropReason::Forged) > handed[end] / 2, "most of them had to be opened");
        assert!(!world.seen[end].iter().any(|(_, _, seen)| matches!(seen, Seen::Disconnected(..))));
    }
}
