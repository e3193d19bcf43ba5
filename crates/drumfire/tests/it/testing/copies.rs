//! Worlds in which an end invalidates its keys, because a copy of it may exist.

use std::time::Duration;

use super::restarts::{end, ended};
use super::{Polled, World, pair, server_config};
use drumfire::{
    Bytes, ChannelId, ClientConfig, CloseReason, Closed, Event, Message, PeerId, Reconnect, ReconnectReason,
    SendError,
};

use crate::single::Single as _;

const SECOND: Duration = Duration::from_secs(1);

fn who_came(world: &mut World) -> Vec<PeerId> {
    let came = world.server.polled().filter_map(|event| match event {
        Event::Connected { peer, .. } => Some(peer),
        _ => None,
    });
    came.collect()
}

/// Returns a world with connected clients that reconnect by themselves, and their ids at the server.
fn returning(clients: usize, seed: u64) -> (World, Vec<PeerId>) {
    let mut world = World::new(server_config(), seed).unwrap();
    for _ in 0..clients {
        world.join(&ClientConfig::default().reconnect(Reconnect::Within(60 * SECOND))).unwrap();
    }
    world.advance(SECOND);
    let peers = who_came(&mut world);
    assert_eq!(peers.len(), clients);
    world.clients.iter_mut().for_each(|client| client.polled().for_each(drop));
    (world, peers)
}

fn why_again(world: &mut World, client: usize) -> Vec<ReconnectReason> {
    let again = world.clients[client].polled().filter_map(|event| match event {
        Event::Reconnecting { reason, .. } => Some(reason),
        _ => None,
    });
    again.collect()
}

#[test]
fn all_players_reconnect_after_a_server_invalidates_keys() {
    let (mut world, peers) = returning(50, 1);
    // This message is not flushed yet, so it is never sent.
    world.server.send(peers[0], Message::reliable_ordered(ChannelId(0), "too late")).unwrap();
    let address = world.server.local_addr();
    world.take_captured();
    let mut invalidated = world.server.control().invalidate_keys();
    let mut gone: Vec<PeerId> = Vec::new();
    world.server.poll(Duration::ZERO);
    while let Some(event) = world.server.next_event() {
        let Event::Disconnected { peer, closed } = event else { panic!("{event:?}") };
        assert_eq!(*closed, Closed::new(CloseReason::KeysInvalidated, Bytes::new()));
        gone.push(peer);
    }
    assert!(matches!(invalidated.try_take(), Some(Ok(()))));
    gone.sort_unstable();
    assert_eq!(gone, peers);
    let late = world.server.send(peers[0], Message::reliable_ordered(ChannelId(0), "x"));
    assert_eq!(late, Err(SendError::UnknownPeer));
    // The server sends nothing to the clients, because a packet would need the keys.
    world.advance(SECOND);
    assert!(world.take_captured().iter().all(|seen| seen.from != address));
    for client in 0..50 {
        world.clients[client].send_up(Message::reliable_ordered(ChannelId(0), "there?")).unwrap();
    }
    world.advance(SECOND);
    for client in 0..50 {
        assert_eq!(why_again(&mut world, client), [ended(CloseReason::Reset)]);
        assert!(world.clients[client].is_up());
    }
    assert_eq!(who_came(&mut world).len(), 50);
}

#[test]
fn a_client_that_invalidates_keys_reconnects_silently() {
    let (mut world, peers) = returning(1, 2);
    world.clients[0].invalidate_keys().unwrap();
    world.advance(SECOND);
    assert_eq!(why_again(&mut world, 0), [ended(CloseReason::KeysInvalidated)]);
    assert!(world.clients[0].is_up());
    let back = who_came(&mut world);
    assert!(back.len() == 1 && back != peers, "{back:?}");
    // The old connection has no client any more, so it ends by silence.
    world.advance(60 * SECOND);
    let heard: Vec<_> = world.server.polled().collect();
    assert_eq!(
        (heard[0].peer(), end(&heard)),
        (peers[0], &Closed::new(CloseReason::IdleTimeout, Bytes::new()))
    );
}

#[test]
fn a_client_without_reconnect_receives_the_end_once() {
    let mut world = pair(3);
    world.advance(SECOND);
    world.clients[0].polled().for_each(drop);
    world.clients[0].invalidate_keys().unwrap();
    world.clients[0].invalidate_keys().unwrap();
    let heard: Vec<_> = world.clients[0].polled().collect();
    assert_eq!(*end(&heard), Closed::new(CloseReason::KeysInvalidated, Bytes::new()));
    assert!(world.clients[0].is_over());
    world.advance(60 * SECOND);
    assert_eq!(world.clients[0].polled().next(), None);
}

#[test]
fn an_attempt_to_connect_starts_again() {
    let mut world = World::new(server_config(), 4).unwrap();
    world.join(&ClientConfig::default().reconnect(Reconnect::Within(60 * SECOND))).unwrap();
    world.clients[0].invalidate_keys().unwrap();
    world.advance(SECOND);
    let failed = ReconnectReason::Failed(drumfire::ConnectError::KeysInvalidated);
    assert_eq!(why_again(&mut world, 0), [failed]);
    assert_eq!((world.clients[0].is_up(), who_came(&mut world).len()), (true, 1));
}
