//! Captured packets that are replayed are never accepted, and packets with invented numbers move nothing.

use crate::harness::{CLEAN, CLIENT, Random, SERVER, World, address};
use drumfire_proto::{DropReason, PeerId, SendOptions};
use drumfire_tries::tries;
use drumfire_wire::{ConnectionIdLength, PacketNumber, PacketNumberLength, TransportHeader};
use std::time::Duration;

/// Passes a packet to the server as one of many, for which a connection has its share of a pass.
fn deliver(world: &mut World, number: u64, packet: &[u8]) {
    if number.is_multiple_of(50) {
        world.now = world.now.after(Duration::from_micros(10));
    }
    world.deliver(SERVER, address(CLIENT), packet);
}

/// Sends this many messages, one packet each. Returns the client's packets with them.
fn packets(world: &mut World, client: PeerId, count: u64) -> Vec<Vec<u8>> {
    let payload = [5; 24];
    world.sent.clear();
    for _ in 0..count {
        world.send(CLIENT, client, 0, &payload, SendOptions::unreliable()).unwrap();
        world.flush();
    }
    let of_client = world.sent.iter().filter(|(_, end, bytes)| *end == CLIENT && bytes.len() > 50);
    of_client.map(|(_, _, bytes)| bytes.clone()).collect()
}

#[test]
fn a_million_replayed_packets_are_each_dropped() {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    let (mut captured, mut random) = (Vec::new(), Random(1));
    while (captured.len() as u64) < u64::from(tries(1_000_000)) {
        captured.extend(packets(&mut world, client, 32));
        world.run(Duration::from_millis(10));
        world.seen[SERVER].clear();
    }
    world.run(Duration::from_millis(100));
    world.seen[SERVER].clear();
    let count = captured.len() as u64;
    for number in 0..count {
        // In their original order, then the newest in any order, then all in any order.
        let at = match number * 3 / count {
            0 => number,
            1 => count - 1 - random.below(1_024),
            _ => random.below(count),
        };
        deliver(&mut world, number, &captured[at as usize]);
    }
    // Numbers are truncated, so a very old packet seems to have a new number, under which it does not open.
    let again = [DropReason::Duplicate, DropReason::TooOld, DropReason::Forged];
    let again = again.map(|reason| world.ends[SERVER].stats().dropped(reason));
    assert_eq!(again.iter().sum::<u64>(), count, "{again:?}");
    assert!(again[0] >= count / 3, "{again:?}");
    world.flush();
    assert!(world.messages(SERVER).is_empty());
    // New packets are accepted as usual.
    packets(&mut world, client, 10);
    world.run(Duration::from_millis(100));
    assert_eq!(world.messages(SERVER).len(), 10);
}

#[test]
fn a_million_forged_high_numbers_change_nothing() {
    let mut world = World::new(2, CLEAN);
    let (client, _) = world.connected();
    let mut random = Random(2);
    // One packet in eight is held back until after the forgeries.
    let mut late = Vec::new();
    for _ in 0..30 {
        let mut sent = packets(&mut world, client, 32);
        let held_back: Vec<_> = sent.drain(..4).collect();
        world.in_flight.retain(|_, datagram| !held_back.contains(&datagram.bytes));
        late.extend(held_back);
        world.run(Duration::from_millis(30));
    }
    world.run(Duration::from_millis(100));
    world.seen[SERVER].clear();
    let newest = packets(&mut world, client, 1).remove(0);
    world.run(Duration::from_millis(50));
    world.seen[SERVER].clear();
    let header = TransportHeader::decode(&newest, ConnectionIdLength::Eight).unwrap();
    let highest = header.number.expand(Some(PacketNumber(1_000))).0;
    let count = u64::from(tries(1_000_000));
    let forged = |world: &World| world.ends[SERVER].stats().dropped(DropReason::Forged);
    for number in 0..count {
        // Far and near, as far ahead as a number of four bytes reaches.
        let ahead = 1 + (random.below(1 << 31) >> random.below(31));
        let made_up = PacketNumber(highest + ahead).truncate(PacketNumberLength::Four);
        let mut packet = Vec::new();
        TransportHeader { key_phase: number % 2 == 1, number: made_up, ..header }
            .encode(&mut packet)
            .unwrap();
        packet.extend((0..40).map(|_| random.bits() as u8));
        deliver(&mut world, number, &packet);
    }
    assert_eq!(forged(&world), count);
    world.flush();
    assert!(world.messages(SERVER).is_empty());
    world.now = world.now.after(Duration::from_millis(1));
    for (number, packet) in late.iter().enumerate().rev() {
        deliver(&mut world, number as u64, packet);
    }
    world.flush();
    assert_eq!((world.messages(SERVER).len(), forged(&world)), (late.len(), count), "all were in the window");
}
