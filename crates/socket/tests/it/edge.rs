//! The edge that must not be lost: a drain ended by a short batch, a would-block or a spent budget strands no
//! datagram, however the arrivals fall around it.
//!
//! Two threads and a real poll: the sender waits for each burst to be drained, so a lost edge is a stall.

use drumfire_tries::tries;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use drumfire_socket::{
    Drain, Gro, GroupConfig, Poller, Receiver, ReceiverConfig, ReuseportGroup, Socket, Wait, Waiter, Woken,
};

/// Silence after which a datagram that was sent counts as stranded.
const DEADLINE: Duration = Duration::from_secs(60);

/// Bursts of the long run.
fn bursts() -> u64 {
    tries(1_000_000).into()
}

/// Datagrams in a burst: 1 to 40, mostly few, by a fixed rule.
fn burst(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    if mixed.is_multiple_of(16) { 1 + mixed / 16 % 40 } else { 1 + mixed / 16 % 4 }
}

struct Server {
    socket: Socket,
    address: SocketAddr,
    receiver: Receiver,
    budget: usize,
}

impl Server {
    fn new(drain: Drain, budget: usize) -> Self {
        let group = ReuseportGroup::bind(&GroupConfig::new(SocketAddr::from(([127, 0, 0, 1], 0))));
        let mut socket = group.expect("a socket").into_sockets().remove(0);
        let config = ReceiverConfig::default().drain(drain).gro(Gro::Off);
        let receiver = Receiver::new(&mut socket, &config).expect("a receiver");
        let address = socket.local_addr().expect("a bound socket");
        Self { socket, address, receiver, budget }
    }

    /// Receives `total` datagrams, telling the sender after each drain; false where it stalled.
    fn serve(mut self, total: u64, drained: &AtomicU64) -> bool {
        let mut poller = Poller::new().expect("a poller");
        poller.register(&mut self.socket, 0).expect("registered");
        let mut waiter = Waiter::new(Wait::Notify).expect("a waiter");
        let mut is_more_waiting = false;
        while self.receiver.counts().datagrams < total {
            let woken = waiter.wait(&mut poller, Some(DEADLINE), is_more_waiting).expect("a wait");
            if !is_more_waiting && matches!(woken, Woken::Polled(ready) if ready.readable == 0) {
                return false;
            }
            let end = self.receiver.drain(&mut self.socket, self.budget, |_| {});
            is_more_waiting = end.is_more_waiting();
            drained.store(self.receiver.counts().datagrams, Ordering::Release);
        }
        true
    }
}

/// Ends the sender when the server is done, stalled or panicking.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Sends burst after burst, each when the one before was drained, until all are sent or the server stalled.
fn send(to: SocketAddr, bursts: u64, drained: &AtomicU64, is_over: &AtomicBool) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a sender");
    socket.connect(to).expect("connected");
    let mut sent = 0;
    for number in 0..bursts {
        for _ in 0..burst(number) {
            socket.send(&[7; 32]).expect("sent");
            sent += 1;
        }
        while drained.load(Ordering::Acquire) < sent {
            if is_over.load(Ordering::Acquire) {
                return;
            }
            std::thread::yield_now();
        }
    }
}

#[track_caller]
fn assert_never_stalls(drain: Drain, budget: usize, bursts: u64) {
    let server = Server::new(drain, budget);
    let address = server.address;
    let total = (0..bursts).map(burst).sum();
    let (drained, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let is_served = std::thread::scope(|scope| {
        scope.spawn(|| send(address, bursts, &drained, &is_over));
        let _over = Over(&is_over);
        server.serve(total, &drained)
    });
    let drained = drained.load(Ordering::Acquire);
    assert!(is_served, "{drain:?}, budget {budget}: stalled after {drained} of {total} datagrams");
}

#[test]
fn the_end_of_a_drain_never_strands_a_datagram() {
    assert_never_stalls(Drain::best(), 1_024, bursts());
}

#[test]
fn a_spent_budget_never_strands_a_datagram() {
    for budget in [1, 2, 3, 8, 9] {
        assert_never_stalls(Drain::best(), budget, bursts() / 50);
    }
}

#[test]
fn the_plain_drain_never_strands_a_datagram() {
    assert_never_stalls(Drain::Recv, 1_024, bursts() / 10);
}
