//! The socket options that a server and its clients report as granted.

use std::net::UdpSocket;
use std::time::Duration;

use super::world::{PATIENCE, config, granted, now};
use drumfire::stats::SocketGrants;
use drumfire::{Client, ClientConfig, Server, ServerKey, Workers};

use crate::single::{connect, connect_dev};

/// Returns the receive buffer that the system grants to another socket for the same request.
fn ask(receive: usize) -> usize {
    let socket = drumfire_socket::GroupConfig::new("127.0.0.1:0".parse().expect("an address"));
    let group =
        drumfire_socket::ReuseportGroup::bind(&socket.receive_buffer_bytes(receive)).expect("a socket");
    group.into_sockets()[0].granted().receive_buffer_bytes
}

#[test]
fn every_worker_reports_the_grants_of_its_socket() {
    for (workers, count) in [(Workers::Inline, 1), (Workers::Count(1), 1), (Workers::Count(3), granted(3))] {
        let server = Server::bind(config(workers).receive_buffer_bytes(65_536)).expect("a server");
        let granted = server.control().stats().sockets;
        assert_eq!(granted.len(), usize::from(count));
        for one in granted {
            assert_eq!(one.receive_buffer_requested_bytes, Some(65_536));
            assert_eq!(one.receive_buffer_bytes, ask(65_536));
            assert_eq!(one.has_filter, count > 1, "a single socket needs no filter");
            assert!(one.send_buffer_bytes > 0 && !one.is_receive_buffer_short(), "{one}");
        }
    }
}

#[test]
fn a_smaller_granted_buffer_is_reported_and_not_an_error() {
    let server = Server::bind(config(Workers::Inline).receive_buffer_bytes(1 << 30)).expect("a server");
    let granted = server.control().stats().sockets[0];
    assert_eq!(granted.receive_buffer_bytes, ask(1 << 30));
    let is_short = ask(1 << 30) < 1 << 30;
    assert_eq!(
        (granted.is_receive_buffer_short(), granted.to_string().contains("SHORT")),
        (is_short, is_short)
    );
    let plain = Server::bind(config(Workers::Inline)).expect("a server").control().stats().sockets[0];
    assert_eq!((plain.receive_buffer_requested_bytes, plain.is_receive_buffer_short()), (None, false));
}

#[test]
fn the_default_buffer_of_a_server_is_4_mib_if_granted() {
    let granted = Server::bind(config(Workers::Inline)).expect("a server").control().stats().sockets[0]
        .receive_buffer_bytes;
    assert_eq!(granted, raised(4 << 20));
}

/// Returns the buffer of a socket that is raised to this size if the system's default is smaller.
fn raised(least: usize) -> usize {
    let untouched = drumfire_socket::Socket::connect("127.0.0.1:9".parse().expect("an address"), None);
    let untouched = untouched.expect("a socket").granted().receive_buffer_bytes;
    if untouched < least { ask(least) } else { untouched }
}

#[test]
fn clients_request_a_buffer_for_their_connections() {
    const KIB: usize = 1_024;
    let (to, config) = ("127.0.0.1:9".parse().expect("an address"), ClientConfig::default());
    let has = |granted: Option<SocketGrants>| granted.expect("there is a socket").receive_buffer_bytes;
    let mut client = connect((to, ServerKey::dev().public()), &config).expect("a client");
    assert_eq!(has(client.granted()), raised(256 * KIB));
    client.rebind().expect("another socket");
    assert_eq!(has(client.granted()), raised(256 * KIB));
    let address = "127.0.0.1:0".parse().expect("an address");
    for (connections, least) in [(1, 256), (4, 256), (5, 320), (64, 4_096), (300, 4_096), (1 << 22, 4_096)] {
        let mut clients =
            Client::new(config.clone().connections(connections).address(address)).expect("a socket");
        assert_eq!(has(clients.granted()), raised(least * KIB), "{connections}");
        clients.rebind().expect("another socket");
        assert_eq!(has(clients.granted()), raised(least * KIB), "{connections}");
    }
}

