//! Workers whose application calls them on their own thread.

use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{ChannelId, Message, Outcome, SendError};

use super::Trap;
use super::world::World;
use crate::base::sync::shared_steps;
use crate::message::event::Event;
use crate::message::group::{Audience, GroupId};
use crate::worker::actions::Actions as _;
use crate::worker::command::Broadcast;

fn message(text: &'static str) -> Message {
    Message::reliable_ordered(ChannelId(0), text)
}

/// Sends a message from each side to the other, and a broadcast, and runs passes until all of them have arrived.
fn exchange(world: &mut World) {
    let peers = world.connected();
    for (client, _, server) in &mut world.clients {
        client.received.clear();
        client.worker.send(*server, message("up")).unwrap();
    }
    let server = &mut world.servers[0];
    peers.iter().for_each(|peer| server.worker.send(*peer, message("down")).unwrap());
    server.worker.broadcast(Broadcast { audience: Audience::ALL, message: message("to all") }).unwrap();
    for _ in 0..100 {
        world.step();
    }
    let is_complete = |client| world.texts(client) == ["down", "to all"];
    assert!((0..world.clients.len()).all(is_complete));
}

#[test]
fn calls_and_passes_take_no_lock_and_exchange_no_flag() {
    let mut world = World::direct(2);
    exchange(&mut world);
    let before = shared_steps::count();
    exchange(&mut world);
    assert_eq!(shared_steps::count(), before);
    // A worker with a channel needs them, so the count does count.
    let mut world = World::of_one(1);
    let before = shared_steps::count();
    world.step();
    assert!(shared_steps::count() > before);
}

#[test]
fn a_panic_in_a_call_ends_one_connection() {
    let mut world = World::direct(2);
    let peers = world.connected();
    // The connection drops the message, because it is too long.
    let too_long = Bytes::from_owner(Trap(vec![0; 70_000]));
    let server = &mut world.servers[0].worker;
    let sent = server.send(peers[0], Message::reliable_ordered(ChannelId(0), too_long));
    assert_eq!(sent, Err(SendError::Closed));
    assert_eq!((server.stats().panics, server.is_connected(peers[0])), (1, false));
    server.send(peers[1], message("still there")).unwrap();
    world.run_until("the other client was reached", |world| world.texts(1) == ["still there"]);
    assert_eq!(world.failed_peers(), [peers[0]]);
}

#[test]
fn open_receipts_are_lost_before_the_end() {
    let mut world = World::direct(1);
    let peer = world.connected()[0];
    let server = &mut world.servers[0].worker;
    let receipts = [1, 2].map(|_| server.send_with_receipt(peer, message("never acknowledged")).unwrap());
    let refused = Message::reliable_ordered(ChannelId(0), vec![0; 70_000]);
    assert!(matches!(server.send_with_receipt(peer, refused), Err(SendError::TooLarge { .. })));
    server.close(peer, 7, "over");
    assert_eq!(server.send(peer, message("too late")), Err(SendError::Closed));
    let lost = |receipt| Event::Receipt { peer, receipt, outcome: Outcome::Lost };
    assert_eq!(server.next_event(), Some(lost(receipts[0])));
    assert_eq!(server.next_event(), Some(lost(receipts[1])));
    assert!(matches!(server.next_event(), Some(Event::Disconnected { .. })));
    assert_eq!(server.next_event(), None);
    assert_eq!(server.send(peer, message("too late")), Err(SendError::UnknownPeer));
}

#[test]
fn a_broadcast_precedes_a_later_message_to_one_peer() {
    let mut world = World::direct(1);
    let (peer, group) = (world.connected()[0], GroupId(1));
    let server = &mut world.servers[0].worker;
    assert!(server.join(peer, group));
    server.broadcast(Broadcast { audience: group.into(), message: message("first") }).unwrap();
    server.send(peer, message("second")).unwrap();
    world.run_until("both arrived", |world| world.texts(0) == ["first", "second"]);
}

#[test]
fn a_worker_that_ends_closes_peers_whose_events_were_not_taken() {
    let mut world = World::direct(0);
    world.join(0);
    for _ in 0..200 {
        // The server's application takes no events.
        world.step_clients();
        world.servers[0].worker.work();
        world.carry_replies();
        world.pass(Duration::from_millis(1));
    }
    assert_eq!(world.servers[0].worker.peers().len(), 0);
    world.servers[0].worker.finish(drumfire_proto::CloseCode::Shutdown);
    world.carry_replies();
    world.step_clients();
    assert!(matches!(world.clients[0].0.received.back(), Some(Event::Disconnected { .. })));
}

#[test]
fn a_lost_socket_ends_each_peer_once_and_no_event_follows() {
    let mut world = World::direct(2);
    for (client, _, server) in &mut world.clients {
        client.worker.send(*server, message("not taken")).unwrap();
    }
    world.step_clients();
    let server = &mut world.servers[0];
    server.received.clear();
    server.worker.work();
    assert!(server.worker.has_events());
    server.wire.0.lock().unwrap().is_closed = true;
    server.worker.work();
    assert!(server.worker.is_over() && server.worker.connection_count() == 0);
    // All timeouts of the connections pass.
    for _ in 0..60 {
        world.servers[0].work();
        world.pass(Duration::from_secs(1));
    }
    let received = &world.servers[0].received;
    assert!(received.len() == 2 && world.failed_peers().len() == 2, "{received:?}");
}

#[test]
fn a_client_that_lost_its_socket_keeps_no_connection() {
    let mut world = World::direct(1);
    let (client, ..) = &mut world.clients[0];
    client.wire.0.lock().unwrap().is_closed = true;
    client.work();
    assert!(client.worker.is_over() && client.worker.connection_count() == 0);
    assert!(matches!(client.received.back(), Some(Event::Disconnected { .. })));
    assert_eq!(client.worker.peers().len(), 0);
}
