//! No heap allocation per datagram in steady state: receiving, sending and waiting, counted by the allocator.
//!
//! What is allocated once, when a socket is set up, is not counted.

use std::net::SocketAddr;
use std::time::Duration;

use allocation_counter::measure;
use drumfire_socket::{
    Drain, FlushEnd, Gro, GroupConfig, Parker, Poller, Ready, Receiver, ReceiverConfig, ReuseportGroup,
    SendBatch, SendMode, Sender, Socket, Wait, Waiter, Woken,
};

/// Whether this is not the portable path.
const IS_NATIVE: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

const DATAGRAMS: u64 = 10_000;

/// Datagrams in one round: they fit the smallest receive buffer.
const ROUND: u64 = 50;

/// Silence after which a datagram that was sent counts as stranded.
const DEADLINE: Duration = Duration::from_secs(60);

/// A sender and a receiver on one thread, so that the allocator counts both.
struct Loop {
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

impl Loop {
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

    /// Sends `count` datagrams, waits and drains as a worker does.
    fn pass(&mut self, count: u64) {
        let mut round_end = self.receiver.counts().datagrams;
        let end = round_end + count;
        while round_end < end {
            for place in 0..ROUND {
                // A train, another train, and the odd end.
                let bytes = if place < 30 { 200 } else { 100 };
                assert!(self.batch.push_with(Some(self.address), bytes, |memory| memory.fill(7)));
            }
            let flushed = self.sender.flush(&mut self.outgoing, &mut self.batch, |it| {
                panic!("given up: {it:?}");
            });
            assert_eq!(flushed, FlushEnd::Sent);
            round_end += ROUND;
            let (mut bytes, mut fruitless) = (0, 0);
            while self.receiver.counts().datagrams < round_end {
                let woken = self.waiter.wait(&mut self.poller, Some(DEADLINE), false).expect("a wait");
                let is_silent = matches!(woken, Woken::Polled(ready) if ready.readable == 0);
                assert!(!is_silent || self.wait == Wait::Spin, "stalled");
                let before = self.receiver.counts().datagrams;
                self.receiver.drain(&mut self.incoming, 1_024, |received| {
                    bytes += received.datagrams().map(|datagram| datagram.bytes.len()).sum::<usize>();
                });
                let datagrams = self.receiver.counts().datagrams - before;
                fruitless += u64::from(datagrams == 0);
                assert!(fruitless < 10_000_000, "stalled");
                self.waiter.on_pass(now(), datagrams);
            }
            assert_eq!(bytes, 30 * 200 + 20 * 100);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the worker's one clock reading per pass")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[track_caller]
fn assert_steady_state_is_free(drain: Drain, gro: Gro, mode: SendMode, wait: Wait) {
    let mut worker = Loop::new(drain, gro, mode, wait);
    worker.pass(DATAGRAMS);
    let allocations = measure(|| worker.pass(DATAGRAMS));
    assert_eq!(allocations.count_total, 0, "{drain:?}, {gro:?}, {mode:?}, {wait:?}");
    assert_eq!(worker.receiver.counts().datagrams, DATAGRAMS * 2);
    // Where the platform has no trains, the first one is refused and they are given up.
    let has_trains = IS_NATIVE;
    let kept = if mode == SendMode::Gso && !has_trains { SendMode::Sendmmsg } else { mode };
    assert_eq!(worker.sender.mode(), kept);
}

#[test]
fn the_allocator_does_count() {
    let allocations = measure(|| drop(std::hint::black_box(vec![0_u8; 100])));
    assert_eq!(allocations.count_total, 1);
}

#[test]
fn plain_receive_and_send_allocate_nothing() {
    assert_steady_state_is_free(Drain::Recv, Gro::Off, SendMode::Single, Wait::Notify);
}

#[test]
fn every_way_to_send_and_to_wait_allocates_nothing() {
    let gros = if IS_NATIVE { &[Gro::Off, Gro::On, Gro::Auto][..] } else { &[Gro::Auto] };
    for mode in [SendMode::Single, SendMode::Sendmmsg, SendMode::Gso] {
        for wait in [Wait::Notify, Wait::best(), Wait::Spin] {
            for &gro in gros {
                assert_steady_state_is_free(Drain::best(), gro, mode, wait);
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
