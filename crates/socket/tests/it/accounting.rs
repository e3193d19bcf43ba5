//! Accounting on real sockets: every datagram that was sent is received, dropped by the kernel, or dropped with a reason.
//! The difference is 0.
//!
//! GRO is off, because with GRO the kernel counts one drop per train.

use std::net::UdpSocket;

use drumfire_socket::{Drain, DropReason, Gro, GroupConfig, ReceiverConfig};
use drumfire_tries::tries;

use crate::fixtures::{IS_NATIVE, Inbox};

/// The drains that this platform supports.
const DRAINS: &[Drain] = if IS_NATIVE { &[Drain::Recv, Drain::Recvmmsg] } else { &[Drain::Recv] };

/// Returns the number of datagrams in the long tests.
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
fn overlong_and_empty_datagrams_are_counted_by_reason() {
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
        // A plain receive call does not report truncation: a datagram that fills its slot is overlong.
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
        // 97 to 485 bytes, in steps of 97.
        assert_eq!(delivered, 5, "{drain:?}");
    }
}

#[test]
fn a_flood_of_empty_datagrams_hides_no_other_datagram() {
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
            // Drain often enough that the receive buffer never overflows.
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

    /// Drains until every datagram is received or dropped, and returns the drops of the kernel. The last datagrams may
    /// still be on their way through loopback.
    fn collect_all(inbox: &mut Inbox, meter: &mut DropMeter, sent: u64, seen: &mut Vec<u64>) -> u64 {
        let mut pause = Poller::new().expect("a poller");
        for _ in 0..1_000 {
            let (socket, receiver) = &mut inbox.members[0];
            receiver.drain(socket, usize::MAX, |received| {
                seen.extend(received.datagrams().map(|datagram| number_of(datagram.bytes)));
            });
            let queue = meter.read().expect("a drop count");
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
    fn an_overflowing_buffer_loses_what_the_kernel_counts() {
        for &drain in DRAINS {
            for buffer in [Some(64 * 1_024), None] {
                let mut inbox = bind(drain, buffer);
                let sender = sender(&inbox);
                let mut meter = inbox.members[0].0.drop_meter().expect("a meter");
                for number in 0..many() {
                    sender.send(&number.to_be_bytes()).expect("sent");
                }
                let mut seen = Vec::new();
                let drops = collect_all(&mut inbox, &mut meter, many(), &mut seen);
                assert!(drops > 0 && !seen.is_empty(), "{drops} dropped, {} received", seen.len());
                assert_each_once_in_order(&seen, many());
                assert_eq!(many(), inbox.members[0].1.counts().datagrams + drops);
                assert_eq!(meter.read().expect("a drop count").queued_bytes, 0);
            }
        }
    }

    #[test]
    fn repeated_overflows_are_counted() {
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
            drops = collect_all(&mut inbox, &mut meter, sent, &mut seen);
        }
        assert!(drops > 0);
        assert_each_once_in_order(&seen, sent);
        assert_eq!(sent, seen.len() as u64 + drops);
    }

    #[test]
    fn an_idle_socket_has_no_drops_and_an_empty_queue() {
        let inbox = bind(Drain::best(), Some(64 * 1_024));
        let socket = &inbox.members[0].0;
        let queue = socket.drop_meter().and_then(|mut meter| meter.read()).expect("a drop count");
        assert_eq!((queue.drops, queue.queued_bytes), (0, 0));
        assert_eq!(queue.limit_bytes as usize, socket.granted().receive_buffer_bytes);
    }

    #[test]
    fn a_meter_counts_from_its_creation() {
        let mut inbox = bind(Drain::best(), Some(64 * 1_024));
        let sender = sender(&inbox);
        let mut first = inbox.members[0].0.drop_meter().expect("a meter");
        for number in 0..1_000_u64 {
            sender.send(&number.to_be_bytes()).expect("sent");
        }
        let drops = collect_all(&mut inbox, &mut first, 1_000, &mut Vec::new());
        assert!(drops > 0);
        let mut second = inbox.members[0].0.drop_meter().expect("a meter");
        assert_eq!(second.read().expect("a drop count").drops, 0);
        assert_eq!(first.read().expect("a drop count").drops, drops);
    }

    #[test]
    fn a_datagram_is_in_the_queue_until_it_is_read() {
        let mut inbox = bind(Drain::best(), None);
        let mut meter = inbox.members[0].0.drop_meter().expect("a meter");
        sender(&inbox).send(&0_u64.to_be_bytes()).expect("sent");
        let mut pause = Poller::new().expect("a poller");
        let waits = (0..1_000).any(|_| {
            let waits = meter.read().expect("a drop count").queued_bytes > 0;
            if !waits {
                pause.poll(Some(Duration::from_millis(10))).expect("a poll");
            }
            waits
        });
        assert!(waits);
        inbox.collect(1, |_, _| {});
        let queue = meter.read().expect("a drop count");
        assert_eq!((queue.drops, queue.queued_bytes), (0, 0));
    }
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
#[test]
fn a_platform_without_a_drop_count_reports_it() {
    let inbox = bind(Drain::best(), None);
    let error = inbox.members[0].0.drop_meter().expect_err("no drop count");
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}
