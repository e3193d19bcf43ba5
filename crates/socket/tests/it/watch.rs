//! Sockets of others on the port of a group: found while they are there, and kept out where one socket shares nothing.
//!
//! Which addresses meet is tested with the watch, and how the kernel's list reads with its reader.

#![cfg(all(target_os = "linux", not(feature = "portable")))]

use std::io;
use std::net::{IpAddr, SocketAddr};

use drumfire_socket::{GroupConfig, PortWatch, ReuseportGroup, Socket};
use socket2::{Domain, Type};

fn group(address: &str, sockets: usize) -> (PortWatch, Vec<Socket>) {
    let config = GroupConfig::new(address.parse().expect("an address")).sockets(sockets);
    let group = ReuseportGroup::bind(&config).expect("a group");
    (group.watch().expect("Linux tells"), group.into_sockets())
}

/// A socket of somebody who does all that can be done to be let in.
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

/// Asserts that a look finds these sockets of others. The kernel's list can lack a socket while other tests close theirs, so that
/// one look of several has to be right.
#[track_caller]
fn assert_found(watch: &PortWatch, expected: &[IpAddr]) {
    let is_right = (0..100).any(|_| watch.look().is_ok_and(|found| found == expected));
    assert!(is_right, "{}: {:?} instead of {expected:?}", watch.address(), watch.look());
}

#[test]
fn whoever_joins_is_found_until_it_is_gone() {
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        let (watch, _sockets) = group(address, 4);
        let at = watch.address();
        assert_found(&watch, &[]);
        let first = join(at).expect("let in");
        assert_found(&watch, &[at.ip()]);
        let second = join(at).expect("let in");
        assert_found(&watch, &[at.ip(); 2]);
        drop(first);
        assert_found(&watch, &[at.ip()]);
        drop(second);
        assert_found(&watch, &[]);
    }
}

#[test]
fn others_on_addresses_that_meet_are_found_and_those_beside_are_not() {
    for (own, other, is_found) in [
        ("0.0.0.0:0", "127.0.0.1", true),
        ("0.0.0.0:0", "::ffff:127.0.0.1", true),
        ("127.0.0.1:0", "0.0.0.0", true),
        ("[::]:0", "127.0.0.1", true),
        ("[::]:0", "::1", true),
        ("127.0.0.1:0", "127.0.0.2", false),
        ("127.0.0.1:0", "::1", false),
    ] {
        let (watch, _sockets) = group(own, 2);
        let other: IpAddr = other.parse().expect("an address");
        let _other = join((other, watch.address().port()).into()).expect("let in");
        let expected = if is_found { vec![other] } else { Vec::new() };
        assert_found(&watch, &expected);
    }
}

#[test]
fn nobody_joins_a_group_of_one() {
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        let (watch, sockets) = group(address, 1);
        let refused = join(watch.address()).expect_err("one socket shares nothing");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{address}");
        assert_found(&watch, &[]);
        drop(sockets);
        join(watch.address()).expect("free again");
    }
}

#[test]
fn without_its_own_sockets_in_the_list_a_watch_knows_nothing() {
    let (watch, sockets) = group("127.0.0.1:0", 2);
    drop(sockets);
    let _other = join(watch.address()).expect("free");
    assert_eq!(watch.look().expect_err("nobody knows").kind(), io::ErrorKind::Unsupported);
}
