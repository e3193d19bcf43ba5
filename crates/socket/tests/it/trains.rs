//! Trains over loopback: a sender that segments, and a receiver with and without GRO. Either way, every datagram arrives
//! unchanged and in order.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

use std::net::SocketAddr;

use drumfire_socket::{
    DrainEnd, DropReason, Fault, FlushEnd, Gro, GroupConfig, Parker, Poller, Receiver, ReceiverConfig,
    ReuseportGroup, SendBatch, SendMode, Sender, Socket,
};

use crate::fixtures::{DEADLINE, Inbox};

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

const MAX_BYTES: usize = 1_500;

fn bind(address: &str, gro: Gro) -> Inbox {
    let group = GroupConfig::new(address.parse().expect("an address")).receive_buffer_bytes(4 << 20);
    Inbox::bind(&group, &ReceiverConfig::default().gro(gro).max_datagram_bytes(MAX_BYTES))
}

/// A sender of trains with its socket and batch.
struct Outbox {
    socket: Socket,
    sender: Sender,
    batch: SendBatch,
    pushed: u64,
}

impl Outbox {
    fn new(address: &str) -> Self {
        let group = ReuseportGroup::bind(&GroupConfig::new(address.parse().expect("an address")));
        Self {
            socket: group.expect("a group").into_sockets().remove(0),
            sender: Sender::new(SendMode::Gso),
            batch: SendBatch::new(1_024, 1 << 20),
            pushed: 0,
        }
    }

    /// Adds a datagram of `bytes` bytes that differs from all others, and returns it.
    fn push(&mut self, to: SocketAddr, bytes: usize) -> Vec<u8> {
        self.pushed += 1;
        let pattern = self.pushed.to_le_bytes().into_iter().chain((0..=255).cycle());
        let datagram: Vec<u8> = pattern.take(bytes).collect();
        assert!(self.batch.push(Some(to), &datagram));
        datagram
    }

    /// Sends all datagrams and returns those that were lost.
    fn flush(&mut self) -> Vec<(Option<SocketAddr>, Fault)> {
        let mut lost = Vec::new();
        let end = self.sender.flush(&mut self.socket, &mut self.batch, |it| lost.push((it.to, it.fault)));
        assert_eq!(end, FlushEnd::Sent);
        lost
    }
}

/// Collects datagrams into `seen` until `total` have arrived.
fn collect(inbox: &mut Inbox, total: u64, seen: &mut Vec<Vec<u8>>) {
    inbox.collect(total, |_, received| {
        seen.extend(received.datagrams().map(|datagram| datagram.bytes.to_vec()));
    });
}

#[test]
fn a_train_arrives_as_one_message_with_a_shorter_last_one() {
    for address in [V4, V6] {
        let mut inbox = bind(address, Gro::On);
        let mut outbox = Outbox::new(address);
        let mut sent: Vec<_> = (0..40).map(|_| outbox.push(inbox.address, 1_000)).collect();
        sent.push(outbox.push(inbox.address, 17));
        assert!(outbox.flush().is_empty());
        assert_eq!((outbox.sender.counts().calls, outbox.sender.counts().datagrams), (1, 41));
        let mut seen = Vec::new();
        inbox.collect(41, |_, received| {
            for train in received.trains() {
                assert_eq!((train.datagram_count(), train.segment_bytes), (41, 1_000));
                assert_eq!((train.first(), train.last()), (&sent[0][..], &sent[40][..]));
                seen.extend(train.segments().map(<[u8]>::to_vec));
            }
        });
        assert_eq!(seen, sent, "{address}");
        let counts = inbox.members[0].1.counts();
        assert_eq!((counts.messages, counts.datagrams, counts.bytes), (1, 41, 40_017));
    }
}

#[test]
fn without_gro_a_train_arrives_as_single_datagrams() {
    for address in [V4, V6] {
        let mut inbox = bind(address, Gro::Off);
        let mut outbox = Outbox::new(address);
        let mut sent: Vec<_> = (0..40).map(|_| outbox.push(inbox.address, 1_000)).collect();
        sent.push(outbox.push(inbox.address, 17));
        assert!(outbox.flush().is_empty());
        let mut seen = Vec::new();
        collect(&mut inbox, 41, &mut seen);
        assert_eq!(seen, sent, "{address}");
        assert_eq!(inbox.members[0].1.counts().messages, 41);
    }
}

/// Returns how many trains fit the receive buffer, with or without GRO.
fn trains_in_flight(inbox: &Inbox) -> usize {
    (inbox.members[0].0.granted().receive_buffer_bytes / (64 * 4_096)).clamp(1, 12)
}

