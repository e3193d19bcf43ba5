//! Attacks in large numbers, none of which succeeds. `DRUMFIRE_FULL=1` tries a hundred times as often.

use crate::harness::{CLEAN, CLIENT, InFlightDatagram, Link, Random, SERVER, World, address};
use drumfire_proto::{DropReason, SendOptions};
use drumfire_tries::tries;
use std::net::SocketAddr;
use std::time::Duration;

const HELLO: u8 = 0x89;
const RETRY: u8 = 0x8a;
const REFUSE: u8 = 0x8b;
const WELCOME: u8 = 0x8c;
const RESET: u8 = 0x8d;

/// Changes up to sixteen bytes of a datagram.
fn mutant(genuine: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = genuine.to_vec();
    while bytes == genuine {
        for _ in 0..=random.below(16) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.bits().to_le_bytes()[0];
        }
    }
    bytes
}

/// A world in which the client has its cookie, and the server has not received the Hello with it.
fn before_the_second_hello(seed: u64) -> (World, Vec<u8>) {
    let mut world = World::new(seed, CLEAN);
    world.connect();
    world.run(Duration::from_millis(25));
    let mut hellos = world.sent.iter().filter(|(_, end, bytes)| *end == CLIENT && bytes[0] == HELLO);
    let hello = hellos.next_back().unwrap().2.clone();
    world.in_flight.clear();
    (world, hello)
}

#[test]
fn no_mutant_of_a_hello_makes_a_connection() {
    let (mut world, hello) = before_the_second_hello(1);
    let mut random = Random(1);
    for number in 0..u64::from(tries(900_000)) {
        let mutant = mutant(&hello, &mut random);
        world.deliver(SERVER, address(CLIENT), &mutant);
        if number % 100 == 0 {
            world.now = world.now.after(Duration::from_micros(100));
            world.flush();
            world.in_flight.clear();
            world.sent.clear();
        }
    }
    let stats = world.ends[SERVER].stats();
    assert_eq!((world.ends[SERVER].connection_count(), stats.handshakes_computed), (0, 0));
    assert_eq!(stats.unexplained(), 0);
    assert!(stats.retry_bytes * 10 <= stats.hello_bytes);
}

#[test]
fn no_mutated_welcome_connects() {
    let (mut world, hello) = before_the_second_hello(2);
    world.deliver(SERVER, address(CLIENT), &hello);
    world.flush();
    let welcome = world.sent.iter().find(|(_, _, bytes)| bytes[0] == WELCOME).unwrap().2.clone();
    world.in_flight.clear();
    let mut random = Random(2);
    for _ in 0..u64::from(tries(100_000)) {
        let mutant = mutant(&welcome, &mut random);
        world.deliver(CLIENT, address(SERVER), &mutant);
    }
    world.flush();
    assert!(world.peers(CLIENT).is_empty());
    world.deliver(CLIENT, address(SERVER), &welcome);
    world.run(Duration::from_millis(100));
    assert_eq!((world.peers(CLIENT).len(), world.peers(SERVER).len()), (1, 1));
}

#[test]
fn a_million_hellos_from_as_many_addresses_get_a_tenth_back() {
    let mut world = World::new(3, CLEAN);
    let mut hello = vec![0; 1_200];
    hello[0] = HELLO;
    hello[2] = 1;
    hello[27] = 1;
    for number in 0..tries(1_000_000) {
        hello[11..15].copy_from_slice(&number.to_be_bytes());
        // Half of them carry a cookie of another client.
        hello[540] = u8::from(number % 2 == 0);
        let from = SocketAddr::from((number.wrapping_mul(0x9e37_79b1).to_be_bytes(), 7));
        world.deliver(SERVER, from, &hello);
        if number % 100 == 0 {
            world.now = world.now.after(Duration::from_millis(1));
            world.flush();
            world.stray.clear();
        }
    }
    let stats = world.ends[SERVER].stats();
    assert_eq!((world.ends[SERVER].connection_count(), stats.handshakes_computed), (0, 0));
    assert!(stats.retry_bytes > 0 && stats.retry_bytes * 10 <= stats.hello_bytes);
    // Other clients still connect.
    world.connect();
    world.run(Duration::from_secs(1));
    assert_eq!(world.peers(SERVER).len(), 1);
}

/// A response forged by an attacker who saw the Hello.
fn forged(client_id: &[u8], random: &mut Random) -> Vec<u8> {
    // Only a few Welcomes, because each costs the client a key agreement.
    let kinds = [(RETRY, 64), (REFUSE, 51), (RESET, 25), (0x09, 60)];
    let (kind, bytes) = if random.below(100) == 0 { (WELCOME, 92) } else { kinds[random.below(4) as usize] };
    let mut forged: Vec<u8> = (0..bytes).map(|_| random.bits().to_le_bytes()[0]).collect();
    forged[0] = kind;
    // An off-path attacker does not know the client id.
    if random.happens(70) {
        forged[1..9].copy_from_slice(client_id);
    }
    forged
}

