//! Attempts that must fail, and their errors: bytes without meaning, wrong keys, and servers that do not exist.

use std::net::UdpSocket;
use std::time::Duration;

use super::world::{Polled, World, config};
use drumfire::stats::DropReason;
use drumfire::{ChannelId, Client, ClientConfig, ConnectError, Event, Message, Server, ServerKey, Workers};

use crate::single::{Single as _, connect, connect_dev};

fn is_refused(client: &mut Client) {
    assert!(client.poll(Duration::from_secs(60)), "an event arrives within a minute");
    let events: Vec<Event> = client.polled().collect();
    assert!(matches!(events[..], [Event::ConnectFailed { error: ConnectError::Timeout, .. }]), "{events:?}");
    assert!(client.is_over());
}

#[test]
fn a_server_that_does_not_answer_is_a_timeout() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let mut client = connect_dev(silent.local_addr().expect("bound")).expect("a client");
    assert!(!client.is_up() && !client.is_over());
    is_refused(&mut client);
}

#[test]
fn a_closed_port_is_a_timeout() {
    let address = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    // The server of another test can take the port now. It does not answer a client that expects another key.
    let key = ServerKey::generate().expect("randomness").public();
    is_refused(&mut connect((address, key), &ClientConfig::default()).expect("a client"));
}

#[test]
fn a_wrong_key_is_a_timeout() {
    let server = Server::bind(config(Workers::Count(2))).expect("a server");
    let other = ServerKey::generate().expect("randomness").public();
    let mut client = connect((server.local_addr(), other), &ClientConfig::default()).expect("a client");
    is_refused(&mut client);
    let stats = server.control().stats();
    assert!(stats.dropped(DropReason::BadMac1) > 0);
    assert_eq!((stats.connections(), stats.unexplained()), (0, 0));
}

#[test]
fn a_wrong_protocol_id_is_refused_with_its_reason() {
    let server = Server::bind(config(Workers::Count(1)).protocol_id(1)).expect("a server");
    let config = ClientConfig::default().protocol_id(2);
    let key = ServerKey::dev().public();
    let mut client = connect((server.local_addr(), key), &config).expect("a client");
    assert!(client.poll(Duration::from_secs(60)), "an event arrives within a minute");
    let Some(Event::ConnectFailed { error: error @ ConnectError::Refused(_), .. }) = client.polled().next()
    else {
        panic!("not refused");
    };
    assert!(error.to_string().contains("another protocol id"), "{error}");
    assert!(server.control().stats().dropped(DropReason::WrongProtocol) > 0);
}

#[test]
fn junk_is_counted_by_name_and_disturbs_no_client() {
    const ROUNDS: u64 = 50;
    for workers in [Workers::Inline, Workers::Count(2)] {
        let mut world = World::connected(config(workers), 2);
        let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
        stranger.connect(world.server.local_addr()).expect("connected");
        let mut forged = [0x55; 60];
        forged[0] = 0x09;
        let kinds: [(DropReason, &[u8]); 4] = [
            (DropReason::FixedBits, &[0x00; 40]),
            (DropReason::WrongLength, &[0x89; 700]),
            (DropReason::ForgedId, &forged),
            (DropReason::UnknownKind, &[0x88; 64]),
        ];
        let before: Vec<u64> =
            kinds.iter().map(|(reason, _)| world.server.control().stats().dropped(*reason)).collect();
        for _ in 0..ROUNDS {
            for (_, junk) in &kinds {
                stranger.send(junk).expect("sent");
            }
            // So few datagrams at a time fit into any receive buffer.
            world.step();
        }
        world.until("all junk is counted", |world| {
            let stats = world.server.control().stats();
            kinds.iter().zip(&before).all(|((reason, _), before)| stats.dropped(*reason) - before == ROUNDS)
        });
        assert_eq!(world.server.control().stats().unexplained(), 0);
        for client in &mut world.clients {
            client.send_up(Message::reliable_ordered(ChannelId(0), "still here")).expect("room");
        }
        world.until("both still talk", |world| world.events.len() == 2);
        assert!(world.events.iter().all(|event| matches!(event, Event::Message { .. })));
    }
}
