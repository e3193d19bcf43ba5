//! Panics in the code of a connection: the patch `panic-point` lets the core panic when it opens a packet with this payload.

use super::*;

/// The payload that the patch names.
const PANIC_PAYLOAD: &str = "panic in the code of this connection";

#[test]
fn a_panic_in_a_connections_code_ends_that_connection_alone() {
    drumfire_proto::audit_nonce::start_world();
    let mut world = World::of_one(3);
    let peers = world.connected();
    for (at, (client, _, peer)) in world.clients.iter().enumerate() {
        client.send(*peer, if at == 1 { PANIC_PAYLOAD } else { "in one batch" });
    }
    world.step();
    // The rest of the batch is lost, as datagrams on the way are, and sent again.
    let from = |world: &World| {
        let received = world.servers[0].received.iter();
        let from = received.filter_map(|event| match event {
            Event::Message { peer, .. } => Some(*peer),
            _ => None,
        });
        from.collect::<std::collections::BTreeSet<_>>()
    };
    world.run_until("the messages of the others arrived", |world| from(world) == [peers[0], peers[2]].into());
    assert_eq!(world.failed_peers(), [peers[1]]);
    let stats = world.servers[0].stats();
    assert_eq!((stats.panics, stats.restarts, stats.connections), (1, 0, 2));
    world.servers[0].send(peers[0], "still there");
    world.run_until("it arrived", |world| world.texts(0) == ["still there"]);
    world.run_until("its client received the end", |world| {
        matches!(world.clients[1].0.received.back(), Some(Event::Disconnected { .. }))
    });
}

#[test]
fn panics_of_a_hundred_connections_in_a_row_end_no_other() {
    drumfire_proto::audit_nonce::start_world();
    let mut world = World::of_one(1);
    for round in 1..=100 {
        world.join(0);
        world.run_until("another is connected", |world| world.connected().len() == 1 + round);
        let (client, _, name) = &world.clients[round];
        client.send(*name, PANIC_PAYLOAD);
        world.run_until("it ended", |world| world.failed_peers().len() == round);
    }
    let stats = world.servers[0].stats();
    assert_eq!((stats.panics, stats.restarts, stats.connections), (100, 0, 1));
    let (client, _, peer) = &world.clients[0];
    client.send(*peer, "I am here");
    world.run_until("nothing was lost", |world| {
        matches!(world.servers[0].received.back(), Some(Event::Message { payload, .. }) if payload == "I am here")
    });
}
