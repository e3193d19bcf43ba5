//! Datagrams that the operating system refuses: one that is too long shortens the next ones, and an address that is
//! unreachable ends its connection.

use crate::connection::paths::{attacker, run_copied};
use crate::harness::{CLEAN, CLIENT, SERVER, Seen, World, address};
use drumfire_proto::{CloseReason, ConnectError, SendOptions};
use std::time::Duration;

/// Lets the client fill packets for a while. Returns the size of its packets after that.
fn fill(world: &mut World, seconds: u64) -> u16 {
    let client = world.peers(CLIENT)[0];
    for number in 0..seconds * 10 {
        let bytes = [number.to_be_bytes(); 400].concat();
        world.reliable(CLIENT, client, &bytes).unwrap();
        world.run(Duration::from_millis(100));
    }
    let now = world.now();
    world.ends[CLIENT].peer_stats(now, client).unwrap().datagram_max_bytes
}

#[test]
fn a_refused_size_shortens_packets_immediately() {
    let mut world = World::new(1, CLEAN);
    world.connected();
    world.carries = [Some(1_400); 2];
    assert_eq!(fill(&mut world, 3), 1_372);
    assert_eq!(world.refused, [1_472, 1_452, 1_412], "once each");
    // The path to the peer has changed, and its first link carries less.
    world.carries = [Some(1_300); 2];
    world.refused.clear();
    assert_eq!(fill(&mut world, 3), 1_232);
    assert!(world.refused.len() <= 3, "{:?}", world.refused);
    world.run(Duration::from_secs(1));
    assert_eq!(world.messages(SERVER).len(), 60, "nothing was lost for good");
    assert_eq!(world.messages(SERVER)[59].1, [29_u64.to_be_bytes(); 400].concat());
}

#[test]
fn a_refusal_of_the_minimum_size_changes_nothing() {
    let mut world = World::new(2, CLEAN);
    let (client, server) = world.connected();
    world.carries = [Some(1_500); 2];
    assert_eq!(fill(&mut world, 2), 1_472);
    let now = world.now();
    for bytes in [0, 40, 1_200] {
        world.ends[CLIENT].handle_too_large(now, client, bytes);
    }
    // The other end's id for it is unknown here.
    world.ends[CLIENT].handle_unreachable(now, server, Some(address(CLIENT).into()));
    assert_eq!(fill(&mut world, 1), 1_472);
    assert!(world.refused.is_empty(), "{:?}", world.refused);
}

#[test]
fn an_unreachable_peer_is_closed_once() {
    let mut world = World::new(3, CLEAN);
    let (_, server) = world.connected();
    world.unreachable.push(address(CLIENT));
    for text in [b"1", b"2"] {
        // After the first refusal the peer is gone.
        let _ = world.reliable(SERVER, server, text);
        world.run(Duration::from_millis(1));
    }
    let ends = world.seen[SERVER].iter().filter(|(_, _, seen)| matches!(seen, Seen::Disconnected(..)));
    assert_eq!(ends.count(), 1);
    let last = world.last(SERVER).map(|(_, peer, seen)| (*peer, seen));
    let why = Seen::Disconnected(CloseReason::Unreachable, Vec::new());
    assert!(last.is_some_and(|(peer, seen)| peer == server && *seen == why), "{last:?}");
    assert_eq!((world.ends[SERVER].connection_count(), world.refused.len()), (0, 1));
    assert_eq!(world.ends[SERVER].stats().connections_closed, 1);
}

#[test]
fn an_attempt_to_an_unreachable_address_fails_immediately() {
    let mut world = World::new(4, CLEAN);
    world.unreachable.push(address(SERVER));
    let peer = world.connect();
    world.flush();
    let began = world.now;
    assert_eq!(world.last(CLIENT), Some(&(began, peer, Seen::ConnectFailed(ConnectError::Unreachable))));
    assert_eq!((world.ends[CLIENT].connection_count(), world.refused.len()), (0, 1));
}

#[test]
fn a_welcome_that_cannot_be_sent_leaves_nothing_half_open() {
    let mut world = World::new(5, CLEAN);
    world.connect();
    while world.ends[SERVER].connection_count() == 0 {
        world.run(Duration::from_millis(1));
        // The response with the cookie is sent. The Welcome is the first datagram of a connection.
        if world.sent.iter().any(|(_, end, _)| *end == SERVER) {
            world.unreachable = vec![address(CLIENT)];
        }
        if !world.refused.is_empty() {
            break;
        }
    }
    assert_eq!((world.refused.len(), world.ends[SERVER].connection_count()), (1, 0));
    assert!(world.seen[SERVER].is_empty());
}

#[test]
fn copied_packets_from_unreachable_addresses_close_nothing() {
    let mut world = World::new(6, CLEAN);
    let (client, server) = world.connected();
    world.unreachable.push(attacker());
    for number in 0..20_u8 {
        world.send(CLIENT, client, 0, &[number], SendOptions::reliable_ordered()).unwrap();
        world.reliable(SERVER, server, &[number]).unwrap();
        run_copied(&mut world, Duration::from_millis(100));
    }
    world.run(Duration::from_secs(5));
    assert!(!world.refused.is_empty(), "it was asked whether the peer is there");
    assert_eq!([CLIENT, SERVER].map(|end| world.messages(end).len()), [20, 20]);
    assert_eq!(world.ends[SERVER].address(server), Some(address(CLIENT)));
}
