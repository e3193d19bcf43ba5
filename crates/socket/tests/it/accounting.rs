//! Books that close on real sockets: what was sent is what was received, dropped by the kernel, or dropped by
//! name, with a difference of 0.
//!
//! GRO stays off: with it the kernel counts one drop per train.

use drumfire_tries::tries;
use std::net::UdpSocket;

use crate::inbox::Inbox;
use drumfire_socket::{Drain, DropReason, Gro, GroupConfig, ReceiverConfig};

/// Whether this is not the portable path.
const IS_NATIVE: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

/// The drains this platform has.
const DRAINS: &[Drain] = if IS_NATIVE { &[Drain::Recv, Drain::Recvmmsg] } else { &[Drain::Recv] };

/// Datagrams for the large counts.
fn many() -> u64 {
    tries(1_000_000).into()
}

const MAX_BYTES: usize = 500;

fn bind(drain: Drain, receive_buffer_bytes: Option<usize>) -> Inbox {
    let mut group = GroupConfig::new("127.0.0.1:0".parse().expect("an address"));
    group.receive_buffer_bytes = receive_buffer_bytes;
    let receiver = ReceiverConfig::default().drain(drain).gro(Gro::Off).max_datagram_bytes(MAX_BYTES);
    Inbox::bind(&group, &receiver)
}

fn sender(inbox: &Inbox) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a sender");
    socket.connect(inbox.address).expect("connected");
    socket
}

fn number_of(datagram: &[u8]) -> u64 {
    u64::from_be_bytes(datagram.try_into().expect("a datagram of eight bytes"))
}

#[test]
fn datagrams_that_are_too_long_or_empty_are_counted_by_name() {
    for &drain in DRAINS {
        let mut inbox = bind(drain, None);
        let sender = sender(&inbox);
        let lengths = [1, MAX_BYTES - 1, MAX_BYTES, MAX_BYTES + 1, MAX_BYTES + 2, MAX_BYTES * 4, 0, 7];
        for length in lengths {
            sender.send(&vec![0xA5; length]).expect("sent");
        }
        let mut seen = Vec::new();
        inbox.collect(lengths.len() as u64, |_, received| {
            for datagram in received.datagrams() {
                assert!(datagram.bytes.iter().all(|&byte| byte == 0xA5));
                seen.push(datagram.bytes.len());
            }
        });
        assert_eq!(seen, [1, MAX_BYTES - 1, MAX_BYTES, 7], "{drain:?}");
        let counts = inbox.members[0].1.counts();
        assert_eq!(counts.dropped(DropReason::Empty), 1);
        // A plain receive does not tell how much was cut: what fills its slot is over-long.
        let (overlong, truncated) = if drain == Drain::Recv { (3, 0) } else { (1, 2) };
        assert_eq!(counts.dropped(DropReason::Overlong), overlong, "{drain:?}");
        assert_eq!(counts.dropped(DropReason::Truncated), truncated, "{drain:?}");
        assert_eq!((counts.datagrams, counts.bytes), (4, 2 * MAX_BYTES as u64 + 7));
    }
}

#[test]
fn every_length_is_delivered_or_counted() {
    for &drain in DRAINS {
        let mut inbox = bind(drain, None);
        let sender = sender(&inbox);
        let mut delivered = 0;
        for (sent, length) in (1..).zip((0..=65_507).step_by(97)) {
            sender.send(&vec![0x5A; length]).expect("sent");
            inbox.collect(sent, |_, received| {
                assert!(received.datagrams().all(|datagram| datagram.bytes.len() == length));
                delivered += received.datagrams().count();
            });
        }
        // 97 to 485 bytes.
        assert_eq!(delivered, 5, "{drain:?}");
    }
}

