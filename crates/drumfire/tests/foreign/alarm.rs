//! A server reports another process on its port, and that process receives no datagram of a connection.

use std::net::UdpSocket;

use drumfire::{ChannelId, Event, Message, Workers};

use crate::other::Other;
use crate::world::{World, config, now, shares_ports};

const CLIENTS: usize = 20;

/// The number of messages that each client sends at least while the other process is on the port.
const ROUNDS: usize = 100;

/// The number of datagrams that look like Hellos. The kernel distributes them by their addresses.
const STRANGERS: usize = 64;

pub(crate) fn while_it_is_there() {
    if !shares_ports() {
        println!("this path shares no port");
        return;
    }
    let mut world = World::connected(config(Workers::Count(2)), CLIENTS);
    assert!(world.server.control().stats().sockets.iter().all(|granted| granted.has_filter));
    world.until("the first scan has completed", |world| {
        world.server.control().stats().foreign_sockets == Some(0)
    });

    let came_at = now();
    let mut other = Other::start(world.server.local_addr()).expect("let in");
    world.until("the alarm", |world| {
        play(world);
        world.server.control().stats().foreign_sockets == Some(1)
    });
    println!("alarm after {} ms", now().duration_since(came_at).as_millis());
    let mut rounds = 0;
    world.until("all played on", |world| {
        rounds += usize::from(play(world));
        rounds >= ROUNDS
    });
    for client in &mut world.clients {
        let server = client.peers().next().expect("connected");
        client.send(server, Message::reliable_ordered(ChannelId(1), "the last")).expect("room");
    }
    world.until("nothing of it was lost", |world| {
        world.events.iter().filter(|event| is_last(event)).count() == CLIENTS
    });
    assert_eq!(other.count(), 0, "datagrams of existing connections stay with the server");
    assert_eq!(world.peers.len(), CLIENTS);

    // Without this check, the count of 0 above could mean that the other process is not on the port.
    let address = world.server.local_addr();
    world.until("the other process has a part of the port", |_| {
        let sockets = (0..STRANGERS).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        sockets.for_each(|socket| assert_eq!(socket.send_to(&[0x80; 100], address).expect("sent"), 100));
        other.count() > 0
    });

    drop(other);
    world.until("all is quiet again", |world| {
        play(world);
        world.server.control().stats().foreign_sockets == Some(0)
    });
}

fn is_last(event: &Event) -> bool {
    matches!(event, Event::Message { channel: ChannelId(1), .. })
}

/// Sends an unreliable message from each client if the server received nothing in the last turn, so that the test does not spin. Clears
/// the events of the server. Returns whether messages were sent.
fn play(world: &mut World) -> bool {
    let is_quiet = world.events.is_empty();
    if is_quiet {
        for client in &mut world.clients {
            let server = client.peers().next().expect("connected");
            client.send(server, Message::unreliable(ChannelId(0), "here I am")).expect("room");
        }
    }
    world.events.clear();
    is_quiet
}

pub(crate) fn never_with_one_socket() {
    for workers in [Workers::Inline, Workers::Count(1), Workers::Shards { sockets: 1, threads: 1 }] {
        let mut world = World::connected(config(workers), 1);
        assert!(Other::start(world.server.local_addr()).is_none(), "{workers:?}");
        let server = world.clients[0].peers().next().expect("connected");
        world.clients[0].send(server, Message::reliable_ordered(ChannelId(0), "undisturbed")).expect("room");
        world.until("it came", |world| !world.events.is_empty());
        assert_eq!(world.server.control().stats().foreign_sockets, None);
    }
}