#[test]
fn clients_report_grants_again_after_a_change_of_sockets() {
    let server = Server::bind(config(Workers::Inline)).expect("a server");
    let has_grants = |granted: Option<SocketGrants>| {
        let granted = granted.expect("there is a socket");
        assert!(granted.receive_buffer_bytes > 0 && !granted.has_filter, "{granted}");
        assert_eq!(granted.has_gso, server.control().stats().sockets[0].has_gso);
        assert_eq!(granted.is_never_fragmented, server.control().stats().sockets[0].is_never_fragmented);
    };
    let mut client = connect_dev(server.local_addr()).expect("a client");
    has_grants(client.granted());
    client.rebind().expect("another socket");
    has_grants(client.granted());
    let address = "127.0.0.1:0".parse().expect("an address");
    let mut clients = Client::new(ClientConfig::default().connections(2).address(address)).expect("a socket");
    clients.connect((server.local_addr(), ServerKey::dev().public())).expect("room");
    has_grants(clients.granted());
    clients.rebind().expect("another socket");
    has_grants(clients.granted());
}

#[test]
fn clients_request_their_buffer_again_for_another_socket() {
    let server = Server::bind(config(Workers::Inline)).expect("a server");
    let config = ClientConfig::default().receive_buffer_bytes(65_536);
    let is_asked = |granted: Option<SocketGrants>| {
        let granted = granted.expect("there is a socket");
        assert_eq!(granted.receive_buffer_requested_bytes, Some(65_536));
        assert_eq!(granted.receive_buffer_bytes, ask(65_536), "{granted}");
    };
    let (to, key) = (server.local_addr(), ServerKey::dev().public());
    let mut client = connect((to, key), &config).expect("a client");
    is_asked(client.granted());
    client.rebind().expect("another socket");
    is_asked(client.granted());
    let address = "127.0.0.1:0".parse().expect("an address");
    let mut clients = Client::new(config.clone().connections(2).address(address)).expect("a socket");
    is_asked(clients.granted());
    clients.rebind().expect("another socket");
    is_asked(clients.granted());
    let plain =
        Client::new(ClientConfig::default().connections(2).address(address)).expect("a socket").granted();
    assert_eq!(plain.expect("there is a socket").receive_buffer_requested_bytes, None);
}

/// Returns whether the system counts the datagrams that it drops before a socket.
fn has_drop_count() -> bool {
    drumfire_socket::Socket::connect("127.0.0.1:9".parse().expect("an address"), None)
        .expect("a socket")
        .drop_meter()
        .is_ok()
}

/// The number of datagrams that are sent to a socket. Its receive buffer has room for few of them.
const SENT: u64 = 3_000;

/// Waits until every datagram was received or dropped. A loaded kernel delivers late even on the loopback interface.
fn until_counted(mut received_and_dropped: impl FnMut() -> (u64, u64)) {
    let deadline = now() + PATIENCE;
    loop {
        let (received, dropped) = received_and_dropped();
        if !has_drop_count() {
            return assert_eq!(dropped, 0);
        }
        if received + dropped == SENT {
            return assert!(dropped > SENT / 2, "{dropped}");
        }
        assert!(now() < deadline && received + dropped < SENT, "{received} received, {dropped} dropped");
    }
}

#[test]
fn kernel_drops_before_a_busy_server_are_counted() {
    let config = config(Workers::Inline).receive_buffer_bytes(65_536);
    let mut server = Server::bind(config).expect("a server");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for _ in 0..SENT {
        // The datagrams belong to no connection. Each is sent by itself, so that they form no train.
        socket.send_to(&[0; 1_000], server.local_addr()).expect("room");
    }
    until_counted(|| {
        server.poll(Duration::ZERO);
        let worker = server.control().stats().workers.remove(0);
        (worker.received.datagrams, worker.kernel_dropped)
    });
}

#[test]
fn kernel_drops_before_clients_are_counted() {
    let config = ClientConfig::default().receive_buffer_bytes(65_536);
    let mut clients =
        Client::new(config.clone().connections(1).address("127.0.0.1:0".parse().expect("an address")))
            .expect("a socket");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for _ in 0..SENT {
        socket.send_to(&[0; 1_000], clients.local_addr().expect("bound")).expect("room");
    }
    until_counted(|| {
        clients.poll(Duration::ZERO);
        let stats = clients.stats();
        (stats.received.datagrams, stats.kernel_dropped)
    });
}
