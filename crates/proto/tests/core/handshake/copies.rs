//! Two copies of one machine share their keys until all keys are invalidated in each.
//!
//! A copy is a world from the same seed with the same inputs. The call does not undo what copies did before it.

use std::time::Duration;

use drumfire_proto::{CloseReason, ConnectError, PeerId, Secret};

use crate::harness::{CLEAN, CLIENT, SERVER, Seen, World};

const SECOND: Duration = Duration::from_secs(1);

/// The world of a snapshot: connected, and in the middle of traffic.
fn snapshot() -> (World, PeerId, PeerId) {
    let mut world = World::new(0x39, CLEAN);
    let (client, server) = world.connected();
    for message in 0..20_u8 {
        world.reliable(SERVER, server, &[message; 40]).unwrap();
        world.reliable(CLIENT, client, &[message; 30]).unwrap();
        world.run(Duration::from_millis(30));
    }
    (world, client, server)
}

/// Continues from the snapshot: the server sends a message that is unique to this copy. Returns the datagrams.
fn resumed(seed: u8, is_called: bool) -> (World, Vec<Vec<u8>>) {
    let (mut world, _, server) = snapshot();
    let before = world.sent.len();
    if is_called {
        let now = world.now();
        world.ends[SERVER].invalidate_all_keys(now, Secret::new([seed; 32]));
    }
    for message in 0..10_u8 {
        // The peer no longer exists after the call.
        assert_eq!(world.reliable(SERVER, server, &[seed, message]).is_ok(), !is_called);
        world.run(Duration::from_millis(30));
    }
    let sent = world.sent.split_off(before);
    (world, sent.into_iter().filter(|(_, end, _)| *end == SERVER).map(|(_, _, bytes)| bytes).collect())
}

/// Whether the client of the snapshot accepts this packet.
fn opens(packet: &[u8]) -> bool {
    let (mut judge, ..) = snapshot();
    let opened = judge.ends[CLIENT].stats().packets_received;
    judge.deliver(CLIENT, crate::harness::address(SERVER), packet);
    judge.ends[CLIENT].stats().packets_received > opened
}

/// Returns pairs of packets, one from each copy, that differ and were sealed under one key and number.
fn repeats(of_one: &[Vec<u8>], of_other: &[Vec<u8>]) -> usize {
    // First byte and number, without an id.
    let is_pair = |one: &[u8], other: &[u8]| one[..3] == other[..3] && one != other;
    let pairs = of_one.iter().flat_map(|one| of_other.iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| is_pair(one, other) && opens(one) && opens(other)).count()
}

#[test]
fn copied_processes_seal_two_packets_under_one_number() {
    let ((_, one), (_, other)) = (resumed(1, false), resumed(2, false));
    assert!(repeats(&one, &other) >= 10, "{} packets, {} packets", one.len(), other.len());
}

#[test]
fn copied_processes_seal_nothing_under_invalidated_keys() {
    let ((world, one), (_, other)) = (resumed(1, true), resumed(2, true));
    assert_eq!(repeats(&one, &other), 0);
    assert!(one.iter().chain(&other).all(|packet| !opens(packet)));
    let reason = CloseReason::KeysInvalidated;
    assert_eq!(world.last(SERVER).unwrap().2, Seen::Disconnected(reason, Vec::new()));
    assert_eq!(world.ends[SERVER].connection_count(), 0);
}

#[test]
fn a_client_reconnects_to_each_copied_process_with_new_keys() {
    // The nonce audit keeps the record of the newest world, in which both copies continue.
    let (mut one, client, _) = snapshot();
    let (mut copy, of_copy, _) = snapshot();
    for (world, seed) in [(&mut one, 1), (&mut copy, 2)] {
        let now = world.now();
        world.ends[SERVER].invalidate_all_keys(now, Secret::new([seed; 32]));
    }
    // There is one client outside. The client of the copy is a copy too.
    let now = copy.now();
    copy.ends[CLIENT].invalidate_all_keys(now, Secret::new([3; 32]));
    copy.run(SECOND);
    let ended = |world: &World| world.last(CLIENT).map(|(_, peer, seen)| (*peer, seen.clone()));
    assert_eq!(ended(&copy), Some((of_copy, Seen::Disconnected(CloseReason::KeysInvalidated, Vec::new()))));
    one.reliable(CLIENT, client, b"still there?").unwrap();
    one.run(SECOND);
    assert_eq!(ended(&one), Some((client, Seen::Disconnected(CloseReason::Reset, Vec::new()))));
    let mut first_words = Vec::new();
    for world in [&mut one, &mut copy] {
        let before = world.sent.len();
        let (_, server) = world.connected();
        world.reliable(SERVER, server, b"welcome back").unwrap();
        world.run(SECOND);
        assert_eq!(world.messages(CLIENT).last().unwrap().1, b"welcome back");
        first_words.push(world.sent.split_off(before));
    }
    let is_in_both =
        |(_, _, bytes): &&(_, _, Vec<u8>)| first_words[1].iter().any(|(_, _, other)| other == bytes);
    assert_eq!(first_words[0].iter().find(is_in_both), None);
}

#[test]
fn invalidation_ends_attempts_and_half_open_connections() {
    let mut world = World::new(7, CLEAN);
    let client = world.connect();
    // The Hello with the cookie was received, and the Welcome is in flight.
    world.run(Duration::from_millis(35));
    assert_eq!((world.ends[SERVER].connection_count(), world.peers(SERVER).len()), (1, 0));
    for end in [CLIENT, SERVER] {
        let now = world.now();
        world.ends[end].invalidate_all_keys(now, Secret::new([9; 32]));
        assert_eq!(world.ends[end].connection_count(), 0);
    }
    world.run(10 * SECOND);
    let failed = Seen::ConnectFailed(ConnectError::KeysInvalidated);
    let seen: Vec<_> = world.seen[CLIENT].iter().map(|(_, peer, seen)| (*peer, seen.clone())).collect();
    assert_eq!(seen, [(client, failed)]);
    assert!(world.seen[SERVER].is_empty());
    // The next client can connect.
    world.connected();
}