#[test]
fn a_flood_of_empty_datagrams_is_counted_and_hides_no_real_one() {
    const EMPTIES_PER_ROUND: u64 = 80;
    for &drain in DRAINS {
        let mut inbox = bind(drain, None);
        let sender = sender(&inbox);
        let (mut empties, mut real, mut next) = (0, 0_u64, 0_u64);
        while empties < many() {
            for place in 0..EMPTIES_PER_ROUND {
                sender.send(&[]).expect("sent");
                if place % 8 == real % 8 {
                    sender.send(&real.to_be_bytes()).expect("sent");
                    real += 1;
                }
            }
            empties += EMPTIES_PER_ROUND;
            // Never more in flight than the buffer holds.
            inbox.collect(empties + real, |_, received| {
                for datagram in received.datagrams() {
                    assert_eq!(number_of(datagram.bytes), next);
                    next += 1;
                }
            });
        }
        let counts = inbox.members[0].1.counts();
        assert_eq!(counts.dropped(DropReason::Empty), empties, "{drain:?}");
        assert_eq!((counts.datagrams, next), (real, real), "{drain:?}");
    }
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod kernel {
    use std::time::Duration;

    use drumfire_socket::{DropMeter, Parker, Poller};

    use super::*;

    /// Looks at the books until they close; the last datagrams may still be on their way through loopback.
    fn settle(inbox: &mut Inbox, meter: &mut DropMeter, sent: u64, seen: &mut Vec<u64>) -> u64 {
        let mut pause = Poller::new().expect("a poller");
        for _ in 0..1_000 {
            let (socket, receiver) = &mut inbox.members[0];
            receiver.drain(socket, usize::MAX, |received| {
                seen.extend(received.datagrams().map(|datagram| number_of(datagram.bytes)));
            });
            let queue = meter.read().expect("an account");
            if seen.len() as u64 + queue.drops == sent {
                return queue.drops;
            }
            pause.poll(Some(Duration::from_millis(10))).expect("a poll");
        }
        panic!("{sent} sent, {} received, {:?}", seen.len(), meter.read());
    }

    fn assert_each_once_in_order(seen: &[u64], sent: u64) {
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "delivered twice or out of order");
        assert!(seen.last().is_none_or(|&last| last < sent));
    }

    #[test]
    fn an_overflowing_buffer_loses_exactly_what_the_kernel_says() {
        for &drain in DRAINS {
            for buffer in [Some(64 * 1_024), None] {
                let mut inbox = bind(drain, buffer);
                let sender = sender(&inbox);
                let mut meter = inbox.members[0].0.drop_meter().expect("a meter");
                for number in 0..many() {
                    sender.send(&number.to_be_bytes()).expect("sent");
                }
                let mut seen = Vec::new();
                let drops = settle(&mut inbox, &mut meter, many(), &mut seen);
                assert!(drops > 0 && !seen.is_empty(), "{drops} dropped, {} received", seen.len());
                assert_each_once_in_order(&seen, many());
                assert_eq!(many(), inbox.members[0].1.counts().datagrams + drops);
                assert_eq!(meter.read().expect("an account").queued_bytes, 0);
            }
        }
    }

    #[test]
    fn a_buffer_that_overflows_again_and_again_keeps_its_books() {
        let mut inbox = bind(Drain::best(), Some(64 * 1_024));
        let sender = sender(&inbox);
        let mut meter = inbox.members[0].0.drop_meter().expect("a meter");
        let mut seen = Vec::new();
        let mut drops = 0;
        let mut sent = 0_u64;
        for round in 1..=100 {
            for _ in 0..round * 10 {
                sender.send(&sent.to_be_bytes()).expect("sent");
                sent += 1;
            }
            drops = settle(&mut inbox, &mut meter, sent, &mut seen);
        }
        assert!(drops > 0);
        assert_each_once_in_order(&seen, sent);
        assert_eq!(sent, seen.len() as u64 + drops);
    }

    #[test]
    fn an_idle_socket_has_dropped_nothing_and_holds_nothing() {
        let inbox = bind(Drain::best(), Some(64 * 1_024));
        let socket = &inbox.members[0].0;
        let queue = socket.drop_meter().and_then(|mut meter| meter.read()).expect("an account");
        assert_eq!((queue.drops, queue.queued_bytes), (0, 0));
        assert_eq!(queue.limit_bytes as usize, socket.granted().receive_buffer_bytes);
    }

    #[test]
    fn a_meter_counts_from_its_own_start() {
        let mut inbox = bind(Drain::best(), Some(64 * 1_024));
        let sender = sender(&inbox);
        let mut first = inbox.members[0].0.drop_meter().expect("a meter");
        for number in 0..1_000_u64 {
            sender.send(&number.to_be_bytes()).expect("sent");
        }
        let drops = settle(&mut inbox, &mut first, 1_000, &mut Vec::new());
        assert!(drops > 0);
        let mut second = inbox.members[0].0.drop_meter().expect("a meter");
        assert_eq!(second.read().expect("an account").drops, 0);
        assert_eq!(first.read().expect("an account").drops, drops);
    }

    #[test]
    fn what_waits_shows_in_the_queue_until_it_is_read() {
        let mut inbox = bind(Drain::best(), None);
        let mut meter = inbox.members[0].0.drop_meter().expect("a meter");
        sender(&inbox).send(&0_u64.to_be_bytes()).expect("sent");
        let mut pause = Poller::new().expect("a poller");
        let waits = (0..1_000).any(|_| {
            let waits = meter.read().expect("an account").queued_bytes > 0;
            if !waits {
                pause.poll(Some(Duration::from_millis(10))).expect("a poll");
            }
            waits
        });
        assert!(waits);
        inbox.collect(1, |_, _| {});
        let queue = meter.read().expect("an account");
        assert_eq!((queue.drops, queue.queued_bytes), (0, 0));
    }
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
#[test]
fn a_platform_without_an_account_says_so() {
    let inbox = bind(Drain::best(), None);
    let error = inbox.members[0].0.drop_meter().expect_err("no account");
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}
