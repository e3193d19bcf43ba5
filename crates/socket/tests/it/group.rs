//! Groups on real sockets: one port for all, and refused when somebody has it.
//!
//! Which socket gets which datagram and which settings are refused are subjects of other files.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use crate::inbox::Inbox;
use drumfire_socket::{
    DrainEnd, GroupConfig, Receiver, ReceiverConfig, ReuseportGroup, SendBatch, SendMode, Sender, Socket,
};

/// Sockets in one group: as many as the platform lets share a port.
const SOCKETS: usize = if ReuseportGroup::MAX_SOCKETS < 6 { ReuseportGroup::MAX_SOCKETS } else { 6 };

/// Whether this is not the portable path.
const IS_NATIVE: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

const LOOPBACKS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn group(address: &str) -> GroupConfig {
    GroupConfig::new(address.parse().expect("an address")).sockets(SOCKETS)
}

fn refusal(config: &GroupConfig) -> io::Error {
    ReuseportGroup::bind(config).err().expect("refused")
}

#[test]
fn the_first_socket_resolves_port_0_for_all() {
    for address in LOOPBACKS {
        let group = ReuseportGroup::bind(&group(address)).expect("a group");
        let shared = group.local_addr();
        assert_ne!(shared.port(), 0);
        assert_eq!(shared.ip(), address.parse::<SocketAddr>().expect("an address").ip());
        let sockets = group.into_sockets();
        assert_eq!(sockets.len(), SOCKETS);
        for socket in &sockets {
            assert_eq!(socket.local_addr().expect("a bound socket"), shared);
        }
    }
}

#[test]
fn every_datagram_reaches_one_socket_of_the_group() {
    const SENDERS: u64 = 64;
    const EACH: u64 = 4;
    for address in LOOPBACKS {
        let mut inbox = Inbox::bind(&group(address), &ReceiverConfig::default());
        let mut seen = HashSet::new();
        let mut used = HashSet::new();
        for sender in 0..SENDERS {
            let socket = UdpSocket::bind(address).expect("a sender");
            for number in 0..EACH {
                let payload = (sender * EACH + number).to_be_bytes();
                socket.send_to(&payload, inbox.address).expect("sent");
            }
            inbox.collect((sender + 1) * EACH, |index, received| {
                used.insert(index);
                for datagram in received.datagrams() {
                    assert_eq!(datagram.from, socket.local_addr().expect("a bound socket"));
                    assert!(seen.insert(datagram.bytes.to_vec()), "delivered twice");
                }
            });
        }
        assert_eq!(seen.len() as u64, SENDERS * EACH);
        // 64 senders that all hash to one of six sockets are less likely than 1 in 10^48.
        assert!(used.len() > 1 || SOCKETS == 1, "only socket {used:?} was used");
    }
}

#[test]
fn a_port_somebody_has_is_refused() {
    for address in LOOPBACKS {
        let holder = UdpSocket::bind(address).expect("a socket");
        let taken = holder.local_addr().expect("a bound socket");
        for sockets in [1, SOCKETS] {
            let error = refusal(&GroupConfig::new(taken).sockets(sockets));
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }
}

#[test]
fn a_port_another_group_shares_is_refused() {
    for address in LOOPBACKS {
        let holder = ReuseportGroup::bind(&group(address)).expect("a group");
        for sockets in [1, SOCKETS] {
            let error = refusal(&GroupConfig::new(holder.local_addr()).sockets(sockets));
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_port_is_free_again_when_its_group_is_gone() {
    // An address of its own, so that no other test draws the port in between.
    let config = group("127.0.0.77:0");
    let address = ReuseportGroup::bind(&config).expect("a group").local_addr();
    let next = ReuseportGroup::bind(&GroupConfig::new(address).sockets(SOCKETS));
    assert_eq!(next.expect("the port is free again").local_addr(), address);
}

#[test]
fn two_groups_are_never_given_the_same_free_port() {
    // Where the kernel may draw a port that another group shares, some of this many groups meet with 97 %.
    let config = GroupConfig::new("127.0.0.1:0".parse().expect("an address")).sockets(SOCKETS.min(2));
    for _ in 0..5 {
        let groups: Vec<_> = (0..200).map(|_| ReuseportGroup::bind(&config).expect("a group")).collect();
        let ports: HashSet<u16> = groups.iter().map(|group| group.local_addr().port()).collect();
        assert_eq!(ports.len(), groups.len());
    }
}

#[test]
fn an_address_of_another_host_is_refused() {
    // Reserved for documentation: no host has it.
    let error = refusal(&GroupConfig::new("192.0.2.1:0".parse().expect("an address")).sockets(SOCKETS));
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
}

#[test]
fn what_the_kernel_granted_is_read_back() {
    let ask = 64 * 1_024;
    let config = group("127.0.0.1:0").receive_buffer_bytes(ask).send_buffer_bytes(ask);
    for socket in ReuseportGroup::bind(&config).expect("a group").into_sockets() {
        let granted = socket.granted();
        assert!(granted.receive_buffer_bytes >= ask && granted.send_buffer_bytes >= ask, "{granted:?}");
        assert!(!granted.has_filter);
        assert_eq!(granted.has_gso, IS_NATIVE);
        assert_eq!(granted.has_gro, IS_NATIVE);
    }
}

#[test]
fn a_connected_socket_hears_only_its_peer() {
    let mut inbox = Inbox::bind(&group("127.0.0.1:0").sockets(1), &ReceiverConfig::default());
    let mut client = Socket::connect(inbox.address, Some(64 * 1_024)).expect("connected");
    let (asked, plain) =
        (client.granted(), Socket::connect(inbox.address, None).expect("connected").granted());
    assert!(asked.receive_buffer_bytes >= 64 * 1_024, "{asked:?}");
    assert_eq!(asked.send_buffer_bytes, plain.send_buffer_bytes);
    let client_port = client.local_addr().expect("a bound socket").port();
    let client_address = SocketAddr::from(([127, 0, 0, 1], client_port));
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a stranger");
    stranger.send_to(b"stranger", client_address).expect("sent");
    let mut batch = SendBatch::new(1, 64);
    assert!(batch.push(None, b"hello"));
    let mut sender = Sender::new(SendMode::Single);
    sender.flush(&mut client, &mut batch, |it| panic!("given up: {it:?}"));
    inbox.collect(1, |_, received| {
        assert!(received.datagrams().all(|datagram| datagram.from == client_address));
    });
    let mut receiver = Receiver::new(&mut client, &ReceiverConfig::default()).expect("a receiver");
    assert_eq!(receiver.drain(&mut client, 16, |_| panic!("heard a stranger")), DrainEnd::Blocked);
}
