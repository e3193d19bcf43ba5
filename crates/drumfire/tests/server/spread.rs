//! Placement over real sockets: even from the first client on, and packets go straight to their owner.

use crate::world::{World, config};
use drumfire::{ChannelId, SendOptions, Workers};

#[test]
fn two_hundred_clients_spread_evenly_and_no_packet_is_forwarded() {
    const CLIENTS: usize = 200;
    let mut world = World::connected(config(Workers::Count(4)), CLIENTS);
    let mut loads = [0_usize; 4];
    for peer in &world.peers {
        loads[peer.worker()] += 1;
    }
    let busiest = *loads.iter().max().expect("four workers");
    assert!(busiest * 100 <= CLIENTS / 4 * 105, "{loads:?}");

    let before = world.server.stats();
    for _ in 0..3 {
        for client in &mut world.clients {
            client.send(ChannelId(0), "to my worker", SendOptions::reliable_ordered()).expect("room");
        }
        world.events.clear();
        world.until("all messages arrived", |world| world.events.len() == CLIENTS);
    }
    let after = world.server.stats();
    assert_eq!(after.forwarded(), before.forwarded(), "packets were forwarded");
    assert_eq!((after.connections(), after.unexplained()), (CLIENTS, 0));
    assert!(after.forwarded() <= 2 * CLIENTS as u64, "{} Hellos forwarded", after.forwarded());
    let taken: u64 = after.workers.iter().map(|worker| worker.forwarded_in).sum();
    assert_eq!(taken, after.forwarded());
}

#[test]
fn places_of_clients_that_left_are_taken_again() {
    let mut world = World::connected(config(Workers::Count(2)).connections(8), 8);
    for round in 0..3 {
        world.clients.clear();
        world.heard.clear();
        world.until("all left and are forgotten", |world| {
            world.peers.is_empty() && world.server.stats().connections() == 0
        });
        for _ in 0..8 {
            world.join();
        }
        world.until("all places are taken", |world| world.peers.len() == 8);
        let first = world.peers.iter().filter(|peer| peer.worker() == 0).count();
        assert_eq!(first, 4, "round {round}");
    }
}
