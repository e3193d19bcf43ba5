//! Sockets that are bound to an unspecified address. Every datagram has the local address that it was sent to, and a reply
//! can be sent from that address. A client that is connected to one address accepts no reply from another.

#![cfg(all(target_os = "linux", not(feature = "portable")))]

use std::net::{IpAddr, SocketAddr, UdpSocket};

use drumfire_socket::{
    FlushEnd, Gro, GroupConfig, LocalAddress, ReceiverConfig, SendBatch, SendMode, Sender,
};

use crate::fixtures::{DEADLINE, Inbox};

/// The address of the server, the local addresses that clients send to, and the address of the clients.
const CASES: [(&str, &[&str], &str); 3] = [
    ("0.0.0.0:0", &["127.0.0.1", "127.0.0.2", "127.9.9.9"], "127.0.0.1:0"),
    ("[::]:0", &["::1"], "[::1]:0"),
    // IPv4 clients of a socket for both families.
    ("[::]:0", &["127.0.0.3", "127.0.0.4"], "127.0.0.1:0"),
];

const MODES: [SendMode; 3] = [SendMode::Single, SendMode::Sendmmsg, SendMode::Gso];

/// Sends a datagram from every client and replies with three, from the local address that the datagram was sent to.
fn reply(server: &str, addresses: &[&str], from: &str, mode: SendMode, receiver: &ReceiverConfig) {
    const REPLIES: usize = 3;
    let mut inbox = Inbox::bind(&GroupConfig::new(server.parse().expect("an address")), receiver);
    let port = inbox.address.port();
    let clients: Vec<UdpSocket> = addresses
        .iter()
        .map(|ip| {
            let client = UdpSocket::bind(from).expect("a client");
            let ip: IpAddr = ip.parse().expect("an address");
            client.connect(SocketAddr::new(ip, port)).expect("connected");
            client.set_read_timeout(Some(DEADLINE)).expect("a timeout");
            client.send(ip.to_string().as_bytes()).expect("sent");
            client
        })
        .collect();
    let mut requests: Vec<(SocketAddr, LocalAddress, Vec<u8>)> = Vec::new();
    inbox.collect(clients.len() as u64, |_, received| {
        requests.extend(received.datagrams().map(|each| (each.from, each.local, each.bytes.to_vec())));
    });
    let mut batch = SendBatch::new(64, 4_096);
    for (to, local, bytes) in &requests {
        assert_ne!(*local, LocalAddress::ANY, "{server} {mode:?}");
        assert!((0..REPLIES).all(|_| batch.push_from(*local, *to, bytes)));
    }
    let (socket, _) = &mut inbox.members[0];
    let mut lost = Vec::new();
    let end = Sender::new(mode).flush(socket, &mut batch, |it| lost.push((it.to, it.fault)));
    assert_eq!((end, &lost[..]), (FlushEnd::Sent, &[][..]), "{server} {mode:?}");
    for (client, ip) in clients.iter().zip(addresses) {
        for _ in 0..REPLIES {
            let mut reply = [0; 64];
            let bytes =
                client.recv(&mut reply).unwrap_or_else(|error| panic!("{server} {ip} {mode:?}: {error}"));
            assert_eq!(&reply[..bytes], ip.as_bytes());
        }
    }
}

#[test]
fn a_reply_is_sent_from_the_address_of_the_request() {
    for (server, addresses, from) in CASES {
        for mode in MODES {
            reply(server, addresses, from, mode, &ReceiverConfig::default());
        }
    }
}

#[test]
fn one_slot_and_trains_report_the_local_address() {
    for (server, addresses, from) in CASES {
        reply(server, addresses, from, SendMode::Gso, &ReceiverConfig::default().max_batch(1));
        reply(server, addresses, from, SendMode::Gso, &ReceiverConfig::default().gro(Gro::On));
    }
}

#[test]
fn sockets_of_a_group_use_the_same_address_numbers() {
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
    assert!(sockets.len() > 1, "only one socket received datagrams");
    let distinct: std::collections::HashSet<u16> = numbers.values().map(|local| local.to_number()).collect();
    assert_eq!(distinct.len(), 3);
}

#[test]
fn a_socket_with_a_specific_address_reports_any() {
    let group = GroupConfig::new("127.0.0.1:0".parse().expect("an address"));
    let mut inbox = Inbox::bind(&group, &ReceiverConfig::default());
    UdpSocket::bind("127.0.0.1:0").expect("a sender").send_to(b"x", inbox.address).expect("sent");
    inbox.collect(1, |_, received| {
        assert!(received.datagrams().all(|datagram| datagram.local == LocalAddress::ANY));
    });
}
