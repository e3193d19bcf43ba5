//! Placement over real sockets: the clients are spread evenly, and packets arrive at their owner directly.

use super::world::{World, config, granted};
use drumfire::{ChannelId, Message, Workers};

use crate::single::Single as _;

/// Asserts that the busiest worker has at most five percent more clients than its share.
#[track_caller]
fn assert_even(world: &World, workers: usize) {
    let mut loads = vec![0_usize; workers];
    for peer in &world.peers {
        loads[peer.worker()] += 1;
    }
    let busiest = loads.iter().copied().max().expect("some workers");
    let share = world.peers.len().div_ceil(workers);
    assert!(busiest * 100 <= share * 105, "{loads:?}");
}

#[test]
fn clients_spread_evenly_and_no_packet_is_forwarded() {
    for (workers, clients) in [(2, 8), (4, 16), (3, 13), (4, 33), (8, 40), (4, 200)] {
        let mut world = World::connected(config(Workers::Count(workers)), clients);
        assert_even(&world, usize::from(granted(workers)));
        assert_straight(&mut world, clients);
    }
}

/// Waits until the server has received every datagram that the clients sent. A repeated Hello can wait in the socket of a busy worker.
fn settle(world: &mut World) {
    world.until("all that was sent was taken", |world| {
        let sent: u64 = world.clients.iter().map(|client| client.stats().sent.datagrams).sum();
        let stats = world.server.control().stats();
        let taken: u64 = stats.workers.iter().map(|worker| worker.received.datagrams).sum();
        let forwarded: u64 = stats.workers.iter().map(|worker| worker.forwarded_in).sum();
        sent == taken && forwarded == stats.forwarded()
    });
}

/// Asserts that packets of all clients arrive at their own workers, so that only Hellos were forwarded.
#[track_caller]
fn assert_straight(world: &mut World, clients: usize) {
    settle(world);
    let before = world.server.control().stats();
    for _ in 0..3 {
        for client in &mut world.clients {
            client.send_up(Message::reliable_ordered(ChannelId(0), "to my worker")).expect("room");
        }
        world.events.clear();
        world.until("all messages arrived", |world| world.events.len() == clients);
    }
    let after = world.server.control().stats();
    assert_eq!(after.forwarded(), before.forwarded(), "only Hellos are forwarded");
    assert_eq!((after.connections(), after.unexplained()), (clients, 0));
    assert!(after.forwarded() <= 2 * clients as u64, "{} Hellos were forwarded", after.forwarded());
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
            world.peers.is_empty() && world.server.control().stats().connections() == 0
        });
        for _ in 0..8 {
            world.join();
        }
        world.until("all places are taken", |world| world.peers.len() == 8);
        let first = world.peers.iter().filter(|peer| peer.worker() == 0).count();
        assert_eq!(first, 8 / usize::from(granted(2)), "each worker has its share in round {round}");
    }
}
