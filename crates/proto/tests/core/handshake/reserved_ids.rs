//! A client whose peer id outlives its connection connects again under the same id.

use crate::harness::{CLEAN, CLIENT, SERVER, Seen, World, address, identity};
use drumfire_proto::{ClientConfig, Config, ConnectError, ConnectRequest, PeerId, SendError};
use drumfire_wire::{Close, CloseCode};
use std::time::Duration;

const BYE: Close<'_> = Close { code: CloseCode::Application, application_code: 7, reason: b"" };

fn request() -> ConnectRequest<'static> {
    ConnectRequest { keeps_id: true, ..ConnectRequest::new(address(SERVER), identity()) }
}

/// A client with at most two connections, and one that is established under a reserved id.
fn world(number: u64, client: ClientConfig) -> (World, PeerId) {
    let mut world = World::with(number, CLEAN, Config::default().connections(2), client);
    let now = world.now();
    let peer = world.ends[CLIENT].connect_with(now, &request()).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.peers(CLIENT), [peer]);
    (world, peer)
}

fn close_at_server(world: &mut World) {
    let (now, server) = (world.now(), *world.peers(SERVER).last().unwrap());
    world.ends[SERVER].close(now, server, &BYE).unwrap();
    world.run(Duration::from_millis(100));
    assert!(matches!(world.last(CLIENT), Some((_, _, Seen::Disconnected(..)))));
}

#[test]
fn each_attempt_under_a_reserved_id_is_a_new_connection() {
    for (number, client) in [(1, ClientConfig::many()), (2, ClientConfig::default())] {
        let (mut world, peer) = world(number, client);
        for round in 0..3 {
            // The message is still queued when the connection ends, and does not appear in the next one.
            world.reliable(CLIENT, peer, b"late").unwrap();
            close_at_server(&mut world);
            assert_eq!(world.reliable(CLIENT, peer, b"between"), Err(SendError::UnknownPeer));
            let now = world.now();
            world.ends[CLIENT].connect_again(now, peer, &request()).unwrap();
            world.reliable(CLIENT, peer, b"first").unwrap();
            world.run(Duration::from_secs(1));
            assert_eq!(world.peers(CLIENT), vec![peer; round + 2]);
            assert_eq!(world.messages(SERVER).last(), Some(&(0, b"first".to_vec())));
        }
        assert_eq!(world.peers(SERVER).len(), 4);
        assert_eq!(world.ends[CLIENT].connection_count(), 1);
    }
}

#[test]
fn a_reserved_id_counts_as_a_connection_until_it_is_forgotten() {
    let (mut world, peer) = world(3, ClientConfig::many());
    close_at_server(&mut world);
    let now = world.now();
    let client = &mut world.ends[CLIENT];
    assert_eq!(client.connection_count(), 1);
    let other = client.connect_with(now, &request()).unwrap();
    assert_ne!(other.slot(), peer.slot());
    assert_eq!(client.connect_with(now, &request()), Err(ConnectError::TooManyConnections));
    client.forget_peer(peer);
    assert_eq!(client.connect_again(now, peer, &request()), Err(ConnectError::Closed), "it is not reserved");
    assert_eq!(client.connect_with(now, &request()).map(PeerId::slot), Ok(peer.slot()));
    // It was forgotten already, so this must not free the place of the new connection.
    client.forget_peer(peer);
    assert_eq!(client.connect_with(now, &request()), Err(ConnectError::TooManyConnections));
}

#[test]
fn an_id_can_be_forgotten_or_used_again_while_the_close_is_sent() {
    for is_again in [false, true] {
        let (mut world, peer) = world(4 + u64::from(is_again), ClientConfig::many());
        let now = world.now();
        world.ends[CLIENT].close(now, peer, &BYE).unwrap();
        if is_again {
            world.ends[CLIENT].connect_again(now, peer, &request()).unwrap();
        } else {
            world.ends[CLIENT].forget_peer(peer);
        }
        world.run(Duration::from_secs(20));
        assert_eq!(world.peers(CLIENT), vec![peer; 1 + usize::from(is_again)]);
        assert_eq!(world.ends[CLIENT].connection_count(), usize::from(is_again));
    }
}

#[test]
fn a_connect_without_room_drops_no_closing_connection() {
    // The socket has no connection ids, and therefore one connection.
    let (mut world, peer) = world(7, ClientConfig::default());
    let now = world.now();
    world.ends[CLIENT].close(now, peer, &BYE).unwrap();
    assert_eq!(world.ends[CLIENT].connect_with(now, &request()), Err(ConnectError::TooManyConnections));
    world.run(Duration::from_secs(1));
    assert!(matches!(world.last(SERVER), Some((_, _, Seen::Disconnected(..)))), "the close is sent");
    // After the id is given up, the rest of a closing connection makes room.
    let now = world.now();
    world.ends[CLIENT].connect_again(now, peer, &request()).unwrap();
    world.run(Duration::from_secs(1));
    let now = world.now();
    world.ends[CLIENT].close(now, peer, &BYE).unwrap();
    world.ends[CLIENT].forget_peer(peer);
    world.ends[CLIENT].connect_with(now, &request()).unwrap();
}

#[test]
fn an_attempt_that_fails_keeps_its_id() {
    let (mut world, peer) = world(6, ClientConfig::many());
    close_at_server(&mut world);
    world.link.loss = 100;
    let now = world.now();
    world.ends[CLIENT].connect_again(now, peer, &request()).unwrap();
    assert_eq!(world.ends[CLIENT].connect_again(now, peer, &request()), Err(ConnectError::Closed), "it runs");
    world.run(Duration::from_secs(6));
    assert_eq!(world.last(CLIENT).unwrap().2, Seen::ConnectFailed(ConnectError::Timeout));
    world.link.loss = 0;
    let now = world.now();
    world.ends[CLIENT].connect_again(now, peer, &request()).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.peers(CLIENT), [peer, peer]);
}
