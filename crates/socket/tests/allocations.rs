//! Receiving, sending, and waiting allocate no memory for single datagrams. The global allocator counts.
//!
//! Allocations that happen once, when a socket is set up, do not count.

use std::net::SocketAddr;
use std::time::Duration;

use allocation_counter::measure;
use drumfire_socket::{
    Drain, FlushEnd, Gro, GroupConfig, LocalAddress, Parker, Poller, Ready, Receiver, ReceiverConfig,
    ReuseportGroup, SendBatch, SendMode, Sender, Socket, Wait, WaitEnd, Waiter,
};

/// Whether this is not the portable implementation.
const IS_NATIVE: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

const DATAGRAMS: u64 = 10_000;

/// The number of datagrams in one round. They fit the smallest receive buffer.
const ROUND: u64 = 50;

/// The time without any datagram after which a test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// A sender and a receiver on one thread, so that the allocations of both are counted.
struct Loopback {
    outgoing: Socket,
    sender: Sender,
    batch: SendBatch,
    incoming: Socket,
    address: SocketAddr,
    receiver: Receiver,
    poller: Poller,
    wait: Wait,
    waiter: Waiter,
}

fn socket() -> Socket {
    let group = ReuseportGroup::bind(&GroupConfig::new(SocketAddr::from(([127, 0, 0, 1], 0))));
    group.expect("a socket").into_sockets().remove(0)
}

impl Loopback {
    fn new(drain: Drain, gro: Gro, mode: SendMode, wait: Wait) -> Self {
        let mut incoming = socket();
        let mut poller = Poller::new().expect("a poller");
        poller.register(&mut incoming, 0).expect("registered");
        let config = ReceiverConfig::default().drain(drain).gro(gro);
        Self {
            outgoing: socket(),
            sender: Sender::new(mode),
            batch: SendBatch::new(64, 1 << 16),
            address: incoming.local_addr().expect("a bound socket"),
            receiver: Receiver::new(&mut incoming, &config).expect("a receiver"),
            incoming,
            poller,
            wait,
            waiter: Waiter::new(wait).expect("a waiter"),
        }
    }

    /// Sends `count` datagrams, waits, and drains as a worker does.
    fn transfer(&mut self, count: u64) {
        let mut round_end = self.receiver.counts().datagrams;
        let end = round_end + count;
        while round_end < end {
            for index in 0..ROUND {
                // Two trains of different lengths.
                let bytes = if index < 30 { 200 } else { 100 };
                self.batch.spare(bytes).expect("room").fill(7);
                assert!(self.batch.commit(Some(self.address), LocalAddress::ANY, bytes));
            }
            let flushed = self.sender.flush(&mut self.outgoing, &mut self.batch, |it| {
                panic!("lost: {it:?}");
            });
            assert_eq!(flushed, FlushEnd::Sent);
            round_end += ROUND;
            let (mut bytes, mut empty_drains) = (0, 0);
            while self.receiver.counts().datagrams < round_end {
                let woken = self.waiter.wait(&mut self.poller, Some(DEADLINE), false).expect("a wait");
                let is_silent = matches!(woken, WaitEnd::Polled(ready) if ready.readable == 0);
                assert!(!is_silent || self.wait == Wait::Spin, "stalled");
                let before = self.receiver.counts().datagrams;
                self.receiver.drain(&mut self.incoming, 1_024, |received| {
                    bytes += received.datagrams().map(|datagram| datagram.bytes.len()).sum::<usize>();
                });
                let datagrams = self.receiver.counts().datagrams - before;
                empty_drains += u64::from(datagrams == 0);
                assert!(empty_drains < 10_000_000, "stalled");
                self.waiter.on_pass(drumfire_socket::monotonic_time(), datagrams);
            }
            assert_eq!(bytes, 30 * 200 + 20 * 100);
        }
    }
}

#[track_caller]
fn assert_no_allocations(drain: Drain, gro: Gro, mode: SendMode, wait: Wait) {
    let mut loopback = Loopback::new(drain, gro, mode, wait);
    loopback.transfer(DATAGRAMS);
    let allocations = measure(|| loopback.transfer(DATAGRAMS));
    assert_eq!(allocations.count_total, 0, "{drain:?}, {gro:?}, {mode:?}, {wait:?}");
    assert_eq!(loopback.receiver.counts().datagrams, DATAGRAMS * 2);
    // On a platform without trains, the sender stops requesting segmentation after the first trains are refused.
    let has_trains = IS_NATIVE;
    let expected = if mode == SendMode::Gso && !has_trains { SendMode::Sendmmsg } else { mode };
    assert_eq!(loopback.sender.mode(), expected);
}

#[test]
fn the_allocator_counts() {
    let allocations = measure(|| drop(std::hint::black_box(vec![0_u8; 100])));
    assert_eq!(allocations.count_total, 1);
}

#[test]
fn plain_receive_and_send_allocate_nothing() {
    assert_no_allocations(Drain::Recv, Gro::Off, SendMode::Single, Wait::Notify);
}

#[test]
fn every_mode_of_sending_and_waiting_allocates_nothing() {
    let gro_modes = if IS_NATIVE { &[Gro::Off, Gro::On, Gro::Auto][..] } else { &[Gro::Auto] };
    for mode in [SendMode::Single, SendMode::Sendmmsg, SendMode::Gso] {
        for wait in [Wait::Notify, Wait::best(), Wait::Spin] {
            for &gro in gro_modes {
                assert_no_allocations(Drain::best(), gro, mode, wait);
            }
        }
    }
}

#[test]
fn a_full_batch_and_a_waker_allocate_nothing() {
    let mut batch = SendBatch::new(64, 1 << 10);
    let mut poller = Poller::new().expect("a poller");
    let waker = poller.waker();
    let allocations = measure(|| {
        for _ in 0..DATAGRAMS {
            while batch.push(None, &[7; 32]) {}
            batch.clear();
        }
        waker.wake().expect("woken");
        let ready = poller.poll(Some(DEADLINE)).expect("a poll");
        assert_eq!(ready, Ready { is_woken: true, ..Ready::default() });
    });
    assert_eq!(allocations.count_total, 0);
}