#[test]
fn auto_turns_on_gro_for_trains_and_loses_nothing() {
    let mut inbox = bind(V4, Gro::Auto);
    let mut outbox = Outbox::new(V4);
    let trains = trains_in_flight(&inbox);
    let (mut sent, mut seen) = (Vec::new(), Vec::new());
    assert!(!inbox.members[0].1.is_gro_on());
    let mut turned_on_after = None;
    for round in 0..200 {
        for train in 0..trains {
            let bytes = 300 + (round * 7 + train) % 500;
            sent.extend((0..60).map(|_| outbox.push(inbox.address, bytes)));
            sent.push(outbox.push(inbox.address, 1 + round % 299));
        }
        assert!(outbox.flush().is_empty());
        collect(&mut inbox, sent.len() as u64, &mut seen);
        if inbox.members[0].1.is_gro_on() {
            turned_on_after.get_or_insert(round);
        }
    }
    assert!(turned_on_after.is_some_and(|round| round < 100), "{turned_on_after:?}");
    assert!(seen == sent, "{} sent, {} seen", sent.len(), seen.len());
    let counts = inbox.members[0].1.counts();
    assert_eq!(counts.datagrams, sent.len() as u64);
    assert!(counts.messages < counts.datagrams / 2, "{} messages", counts.messages);
    assert!(DropReason::ALL.iter().all(|&reason| counts.dropped(reason) == 0));
}

#[test]
fn auto_stays_off_if_every_datagram_has_another_sender() {
    let mut inbox = bind(V4, Gro::Auto);
    let senders: Vec<_> = (0..64).map(|_| std::net::UdpSocket::bind(V4).expect("a sender")).collect();
    for round in 1..=200 {
        for sender in &senders {
            sender.send_to(&[7; 100], inbox.address).expect("sent");
        }
        inbox.collect(round * 64, |_, _| {});
    }
    assert!(!inbox.members[0].1.is_gro_on());
}

#[test]
fn mixed_lengths_to_two_peers_are_split_correctly() {
    let lengths = [100, 100, 100, 40, 100, 100, 1_500, 1_500, 1_499, 1, 1, 1, 2, 700, 700, 0, 700, 700, 9];
    for gro in [Gro::On, Gro::Off, Gro::Auto] {
        let mut inboxes = [bind(V4, gro), bind(V4, gro)];
        let mut outbox = Outbox::new(V4);
        let mut sent = [Vec::new(), Vec::new()];
        let mut seen = [Vec::new(), Vec::new()];
        for step in 0..300_usize {
            let peer = usize::from(step % 5 > 2 || step % 7 == 0);
            let bytes = lengths[step % lengths.len()];
            sent[peer].push(outbox.push(inboxes[peer].address, bytes));
            // Few enough datagrams are in flight for the smallest buffer.
            if step % 50 == 49 {
                assert!(outbox.flush().is_empty());
                for peer in 0..2 {
                    collect(&mut inboxes[peer], sent[peer].len() as u64, &mut seen[peer]);
                }
            }
        }
        assert_eq!(outbox.sender.mode(), SendMode::Gso);
        for peer in 0..2 {
            let all = sent[peer].len();
            sent[peer].retain(|datagram| !datagram.is_empty());
            let counts = inboxes[peer].members[0].1.counts();
            assert_eq!(counts.dropped(DropReason::Empty), (all - sent[peer].len()) as u64);
            assert!(seen[peer] == sent[peer], "{gro:?}, peer {peer}");
        }
    }
}

#[test]
fn overlong_datagrams_of_a_train_are_counted_one_by_one() {
    for (bytes, is_valid) in [(MAX_BYTES, true), (MAX_BYTES + 1, false), (MAX_BYTES * 4, false)] {
        let mut inbox = bind(V4, Gro::On);
        let mut outbox = Outbox::new(V4);
        let mut sent: Vec<_> = (0..5).map(|_| outbox.push(inbox.address, bytes)).collect();
        assert!(outbox.flush().is_empty());
        if !is_valid {
            sent.clear();
        }
        sent.push(outbox.push(inbox.address, 20));
        assert!(outbox.flush().is_empty());
        let mut seen = Vec::new();
        collect(&mut inbox, 6, &mut seen);
        assert_eq!(seen, sent, "{bytes} bytes");
        let dropped = inbox.members[0].1.counts().dropped(DropReason::Overlong);
        assert_eq!(dropped, if is_valid { 0 } else { 5 });
    }
}