#[test]
fn ten_thousand_forged_replies_keep_no_client_out() {
    for seed in 0..u64::from(tries(1_000)) {
        let link = Link { delay: Duration::from_millis(5 + seed % 60), ..CLEAN };
        let (mut world, mut random) = (World::new(seed, link), Random(seed));
        world.connect();
        world.flush();
        let client_id = world.sent[0].2[11..19].to_vec();
        for number in 0..10_000_u64 {
            // Spread over the first second, in which an honest handshake has its two round trips.
            let at = world.now.after(Duration::from_micros(number * 100));
            let bytes = forged(&client_id, &mut random);
            world.inject(at, InFlightDatagram { from: address(SERVER), to: CLIENT, bytes });
        }
        world.run(Duration::from_secs(5));
        assert_eq!((world.peers(CLIENT).len(), world.peers(SERVER).len()), (1, 1), "seed {seed}");
    }
}

#[test]
fn recorded_packets_are_never_accepted_again() {
    let mut world = World::new(5, CLEAN);
    let (client, server) = world.connected();
    let mut random = Random(5);
    for round in 0..u64::from(tries(20_000)) {
        world.send(CLIENT, client, 0, &round.to_be_bytes(), SendOptions::unreliable()).unwrap();
        world.send(SERVER, server, 0, &round.to_be_bytes(), SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(2));
    }
    world.run(Duration::from_millis(100));
    let messages = [CLIENT, SERVER].map(|end| world.messages(end).len());
    let recorded = std::mem::take(&mut world.sent);
    for number in 0..recorded.len() {
        let (_, from, bytes) = &recorded[random.below(recorded.len() as u64) as usize];
        world.deliver(1 - from, address(*from), bytes);
        if number % 50 == 0 {
            world.now = world.now.after(Duration::from_millis(1));
            world.flush();
        }
    }
    world.flush();
    assert_eq!([CLIENT, SERVER].map(|end| world.messages(end).len()), messages);
    let refused = [CLIENT, SERVER].map(|end| {
        let stats = world.ends[end].stats();
        stats.dropped(DropReason::Duplicate) + stats.dropped(DropReason::TooOld)
    });
    assert!(refused.iter().sum::<u64>() > recorded.len() as u64 / 2, "{refused:?}");
}

/// Runs an hour in which the client's address changes every one to ten seconds. An attacker copies each of its
/// packets from another address, before or after the client's own arrives.
#[test]
fn an_hour_of_address_changes_moves_no_path_to_a_copier() {
    let copier: SocketAddr = "203.0.113.66:4444".parse().unwrap();
    let (mut world, mut random) = (World::new(6, CLEAN), Random(6));
    let (client, server) = world.connected();
    let end = world.now.after(Duration::from_secs(u64::from(tries(3_600))));
    let (mut moved_at, mut sent_count) = (world.now, 0_u32);
    while world.now < end {
        if moved_at <= world.now {
            let number = u16::try_from(random.below(60_000)).unwrap();
            world.client_address = SocketAddr::from(([192, 0, 2, 1], 1_024 + number));
            moved_at = world.now.after(Duration::from_millis(1_000 + random.below(9_000)));
        }
        let bytes = sent_count.to_be_bytes();
        let sent =
            world.reliable(CLIENT, client, &bytes).and_then(|()| world.reliable(SERVER, server, &bytes));
        sent.unwrap();
        sent_count += 1;
        world.flush();
        let of_client =
            world.in_flight.iter().filter(|(_, datagram)| datagram.to == SERVER && datagram.from != copier);
        let copies: Vec<_> = of_client.map(|((at, _), datagram)| (*at, datagram.bytes.clone())).collect();
        for (arrives_at, bytes) in copies {
            let after = if random.happens(50) { world.now } else { arrives_at };
            let at = after.after(Duration::from_micros(random.below(9_000)));
            world.inject(at, InFlightDatagram { from: copier, to: SERVER, bytes });
        }
        world.run(Duration::from_millis(50));
        world.sent.clear();
    }
    world.run(Duration::from_secs(5));
    for end in [CLIENT, SERVER] {
        let numbers: Vec<u32> = world
            .messages(end)
            .iter()
            .map(|(_, bytes)| u32::from_be_bytes(bytes[..].try_into().unwrap()))
            .collect();
        assert!(numbers.iter().copied().eq(0..sent_count), "all {sent_count}, in order, at end {end}");
    }
    assert_eq!(world.ends[SERVER].address(server), Some(world.client_address));
}
