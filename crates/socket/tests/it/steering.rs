//! The steering filter in the kernel. Every tag selects the socket that the function in Rust returns, and the kernel's hash
//! applies to the other datagrams.
//!
//! The arithmetic of the program is tested next to it, and groups without a filter in `group`.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

use std::collections::HashSet;
use std::net::UdpSocket;

use drumfire_socket::{
    Gro, GroupConfig, ReceiverConfig, ReuseportGroup, SendBatch, SendMode, Sender, SteeringFilter,
};

use crate::fixtures::Inbox;

/// The offset of the tag, and the minimum length of a datagram with a tag.
const TAG_OFFSET: usize = 1;
const MIN_BYTES: usize = 28;

const SECRET: u32 = 0x9E37_79B1;

/// Datagrams in flight at a time. All of them fit the default buffer of one socket.
const ROUND: usize = 128;

fn filter(sockets: usize) -> SteeringFilter {
    SteeringFilter::new(TAG_OFFSET, MIN_BYTES, SECRET, sockets).expect("a filter")
}

fn bind(address: &str, sockets: usize) -> Inbox {
    let address = address.parse().expect("an address");
    let config = GroupConfig::new(address).sockets(sockets).steering(filter(sockets));
    Inbox::bind(&config, &ReceiverConfig::default())
}

fn payload(first: u8, tag: u16, bytes: usize) -> Vec<u8> {
    let mut payload = vec![0xA5; bytes];
    let head = std::iter::once(first).chain(tag.to_be_bytes());
    payload.iter_mut().zip(head).for_each(|(byte, value)| *byte = value);
    payload
}

/// Sends one datagram for each tag, and checks the socket that receives it.
fn steer(address: &str, sockets: usize, tags: impl Iterator<Item = u16>) {
    let filter = filter(sockets);
    let mut inbox = bind(address, sockets);
    let sender = UdpSocket::bind(address).expect("a sender");
    let mut sent = 0;
    let mut per_socket = vec![0_u64; sockets];
    let mut tags = tags.peekable();
    while tags.peek().is_some() {
        for tag in tags.by_ref().take(ROUND) {
            let bytes = MIN_BYTES + usize::from(tag % 3);
            sender.send_to(&payload(0x7F, tag, bytes), inbox.address).expect("sent");
            sent += 1;
        }
        inbox.collect(sent, |index, received| {
            for datagram in received.datagrams() {
                assert_eq!(filter.socket_of(datagram.bytes), Some(index), "{sockets} sockets");
                per_socket[index] += 1;
            }
        });
    }
    assert_eq!(per_socket.iter().sum::<u64>(), sent);
    assert!(per_socket.iter().all(|&count| count > 0), "{per_socket:?}");
}

#[test]
fn every_tag_selects_the_socket_that_the_function_returns() {
    for sockets in [2, 6, 16] {
        steer("127.0.0.1:0", sockets, 0..=u16::MAX);
    }
}

#[test]
fn large_and_odd_numbers_of_sockets_are_steered() {
    for sockets in [3, 7, 64] {
        steer("127.0.0.1:0", sockets, (0..=u16::MAX).step_by(17));
    }
}

#[test]
fn an_ipv6_group_is_steered_too() {
    steer("[::1]:0", 6, (0..=u16::MAX).step_by(5));
}

/// Sends the same datagram from each sender, and returns the socket that receives each of them.
fn arrivals(inbox: &mut Inbox, senders: &[UdpSocket], datagram: &[u8], sent: &mut u64) -> Vec<usize> {
    let mut arrived = Vec::new();
    for sender in senders {
        sender.send_to(datagram, inbox.address).expect("sent");
        *sent += 1;
        inbox.collect(*sent, |index, received| {
            arrived.extend(received.datagrams().map(|_| index));
        });
    }
    arrived
}

#[test]
fn short_datagrams_and_handshakes_use_the_hash_and_arrive() {
    let mut inbox = bind("127.0.0.1:0", 6);
    let senders: Vec<_> = (0..64).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a sender")).collect();
    let mut sent = 0;
    let hashed = arrivals(&mut inbox, &senders, &[0], &mut sent);
    assert!(hashed.iter().collect::<HashSet<_>>().len() > 1, "{hashed:?}");
    for tag in [0, 1, 0x1234, 0xFFFF] {
        // The hash covers only addresses and ports, so the same sender always selects the same socket.
        for (first, bytes) in
            [(0x00, 2), (0x7F, MIN_BYTES - 1), (0x80, MIN_BYTES), (0xFF, MIN_BYTES), (0x80, 1_200)]
        {
            let datagram = payload(first, tag, bytes);
            assert_eq!(filter(6).socket_of(&datagram), None);
            let seen = arrivals(&mut inbox, &senders, &datagram, &mut sent);
            assert_eq!(seen, hashed, "{first:#x}, {bytes} bytes");
        }
        for (first, bytes) in [(0x00, MIN_BYTES), (0x7F, MIN_BYTES + 1), (0x00, 1_200)] {
            let owner = filter(6).socket_of_tag(tag);
            let seen = arrivals(&mut inbox, &senders, &payload(first, tag, bytes), &mut sent);
            assert_eq!(seen, vec![owner; senders.len()], "{first:#x}, {bytes} bytes");
        }
    }
}

#[test]
fn an_empty_datagram_is_not_steered_and_not_lost() {
    let mut inbox = bind("127.0.0.1:0", 2);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a sender");
    sender.send_to(&[], inbox.address).expect("sent");
    inbox.collect(1, |_, received| assert_eq!(received.datagrams().count(), 0));
}

#[test]
fn a_train_goes_to_the_socket_of_its_first_datagram() {
    let address = "127.0.0.1:0".parse().expect("an address");
    let config = GroupConfig::new(address).sockets(4).steering(filter(4));
    let mut inbox = Inbox::bind(&config, &ReceiverConfig::default().gro(Gro::On));
    let mut client = ReuseportGroup::bind(&GroupConfig::new(address)).expect("a socket").into_sockets();
    let mut batch = SendBatch::new(64, 1 << 16);
    let tags: Vec<u16> = (0..40).collect();
    for &tag in &tags {
        assert!(batch.push(Some(inbox.address), &payload(0, tag, 100)));
    }
    let mut sender = Sender::new(SendMode::Gso);
    sender.flush(&mut client[0], &mut batch, |it| panic!("lost: {it:?}"));
    let mut seen = Vec::new();
    let owner = filter(4).socket_of_tag(0);
    inbox.collect(tags.len() as u64, |index, received| {
        assert_eq!(index, owner);
        seen.extend(received.datagrams().map(|datagram| datagram.bytes.to_vec()));
    });
    let expected: Vec<_> = tags.iter().map(|&tag| payload(0, tag, 100)).collect();
    assert_eq!(seen, expected);
}
