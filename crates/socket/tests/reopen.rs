//! Sockets that go on with another descriptor: the same socket, in the same place of its group, with all that waits in it.
//!
//! Descriptors that somebody really closed are tested beside the socket itself, where there are no others to be closed by
//! mistake.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use drumfire_socket::{
    GroupConfig, Parker, Poller, Receiver, ReceiverConfig, ReuseportGroup, Socket, SteeringFilter,
};

/// Where these tests keep the tag, and the shortest datagram that is steered.
const TAG_OFFSET: usize = 1;
const MIN_BYTES: usize = 28;

const DEADLINE: Duration = Duration::from_secs(10);

/// Sockets in one group.
const SOCKETS: usize = if ReuseportGroup::MAX_SOCKETS < 3 { 1 } else { 3 };

/// Whether this is not the portable path.
const IS_NATIVE: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

/// How many files the process has open; `None` where nobody tells.
fn open_files() -> Option<usize> {
    std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count)
}

#[test]
fn a_socket_with_another_descriptor_has_its_place_its_datagrams_and_no_descriptor_more() {
    let filter = SteeringFilter::new(TAG_OFFSET, MIN_BYTES, 0x9E37_79B1, SOCKETS).expect("a filter");
    let mut config = GroupConfig::new("127.0.0.1:0".parse().expect("an address")).sockets(SOCKETS);
    if SOCKETS > 1 {
        config = config.steering(filter);
    }
    let group = ReuseportGroup::bind(&config).expect("a group");
    let (address, mut sockets) = (group.local_addr(), group.into_sockets());
    let middle = SOCKETS / 2;
    let tag = (0..=u16::MAX).find(|tag| filter.socket_of_tag(*tag) == middle).expect("a tag");
    let mut datagram = [0; MIN_BYTES];
    datagram[TAG_OFFSET..TAG_OFFSET + 2].copy_from_slice(&tag.to_be_bytes());
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a sender");
    let (mut poller, socket) = (Poller::new().expect("a poller"), &mut sockets[middle]);
    poller.register(socket, 0).expect("watched");
    let mut receiver = Receiver::new(socket, &ReceiverConfig::default()).expect("a receiver");
    let files = open_files();
    let rounds = if IS_NATIVE { 500 } else { 3 };
    for round in 0..rounds {
        sender.send_to(&datagram, address).expect("sent");
        poller.reopen(socket, 0).expect("another descriptor");
        sender.send_to(&datagram, address).expect("sent");
        while receiver.counts().datagrams < 2 * (round + 1) {
            let ready = poller.poll(Some(DEADLINE)).expect("a wait");
            assert_eq!(ready.readable, 1, "the new descriptor is watched");
            receiver.drain(socket, 16, |_| {});
        }
    }
    // Elsewhere nobody can tell whose a number is, and none is closed that might be another's.
    if IS_NATIVE {
        assert_eq!(open_files(), files);
    }
}

#[test]
fn a_connected_socket_has_no_other_descriptor() {
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a peer").local_addr().expect("bound");
    let mut socket = Socket::connect(peer, None).expect("connected");
    let mut poller = Poller::new().expect("a poller");
    poller.register(&mut socket, 0).expect("watched");
    let error = poller.reopen(&mut socket, 0).expect_err("it has none");
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}
