//! Sockets that go on with another descriptor: the same socket, in the same place of its group, with all that waits in it.
//!
//! Descriptors that somebody really closed are tested beside the socket itself, where there are no others to be closed by
//! mistake.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_socket::{
    GroupConfig, Parker, Poller, Receiver, ReceiverConfig, ReuseportGroup, Socket, SteeringFilter,
};

/// Where these tests keep the tag, and the shortest datagram that is steered.
const TAG_OFFSET: usize = 1;
const MIN_BYTES: usize = 28;

const DEADLINE: Duration = Duration::from_secs(60);

/// Sockets in one group.
const SOCKETS: usize = if ReuseportGroup::MAX_SOCKETS < 3 { 1 } else { 3 };

/// Whether this is not the portable path.
const IS_NATIVE: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

/// Returns how many descriptors this process has of the sockets at an IPv4 address. Descriptors of other tests do not count.
/// `None` where the system does not tell.
fn descriptors(address: SocketAddr) -> Option<usize> {
    let table = std::fs::read_to_string("/proc/thread-self/net/udp").ok()?;
    let port = format!(":{:04X}", address.port());
    let inodes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_one = fields.get(1).is_some_and(|local| *local == format!("0100007F{port}"));
        fields.get(9).filter(|_| is_one).map(|inode| format!("socket:[{inode}]"))
    });
    let inodes: HashSet<String> = inodes.collect();
    let links = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
    let links = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    Some(links.filter(|link| link.to_str().is_some_and(|link| inodes.contains(link))).count())
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
    let before = descriptors(address);
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
        // Each socket has one that it uses and one to go on with.
        assert_eq!((before, descriptors(address)), (Some(2 * SOCKETS), Some(2 * SOCKETS)));
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