#[test]
fn every_datagram_of_a_train_costs_budget() {
    const TRAINS: u64 = 20;
    const BUDGET: usize = 4;
    let group = ReuseportGroup::bind(&GroupConfig::new(V4.parse().expect("an address"))).expect("a group");
    let address = group.local_addr();
    let mut socket = group.into_sockets().remove(0);
    let mut poller = Poller::new().expect("a poller");
    poller.register(&mut socket, 0).expect("registered");
    let config = ReceiverConfig::default().gro(Gro::On);
    let mut receiver = Receiver::new(&mut socket, &config).expect("a receiver");
    let mut outbox = Outbox::new(V4);
    for _ in 0..TRAINS {
        // A shorter datagram ends each train.
        for bytes in [100, 100, 100, 100, 100, 1] {
            outbox.push(address, bytes);
        }
    }
    assert!(outbox.flush().is_empty());
    let mut passes = 0;
    while receiver.counts().datagrams < TRAINS * 6 {
        let before = receiver.counts().messages;
        let end = receiver.drain(&mut socket, BUDGET, |_| {});
        // One call offers as many slots as the budget, and its batch is delivered completely. So four trains of six
        // datagrams exceed the budget, but no second call follows.
        let taken = receiver.counts().messages - before;
        assert!(taken <= BUDGET as u64);
        assert!(taken < BUDGET as u64 || end == DrainEnd::BudgetSpent);
        passes += 1;
        if end == DrainEnd::Blocked && receiver.counts().datagrams < TRAINS * 6 {
            // Loopback may deliver datagrams after the send call has returned.
            let ready = poller.poll(Some(DEADLINE)).expect("a poll");
            assert_eq!(ready.readable, 1, "stalled after {} datagrams", receiver.counts().datagrams);
        }
    }
    assert!(passes >= TRAINS / BUDGET as u64);
}

#[test]
fn an_unreachable_peer_does_not_end_segmentation() {
    let mut inbox = bind(V4, Gro::Off);
    let mut outbox = Outbox::new(V4);
    // The kernel refuses port 0 with the same error as a train that it cannot segment.
    let invalid = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut sent = vec![outbox.push(inbox.address, 50), outbox.push(inbox.address, 50)];
    outbox.push(invalid, 50);
    sent.extend((0..3).map(|_| outbox.push(inbox.address, 50)));
    assert_eq!(outbox.flush(), [(Some(invalid), Fault::InvalidArgument)]);
    let mut seen = Vec::new();
    collect(&mut inbox, 5, &mut seen);
    assert_eq!((seen, outbox.sender.mode()), (sent, SendMode::Gso));
}

#[test]
fn trains_to_an_address_the_kernel_refuses_end_no_others() {
    const ROUNDS: u64 = 50;
    for (address, invalid) in [(V4, "127.0.0.1:0"), (V6, "[::1]:0")] {
        let invalid: SocketAddr = invalid.parse().expect("an address");
        let mut inbox = bind(address, Gro::Off);
        let mut outbox = Outbox::new(address);
        let mut seen = Vec::new();
        for round in 1..=ROUNDS {
            // Send a train to port 0 alone, and then one between trains to another peer.
            outbox.push(invalid, 50);
            outbox.push(invalid, 50);
            assert_eq!(outbox.flush(), [(Some(invalid), Fault::InvalidArgument); 2], "{address}");
            let mut sent: Vec<_> = (0..3).map(|_| outbox.push(inbox.address, 50)).collect();
            outbox.push(invalid, 50);
            outbox.push(invalid, 50);
            sent.extend((0..3).map(|_| outbox.push(inbox.address, 50)));
            assert_eq!(outbox.flush(), [(Some(invalid), Fault::InvalidArgument); 2], "{address}");
            seen.clear();
            collect(&mut inbox, 6 * round, &mut seen);
            assert_eq!((&seen, outbox.sender.mode()), (&sent, SendMode::Gso), "{address}");
        }
        let counts = outbox.sender.counts();
        assert_eq!((counts.datagrams, counts.lost.total()), (6 * ROUNDS, 4 * ROUNDS));
        // Each train to port 0 fails once as a train, and then once for each of its two datagrams.
        assert_eq!(counts.faults.count(Fault::InvalidArgument), 6 * ROUNDS);
    }
}

#[test]
fn an_unusable_source_address_does_not_end_segmentation() {
    // A reply whose source address cannot be used is refused as a train and as single datagrams.
    let mut inbox = bind("0.0.0.0:0", Gro::Off);
    let client = std::net::UdpSocket::bind(V4).expect("a client");
    client.send_to(b"x", (std::net::Ipv4Addr::LOCALHOST, inbox.address.port())).expect("sent");
    let mut from = None;
    inbox.collect(1, |_, received| from = received.datagrams().next().map(|it| (it.from, it.local)));
    let (to, local) = from.expect("a datagram");
    let (socket, _) = &mut inbox.members[0];
    let mut sender = Sender::new(SendMode::Gso);
    let mut batch = SendBatch::new(8, 1_024);
    for _ in 0..20 {
        // The source is a loopback address, from which the kernel sends to no other host.
        let elsewhere = SocketAddr::from(([198, 51, 100, 1], to.port()));
        assert!((0..3).all(|_| batch.push_from(local, elsewhere, &[7; 50])));
        let mut lost = 0;
        assert_eq!(sender.flush(socket, &mut batch, |_| lost += 1), FlushEnd::Sent);
        assert_eq!((lost, sender.mode()), (3, SendMode::Gso));
    }
}
