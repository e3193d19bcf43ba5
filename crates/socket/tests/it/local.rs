//! Sockets bound to an unspecified address: every datagram says which of the host's addresses it came to, and an
//! answer can leave from there. A client that is connected to one address takes no answer from another.

#![cfg(all(target_os = "linux", not(feature = "portable")))]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::inbox::Inbox;
use drumfire_socket::{
    FlushEnd, Gro, GroupConfig, LocalAddress, ReceiverConfig, SendBatch, SendMode, Sender,
};

/// A server's address, where clients reach it, and what they bind.
const CASES: [(&str, &[&str], &str); 3] = [
    ("0.0.0.0:0", &["127.0.0.1", "127.0.0.2", "127.9.9.9"], "127.0.0.1:0"),
    ("[::]:0", &["::1"], "[::1]:0"),
    // IPv4 on a socket for both families.
    ("[::]:0", &["127.0.0.3", "127.0.0.4"], "127.0.0.1:0"),
];

const MODES: [SendMode; 3] = [SendMode::Single, SendMode::Sendmmsg, SendMode::Gso];

/// Answers each of `rounds` datagrams of every client with three, from where it came to.
fn answered(server: &str, reached: &[&str], from: &str, mode: SendMode, receiver: &ReceiverConfig) {
    const ANSWERS: usize = 3;
    let mut inbox = Inbox::bind(&GroupConfig::new(server.parse().expect("an address")), receiver);
    let port = inbox.address.port();
    let clients: Vec<UdpSocket> = reached
        .iter()
        .map(|ip| {
            let client = UdpSocket::bind(from).expect("a client");
            let ip: IpAddr = ip.parse().expect("an address");
            client.connect(SocketAddr::new(ip, port)).expect("connected");
            client.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            client.send(ip.to_string().as_bytes()).expect("sent");
            client
        })
        .collect();
    let mut heard: Vec<(SocketAddr, LocalAddress, Vec<u8>)> = Vec::new();
    inbox.collect(clients.len() as u64, |_, received| {
        heard.extend(received.datagrams().map(|each| (each.from, each.local, each.bytes.to_vec())));
    });
    let mut batch = SendBatch::new(64, 4_096);
    for (to, local, bytes) in &heard {
        assert_ne!(*local, LocalAddress::ANY, "{server} {mode:?}");
        assert!((0..ANSWERS).all(|_| batch.push_from(*local, *to, bytes)));
    }
    let (socket, _) = &mut inbox.members[0];
    let mut lost = Vec::new();
    let end = Sender::new(mode).flush(socket, &mut batch, |it| lost.push((it.to, it.fault)));
    assert_eq!((end, &lost[..]), (FlushEnd::Sent, &[][..]), "{server} {mode:?}");
    for (client, ip) in clients.iter().zip(reached) {
        for _ in 0..ANSWERS {
            let mut answer = [0; 64];
            let bytes =
                client.recv(&mut answer).unwrap_or_else(|error| panic!("{server} {ip} {mode:?}: {error}"));
            assert_eq!(&answer[..bytes], ip.as_bytes());
        }
    }
}

#[test]
fn an_answer_leaves_from_the_address_that_was_asked() {
    for (server, reached, from) in CASES {
        for mode in MODES {
            answered(server, reached, from, mode, &ReceiverConfig::default());
        }
    }
}

#[test]
fn one_slot_and_trains_tell_it_too() {
    for (server, reached, from) in CASES {
        answered(server, reached, from, SendMode::Gso, &ReceiverConfig::default().max_batch(1));
        answered(server, reached, from, SendMode::Gso, &ReceiverConfig::default().gro(Gro::On));
    }
}

#[test]
fn sockets_of_a_group_number_the_addresses_alike() {
    let group = GroupConfig::new("0.0.0.0:0".parse().expect("an address")).sockets(4);
    let mut inbox = Inbox::bind(&group, &ReceiverConfig::default());
    let port = inbox.address.port();
    let mut numbers = std::collections::HashMap::new();
    let mut sockets = std::collections::HashSet::new();
    for sender in 0..64_u64 {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a sender");
        let to = IpAddr::from([127, 0, 0, u8::try_from(1 + sender % 3).expect("small")]);
        socket.send_to(to.to_string().as_bytes(), (to, port)).expect("sent");
        inbox.collect(sender + 1, |index, received| {
            sockets.insert(index);
            for datagram in received.datagrams() {
                let number = numbers.entry(datagram.bytes.to_vec()).or_insert(datagram.local);
                assert_eq!(*number, datagram.local);
            }
        });
    }
    assert!(sockets.len() > 1, "more than one socket was asked");
    let distinct: std::collections::HashSet<u16> = numbers.values().map(|local| local.to_number()).collect();
    assert_eq!(distinct.len(), 3);
}

#[test]
fn a_socket_bound_to_one_address_does_not_ask() {
    let group = GroupConfig::new("127.0.0.1:0".parse().expect("an address"));
    let mut inbox = Inbox::bind(&group, &ReceiverConfig::default());
    UdpSocket::bind("127.0.0.1:0").expect("a sender").send_to(b"x", inbox.address).expect("sent");
    inbox.collect(1, |_, received| {
        assert!(received.datagrams().all(|datagram| datagram.local == LocalAddress::ANY));
    });
}
