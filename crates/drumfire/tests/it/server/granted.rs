//! What a server and its clients say that the system gave them.

use std::net::UdpSocket;
use std::time::Duration;

use super::world::{PATIENCE, config, granted, now};
use drumfire::stats::SocketGrants;
use drumfire::{Client, ClientConfig, Clients, Server, ServerKey, Workers};

/// The same socket options, asked of the system by another socket of the same kind.
fn ask(receive: usize) -> usize {
    let socket = drumfire_socket::GroupConfig::new("127.0.0.1:0".parse().expect("an address"));
    let group =
        drumfire_socket::ReuseportGroup::bind(&socket.receive_buffer_bytes(receive)).expect("a socket");
    group.into_sockets()[0].granted().receive_buffer_bytes
}

#[test]
fn every_worker_has_an_entry_with_what_its_socket_got() {
    for (workers, count) in [(Workers::Inline, 1), (Workers::Count(1), 1), (Workers::Count(3), granted(3))] {
        let server = Server::bind(config(workers).receive_buffer_bytes(65_536)).expect("a server");
        let granted = server.control().stats().sockets;
        assert_eq!(granted.len(), usize::from(count));
        for one in granted {
            assert_eq!(one.receive_buffer_asked_bytes, Some(65_536));
            assert_eq!(one.receive_buffer_bytes, ask(65_536));
            assert_eq!(one.has_filter, count > 1, "one socket has nothing to steer");
            assert!(one.send_buffer_bytes > 0 && !one.is_receive_buffer_short(), "{one}");
        }
    }
}

#[test]
fn a_buffer_that_the_system_does_not_give_is_told_and_not_an_error() {
    let server = Server::bind(config(Workers::Inline).receive_buffer_bytes(1 << 30)).expect("a server");
    let granted = server.control().stats().sockets[0];
    assert_eq!(granted.receive_buffer_bytes, ask(1 << 30));
    let is_short = ask(1 << 30) < 1 << 30;
    assert_eq!(
        (granted.is_receive_buffer_short(), granted.to_string().contains("SHORT")),
        (is_short, is_short)
    );
    let plain = Server::bind(config(Workers::Inline)).expect("a server").control().stats().sockets[0];
    assert_eq!((plain.receive_buffer_asked_bytes, plain.is_receive_buffer_short()), (None, false));
}

#[test]
fn a_server_that_asks_for_nothing_has_four_mebibytes_or_what_there_is_of_them() {
    let granted = Server::bind(config(Workers::Inline)).expect("a server").control().stats().sockets[0]
        .receive_buffer_bytes;
    assert_eq!(granted, raised(4 << 20));
}

/// The buffer of a socket that is raised to this size, if the system's default is smaller.
fn raised(least: usize) -> usize {
    let untouched = drumfire_socket::Socket::connect("127.0.0.1:9".parse().expect("an address"), None);
    let untouched = untouched.expect("a socket").granted().receive_buffer_bytes;
    if untouched < least { ask(least) } else { untouched }
}

#[test]
fn clients_ask_for_a_buffer_by_their_number_of_connections() {
    const KIB: usize = 1_024;
    let (to, config) = ("127.0.0.1:9".parse().expect("an address"), ClientConfig::default());
    let has = |granted: Option<SocketGrants>| granted.expect("there is a socket").receive_buffer_bytes;
    let mut client = Client::connect((to, ServerKey::dev().public()), &config).expect("a client");
    assert_eq!(has(client.granted()), raised(256 * KIB));
    client.rebind().expect("another socket");
    assert_eq!(has(client.granted()), raised(256 * KIB));
    let address = "127.0.0.1:0".parse().expect("an address");
    for (connections, least) in [(1, 256), (4, 256), (5, 320), (64, 4_096), (300, 4_096), (1 << 22, 4_096)] {
        let mut clients = Clients::bind(address, connections, &config).expect("a socket");
        assert_eq!(has(clients.granted()), raised(least * KIB), "{connections}");
        clients.rebind(address).expect("another socket");
        assert_eq!(has(clients.granted()), raised(least * KIB), "{connections}");
    }
}

