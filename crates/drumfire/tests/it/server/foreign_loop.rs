//! Clients in an event loop of the application: it watches the descriptor of the client and sleeps for `poll_timeout`.

use std::os::fd::AsFd;
use std::time::Duration;

use drumfire::{ChannelId, Client, ClientConfig, Event, Message, Server, ServerKey, Workers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::world::{PATIENCE, Polled, config, now};
use crate::single::{Single as _, connect_dev};

/// Returns whether the descriptor is readable, after at most `timeout`.
fn is_readable(client: &impl AsFd, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).expect("a short time");
    poll(&mut [PollFd::new(client, PollFlags::IN)], Some(&timeout)).expect("a poll") == 1
}

/// Polls both sides until the server has a connected peer and the client has nothing left to receive.
fn connected() -> (Server, Client) {
    let mut server = Server::bind(config(Workers::Inline)).expect("a server");
    let mut client = connect_dev(server.local_addr()).expect("a client");
    let until = now() + PATIENCE;
    while !client.is_up() || server.peers().len() == 0 {
        assert!(now() < until, "the client connects");
        server.polled().for_each(drop);
        client.polled().for_each(drop);
    }
    quiet(&mut server, &mut client);
    (server, client)
}

/// Polls both sides until both have sent and received everything.
fn quiet(server: &mut Server, client: &mut Client) {
    let until = now() + PATIENCE;
    loop {
        assert!(now() < until, "the connection becomes quiet");
        server.polled().for_each(drop);
        client.polled().for_each(drop);
        if !is_readable(client, Duration::ZERO) && client.poll_timeout() != Some(Duration::ZERO) {
            return;
        }
    }
}

fn say(server: &mut Server, text: &'static str) {
    let peer = server.peers().next().expect("a peer");
    server.send(peer, Message::reliable_ordered(ChannelId(0), text)).expect("room");
    server.flush();
}

/// Waits with the descriptor alone, and returns the messages that one poll receives.
fn heard(client: &mut Client) -> Vec<String> {
    assert!(is_readable(client, PATIENCE), "a datagram makes the descriptor readable");
    client
        .polled()
        .filter_map(|event| match event {
            Event::Message { payload, .. } => Some(String::from_utf8_lossy(&payload).into_owned()),
            _ => None,
        })
        .collect()
}

#[test]
fn the_descriptor_is_readable_until_a_poll_receives() {
    let (mut server, mut client) = connected();
    say(&mut server, "first");
    assert_eq!(heard(&mut client), ["first"]);
    assert!(!is_readable(&client, Duration::ZERO), "the poll consumed the readiness");
}

#[test]
fn events_that_are_left_make_the_next_poll_due() {
    let (mut server, mut client) = connected();
    say(&mut server, "first");
    assert!(is_readable(&client, PATIENCE));
    client.poll(Duration::ZERO);
    assert_eq!(client.poll_timeout(), Some(Duration::ZERO));
    assert_eq!(client.events().count(), 1);
    quiet(&mut server, &mut client);
    let timeout = client.poll_timeout().expect("the keep-alive is due at some time");
    assert!(timeout > Duration::ZERO, "a quiet client does not keep the loop busy");
}

#[test]
fn calls_with_a_message_or_an_event_make_a_poll_due() {
    let (mut server, mut client) = connected();
    client.send_up(Message::reliable_ordered(ChannelId(0), "not flushed")).expect("room");
    assert_eq!(client.poll_timeout(), Some(Duration::ZERO));
    quiet(&mut server, &mut client);
    // The flush carries the request out, and no datagram follows that would wake the loop.
    client.request_stats(client.server());
    client.flush();
    assert!(!is_readable(&client, Duration::ZERO));
    assert_eq!(client.poll_timeout(), Some(Duration::ZERO));
    assert!(matches!(client.polled().collect::<Vec<_>>()[..], [Event::Stats { .. }]));
    client.close(client.server(), 1, "done");
    client.flush();
    assert_eq!(client.poll_timeout(), Some(Duration::ZERO));
    assert!(matches!(client.polled().last(), Some(Event::Disconnected { .. })));
}

#[test]
fn the_descriptor_stays_the_same_when_the_socket_is_replaced() {
    let (mut server, mut client) = connected();
    let number = |client: &Client| format!("{:?}", client.as_fd());
    let before = number(&client);
    client.rebind().expect("another socket");
    // The server learns the new address from a packet.
    client.send_up(Message::reliable_ordered(ChannelId(0), "from here")).expect("room");
    let until = now() + PATIENCE;
    while !server.polled().any(|event| matches!(event, Event::Message { .. })) {
        assert!(now() < until, "the server follows the client's new address");
        client.polled().for_each(drop);
    }
    quiet(&mut server, &mut client);
    assert_eq!(number(&client), before);
    say(&mut server, "after the change");
    assert_eq!(heard(&mut client), ["after the change"]);
}

/// The loop wakes up for the descriptor and for the due time only, so a wrong due time would make it wait for a timeout of the test.
#[test]
fn descriptor_and_due_time_drive_many_connections() {
    let mut server = Server::bind(config(Workers::Inline)).expect("a server");
    let address = "127.0.0.1:0".parse().expect("an address");
    let mut clients = Client::new(ClientConfig::default().connections(8).address(address)).expect("a socket");
    for _ in 0..8 {
        clients.connect((server.local_addr(), ServerKey::dev().public())).expect("an attempt");
    }
    clients.flush();
    let (until, mut connected) = (now() + PATIENCE, 0);
    while connected < 8 {
        assert!(now() < until, "all clients connect");
        server.polled().for_each(drop);
        let timeout = clients.poll_timeout().unwrap_or(PATIENCE);
        is_readable(&clients, timeout);
        connected += clients.polled().filter(|event| matches!(event, Event::Connected { .. })).count();
    }
}
