//! The end of a server that takes its time.

use std::time::Duration;

use crate::world::{World, config};
use drumfire::{
    ChannelId, Client, ClientEvent, CloseCode, CloseReason, ConnectError, RefuseReason, SendOptions, Workers,
};

const RELIABLE: SendOptions = SendOptions::reliable_ordered();

/// Plays on until the connection is over; answers how many messages came, and why it ended.
fn play(mut client: Client) -> (usize, Option<CloseReason>) {
    let mut messages = 0;
    for _ in 0..30_000 {
        client.wait(Duration::from_millis(1));
        for event in client.poll() {
            match event {
                ClientEvent::Message { .. } => messages += 1,
                ClientEvent::Disconnected { reason, .. } => return (messages, Some(reason)),
                _ => {}
            }
        }
    }
    (messages, None)
}

#[test]
fn everybody_gets_everything_first_and_whoever_takes_nothing_is_named_at_the_deadline() {
    const MESSAGES: usize = 300;
    for workers in [Workers::Inline, Workers::Count(2)] {
        let mut world = World::connected(config(workers), 5);
        for peer in world.peers.clone() {
            for _ in 0..MESSAGES {
                world.server.send(peer, ChannelId(0), &[7; 500][..], RELIABLE).expect("room");
            }
        }
        let World { server, mut clients, peers, .. } = world;
        // One of them is asleep.
        let sleeper = clients.remove(0);
        let players: Vec<_> =
            clients.into_iter().map(|client| std::thread::spawn(move || play(client))).collect();
        let undelivered = server.shut_down(Duration::from_secs(2));
        assert_eq!(undelivered.len(), 1, "{workers:?}: {undelivered:?}");
        assert!(peers.contains(&undelivered[0].peer) && undelivered[0].bytes > 100_000, "{undelivered:?}");
        for player in players {
            let goodbye = CloseReason::Remote { code: CloseCode::Shutdown, application_code: 0 };
            assert_eq!(player.join().expect("no panic"), (MESSAGES, Some(goodbye)));
        }
        drop(sleeper);
    }
}

#[test]
fn nobody_comes_in_while_a_server_ends() {
    let mut world = World::connected(config(Workers::Count(1)), 1);
    let (peer, address) = (world.peers[0], world.server.local_addr());
    world.server.send(peer, ChannelId(0), "for who is asleep", RELIABLE).expect("room");
    let World { server, clients, .. } = world;
    let end = std::thread::spawn(move || server.shut_down(Duration::from_secs(3)));
    let mut late = None;
    for _ in 0..200 {
        let mut client = Client::connect_dev(address).expect("a client");
        client.wait(Duration::from_secs(5));
        match client.poll().next() {
            // It came before the server heard of its end.
            Some(ClientEvent::Connected) => {}
            other => {
                late = other;
                break;
            }
        }
    }
    let is_refused = matches!(
        late,
        Some(ClientEvent::ConnectFailed { error: ConnectError::Refused(refusal) }) if refusal.reason == RefuseReason::Full
    );
    assert!(is_refused, "{late:?}");
    assert_eq!(end.join().expect("no panic").len(), 1);
    drop(clients);
}