#[test]
fn clients_tell_it_too_and_again_after_a_change_of_sockets() {
    let server = Server::bind(config(Workers::Inline)).expect("a server");
    let is_told = |granted: Option<SocketGrants>| {
        let granted = granted.expect("there is a socket");
        assert!(granted.receive_buffer_bytes > 0 && !granted.has_filter, "{granted}");
        assert_eq!(granted.has_gso, server.control().stats().sockets[0].has_gso);
        assert_eq!(granted.is_never_fragmented, server.control().stats().sockets[0].is_never_fragmented);
    };
    let mut client = Client::connect_dev(server.local_addr()).expect("a client");
    is_told(client.granted());
    client.rebind().expect("another socket");
    is_told(client.granted());
    let address = "127.0.0.1:0".parse().expect("an address");
    let mut clients = Clients::bind(address, 2, &ClientConfig::default()).expect("a socket");
    clients.connect((server.local_addr(), ServerKey::dev().public())).expect("room");
    is_told(clients.granted());
    clients.rebind(address).expect("another socket");
    is_told(clients.granted());
}

#[test]
fn clients_ask_for_the_buffer_they_are_told_and_again_after_a_change_of_sockets() {
    let server = Server::bind(config(Workers::Inline)).expect("a server");
    let config = ClientConfig::default().receive_buffer_bytes(65_536);
    let is_asked = |granted: Option<SocketGrants>| {
        let granted = granted.expect("there is a socket");
        assert_eq!(granted.receive_buffer_asked_bytes, Some(65_536));
        assert_eq!(granted.receive_buffer_bytes, ask(65_536), "{granted}");
    };
    let (to, key) = (server.local_addr(), ServerKey::dev().public());
    let mut client = Client::connect((to, key), &config).expect("a client");
    is_asked(client.granted());
    client.rebind().expect("another socket");
    is_asked(client.granted());
    let address = "127.0.0.1:0".parse().expect("an address");
    let mut clients = Clients::bind(address, 2, &config).expect("a socket");
    is_asked(clients.granted());
    clients.rebind(address).expect("another socket");
    is_asked(clients.granted());
    let plain = Clients::bind(address, 2, &ClientConfig::default()).expect("a socket").granted();
    assert_eq!(plain.expect("there is a socket").receive_buffer_asked_bytes, None);
}

/// Whether anybody counts what is dropped in front of a socket here.
fn has_drop_count() -> bool {
    drumfire_socket::Socket::connect("127.0.0.1:9".parse().expect("an address"), None)
        .expect("a socket")
        .drop_meter()
        .is_ok()
}

/// Datagrams that are sent to a socket whose receive buffer has room for few of them.
const SENT: u64 = 3_000;

/// Counts until every datagram was received or dropped; a loaded kernel delivers late even on the loopback interface.
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
fn what_the_kernel_drops_in_front_of_a_server_that_is_busy_elsewhere_is_counted() {
    let config = config(Workers::Inline).receive_buffer_bytes(65_536);
    let mut server = Server::bind(config).expect("a server");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for _ in 0..SENT {
        // Datagrams that are nobody's, one by one so that none is a train.
        socket.send_to(&[0; 1_000], server.local_addr()).expect("room");
    }
    until_counted(|| {
        server.poll(Duration::ZERO);
        let worker = server.control().stats().workers.remove(0);
        (worker.received.datagrams, worker.kernel_dropped)
    });
}

#[test]
fn what_the_kernel_drops_in_front_of_clients_is_counted() {
    let config = ClientConfig::default().receive_buffer_bytes(65_536);
    let mut clients =
        Clients::bind("127.0.0.1:0".parse().expect("an address"), 1, &config).expect("a socket");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for _ in 0..SENT {
        socket.send_to(&[0; 1_000], clients.local_addr()).expect("room");
    }
    until_counted(|| {
        clients.poll(Duration::ZERO);
        let stats = clients.stats();
        (stats.received.datagrams, stats.kernel_dropped)
    });
}
