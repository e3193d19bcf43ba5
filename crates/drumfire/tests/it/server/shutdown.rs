//! The shutdown of a server.

use std::time::Duration;

use super::world::{PATIENCE, Polled, World, config, now};
use drumfire::control::Undelivered;
use drumfire::error::{CloseCode, RefuseReason};
use drumfire::{ChannelId, Client, CloseReason, ConnectError, Event, Message, SendOptions, Server, Workers};

use crate::single::connect_dev;

const RELIABLE: SendOptions = SendOptions::reliable_ordered();

/// Polls a client until its connection ends. Returns the number of messages that arrived, and the reason for the end.
fn play(mut client: Client) -> (usize, Option<CloseReason>) {
    let (mut messages, deadline) = (0, now() + PATIENCE);
    while now() < deadline {
        client.poll(Duration::from_millis(1));
        while let Some(event) = client.next_event() {
            match event {
                Event::Message { .. } => messages += 1,
                Event::Disconnected { closed, .. } => return (messages, Some(closed.reason)),
                _ => {}
            }
        }
    }
    (messages, None)
}

/// Shuts a server down. Returns the messages that were not delivered.
fn shut_down(mut server: Server, deadline: Duration) -> Vec<Undelivered> {
    let mut shutdown = server.control().shut_down(deadline);
    let give_up = now() + PATIENCE + PATIENCE;
    loop {
        server.poll(Duration::from_millis(1));
        server.events().for_each(drop);
        if let Some(undelivered) = shutdown.try_take() {
            return undelivered;
        }
        assert!(now() < give_up, "the shutdown ends");
    }
}

/// The number of messages to each client. It exceeds the number that is sent before the first ack.
const MESSAGES: usize = 300;

/// Returns a server that has sent [`MESSAGES`] messages to each of its clients.
fn busy(workers: Workers, clients: usize) -> World {
    let mut world = World::connected(config(workers), clients);
    for peer in world.peers.clone() {
        for _ in 0..MESSAGES {
            world.server.send(peer, Message::new(ChannelId(0), &[7; 500][..], RELIABLE)).expect("room");
        }
    }
    world
}

#[test]
fn a_shutdown_ends_when_all_messages_are_delivered() {
    for workers in [Workers::Inline, Workers::Count(2)] {
        let World { server, clients, .. } = busy(workers, 4);
        let players: Vec<_> =
            clients.into_iter().map(|client| std::thread::spawn(move || play(client))).collect();
        assert_eq!(shut_down(server, PATIENCE), [], "{workers:?}");
        for player in players {
            let goodbye = CloseReason::Remote { code: CloseCode::Shutdown, application_code: 0 };
            assert_eq!(player.join().expect("no panic"), (MESSAGES, Some(goodbye)));
        }
    }
}

#[test]
fn a_client_that_receives_nothing_is_named_at_the_deadline() {
    for workers in [Workers::Inline, Workers::Count(2)] {
        // The client is not polled.
        let World { server, clients, peers, .. } = busy(workers, 1);
        let undelivered = shut_down(server, Duration::from_millis(500));
        assert_eq!(undelivered.len(), 1, "{workers:?}: {undelivered:?}");
        assert!(undelivered[0].peer == peers[0] && undelivered[0].bytes > 100_000, "{undelivered:?}");
        drop(clients);
    }
}

#[test]
fn no_client_is_accepted_while_a_server_shuts_down() {
    let mut world = World::connected(config(Workers::Count(1)), 1);
    let (peer, address) = (world.peers[0], world.server.local_addr());
    world.server.send(peer, Message::new(ChannelId(0), "for who is asleep", RELIABLE)).expect("room");
    let World { server, clients, .. } = world;
    let end = std::thread::spawn(move || shut_down(server, PATIENCE));
    let mut late = None;
    for _ in 0..200 {
        let mut client = connect_dev(address).expect("a client");
        client.poll(PATIENCE);
        match client.polled().next() {
            // The client connected before the worker processed the shutdown.
            Some(Event::Connected { .. }) => {}
            other => {
                late = other;
                break;
            }
        }
    }
    let is_refused = matches!(
        &late,
        Some(Event::ConnectFailed { error: ConnectError::Refused(refusal), .. }) if refusal.reason == RefuseReason::Full
    );
    assert!(is_refused, "{late:?}");
    // The shutdown waits for the client that is not polled, until that one has left.
    drop(clients);
    end.join().expect("no panic");
}
