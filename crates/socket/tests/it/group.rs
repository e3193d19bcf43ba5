//! Groups on real sockets: one port for all sockets, the refusal of a port in use, other sockets on the port, and
//! replaced descriptors.
//!
//! The selection of the socket for a datagram is tested in `steering`, and invalid settings in `settings`.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use drumfire_socket::{
    DrainEnd, GroupConfig, Parker, Poller, Receiver, ReceiverConfig, ReuseportGroup, SendBatch, SendMode,
    Sender, Socket, SteeringFilter,
};

use crate::fixtures::{DEADLINE, IS_NATIVE, Inbox};

/// The number of sockets in one group, if the platform supports it.
const SOCKETS: usize = if ReuseportGroup::MAX_SOCKETS < 6 { ReuseportGroup::MAX_SOCKETS } else { 6 };

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
                    assert!(seen.insert(datagram.bytes.to_vec()), "each datagram is delivered once");
                }
            });
        }
        assert_eq!(seen.len() as u64, SENDERS * EACH);
        // The probability that the hashes of all 64 senders select the same of six sockets is below 10^-48.
        assert!(used.len() > 1 || SOCKETS == 1, "only socket {used:?} was used");
    }
}

#[test]
fn a_port_in_use_is_refused() {
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
fn a_port_of_another_group_is_refused() {
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
fn a_port_is_free_again_when_its_group_is_closed() {
    // No other test uses this address, so that none gets the port in between.
    let config = group("127.0.0.77:0");
    let address = ReuseportGroup::bind(&config).expect("a group").local_addr();
    let next = ReuseportGroup::bind(&GroupConfig::new(address).sockets(SOCKETS));
    assert_eq!(next.expect("the port is free again").local_addr(), address);
}

#[test]
fn two_groups_never_get_the_same_free_port() {
    // If the kernel could select the port of another group, some of these groups would share a port with a probability
    // of 97 %.
    let config = GroupConfig::new("127.0.0.1:0".parse().expect("an address")).sockets(SOCKETS.min(2));
    for _ in 0..5 {
        let groups: Vec<_> = (0..200).map(|_| ReuseportGroup::bind(&config).expect("a group")).collect();
        let ports: HashSet<u16> = groups.iter().map(|group| group.local_addr().port()).collect();
        assert_eq!(ports.len(), groups.len());
    }
}

#[test]
fn an_address_of_another_host_is_refused() {
    // The address is reserved for documentation (RFC 5737), so no host has it.
    let error = refusal(&GroupConfig::new("192.0.2.1:0".parse().expect("an address")).sockets(SOCKETS));
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
}

#[test]
fn granted_settings_are_read_back() {
    let requested = 64 * 1_024;
    let config = group("127.0.0.1:0").receive_buffer_bytes(requested).send_buffer_bytes(requested);
    for socket in ReuseportGroup::bind(&config).expect("a group").into_sockets() {
        let granted = socket.granted();
        assert!(granted.receive_buffer_bytes >= requested, "{granted:?}");
        assert!(granted.send_buffer_bytes >= requested, "{granted:?}");
        assert!(!granted.has_filter);
        assert_eq!(granted.has_gso, IS_NATIVE);
        assert_eq!(granted.has_gro, IS_NATIVE);
    }
}

#[test]
fn a_connected_socket_receives_only_from_its_peer() {
    let mut inbox = Inbox::bind(&group("127.0.0.1:0").sockets(1), &ReceiverConfig::default());
    let mut client = Socket::connect(inbox.address, Some(64 * 1_024)).expect("connected");
    let (granted, default) =
        (client.granted(), Socket::connect(inbox.address, None).expect("connected").granted());
    assert!(granted.receive_buffer_bytes >= 64 * 1_024, "{granted:?}");
    assert_eq!(granted.send_buffer_bytes, default.send_buffer_bytes);
    let client_port = client.local_addr().expect("a bound socket").port();
    let client_address = SocketAddr::from(([127, 0, 0, 1], client_port));
    let other = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    other.send_to(b"other", client_address).expect("sent");
    let mut batch = SendBatch::new(1, 64);
    assert!(batch.push(None, b"hello"));
    let mut sender = Sender::new(SendMode::Single);
    sender.flush(&mut client, &mut batch, |it| panic!("lost: {it:?}"));
    inbox.collect(1, |_, received| {
        assert!(received.datagrams().all(|datagram| datagram.from == client_address));
    });
    let mut receiver = Receiver::new(&mut client, &ReceiverConfig::default()).expect("a receiver");
    assert_eq!(receiver.drain(&mut client, 16, |_| panic!("received from another peer")), DrainEnd::Blocked);
}

/// Returns the number of descriptors of this process for the sockets at an IPv4 address, or `None` without `/proc`.
///
/// The kernel's list can lack a socket while other tests close theirs, so the largest count of several reads is right.
fn descriptors(address: SocketAddr) -> Option<usize> {
    (0..100).map(|_| listed_descriptors(address)).max().flatten()
}

fn listed_descriptors(address: SocketAddr) -> Option<usize> {
    let table = std::fs::read_to_string("/proc/thread-self/net/udp").ok()?;
    let local_address = format!("0100007F:{:04X}", address.port());
    let inodes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_bound = fields.get(1).is_some_and(|field| *field == local_address);
        fields.get(9).filter(|_| is_bound).map(|inode| format!("socket:[{inode}]"))
    });
    let inodes: HashSet<String> = inodes.collect();
    let links = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
    let links = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    Some(links.filter(|link| link.to_str().is_some_and(|link| inodes.contains(link))).count())
}

#[test]
fn a_socket_with_a_new_descriptor_keeps_its_queue_and_index() {
    const SOCKETS: usize = if ReuseportGroup::MAX_SOCKETS < 3 { 1 } else { 3 };
    const TAG_OFFSET: usize = 1;
    const MIN_BYTES: usize = 28;
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
    poller.register(socket, 0).expect("registered");
    let mut receiver = Receiver::new(socket, &ReceiverConfig::default()).expect("a receiver");
    let before = descriptors(address);
    let rounds = if IS_NATIVE { 500 } else { 3 };
    for round in 0..rounds {
        sender.send_to(&datagram, address).expect("sent");
        poller.reopen(socket, 0).expect("a new descriptor");
        sender.send_to(&datagram, address).expect("sent");
        while receiver.counts().datagrams < 2 * (round + 1) {
            let ready = poller.poll(Some(DEADLINE)).expect("a wait");
            assert_eq!(ready.readable, 1, "the new descriptor is registered");
            receiver.drain(socket, 16, |_| {});
        }
    }
    // Without inodes, the socket cannot check whether the old descriptor is its own, and does not close it.
    if IS_NATIVE {
        // Each socket has a descriptor in use and one in reserve.
        assert_eq!((before, descriptors(address)), (Some(2 * SOCKETS), Some(2 * SOCKETS)));
    }
}

#[test]
fn a_connected_socket_cannot_be_reopened() {
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a peer").local_addr().expect("bound");
    let mut socket = Socket::connect(peer, None).expect("connected");
    let mut poller = Poller::new().expect("a poller");
    poller.register(&mut socket, 0).expect("registered");
    let error = poller.reopen(&mut socket, 0).expect_err("no reserve");
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod watch {
    use std::net::IpAddr;

    use drumfire_socket::PortWatch;
    use socket2::{Domain, Type};

    use super::*;

    fn watched_group(address: &str, sockets: usize) -> (PortWatch, Vec<Socket>) {
        let config = GroupConfig::new(address.parse().expect("an address")).sockets(sockets);
        let group = ReuseportGroup::bind(&config).expect("a group");
        (group.watch().expect("Linux lists sockets"), group.into_sockets())
    }

    /// Returns another socket at an address, with every option that allows sharing.
    fn join(address: SocketAddr) -> io::Result<socket2::Socket> {
        let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        socket.set_reuse_port(true)?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.bind(&address.into())?;
        Ok(socket)
    }

    /// Asserts that a scan finds these sockets. The kernel's list can lack a socket while other tests close theirs, so
    /// one of several scans has to return them.
    #[track_caller]
    fn assert_found(watch: &PortWatch, expected: &[IpAddr]) {
        let is_found = (0..100).any(|_| watch.scan().is_ok_and(|found| found == expected));
        assert!(is_found, "{}: {:?} instead of {expected:?}", watch.address(), watch.scan());
    }

    #[test]
    fn a_socket_that_joins_is_found_until_it_closes() {
        for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
            let (watch, _sockets) = watched_group(address, 4);
            let shared = watch.address();
            assert_found(&watch, &[]);
            let first = join(shared).expect("joined");
            assert_found(&watch, &[shared.ip()]);
            let second = join(shared).expect("joined");
            assert_found(&watch, &[shared.ip(); 2]);
            drop(first);
            assert_found(&watch, &[shared.ip()]);
            drop(second);
            assert_found(&watch, &[]);
        }
    }

    #[test]
    fn only_sockets_on_overlapping_addresses_are_found() {
        for (own, other, is_found) in [
            ("0.0.0.0:0", "127.0.0.1", true),
            ("0.0.0.0:0", "::ffff:127.0.0.1", true),
            ("127.0.0.1:0", "0.0.0.0", true),
            ("[::]:0", "127.0.0.1", true),
            ("[::]:0", "::1", true),
            ("127.0.0.1:0", "127.0.0.2", false),
            ("127.0.0.1:0", "::1", false),
        ] {
            let (watch, _sockets) = watched_group(own, 2);
            let other: IpAddr = other.parse().expect("an address");
            let _other = join((other, watch.address().port()).into()).expect("joined");
            let expected = if is_found { vec![other] } else { Vec::new() };
            assert_found(&watch, &expected);
        }
    }

    #[test]
    fn no_socket_joins_a_group_of_one() {
        for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
            let (watch, sockets) = watched_group(address, 1);
            let refused = join(watch.address()).expect_err("one socket does not share its port");
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{address}");
            assert_found(&watch, &[]);
            drop(sockets);
            join(watch.address()).expect("the port is free again");
        }
    }

    #[test]
    fn a_watch_without_its_own_sockets_is_unsupported() {
        let (watch, sockets) = watched_group("127.0.0.1:0", 2);
        drop(sockets);
        let _other = join(watch.address()).expect("the port is free");
        assert_eq!(watch.scan().expect_err("unsupported").kind(), io::ErrorKind::Unsupported);
    }
}
