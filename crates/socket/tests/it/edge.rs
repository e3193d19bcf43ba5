//! Edges of a real poll. A drain that ends with a short batch, a would-block, or a spent budget strands no datagram,
//! whatever the timing of the arrivals.
//!
//! There are two threads. The sender waits until each burst is drained, so a lost edge stalls the test.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drumfire_socket::{
    Drain, Gro, GroupConfig, Poller, Receiver, ReceiverConfig, ReuseportGroup, Socket, Wait, WaitEnd, Waiter,
};
use drumfire_tries::tries;

use crate::fixtures::{DEADLINE, StopOnDrop, burst};

/// Returns the number of bursts in the longest test.
fn bursts() -> u64 {
    tries(1_000_000).into()
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

    /// Receives `total` datagrams and notifies the sender after each drain. Returns `false` if the socket stalled.
    fn serve(mut self, total: u64, drained: &AtomicU64) -> bool {
        let mut poller = Poller::new().expect("a poller");
        poller.register(&mut self.socket, 0).expect("registered");
        let mut waiter = Waiter::new(Wait::Notify).expect("a waiter");
        let mut is_more_waiting = false;
        while self.receiver.counts().datagrams < total {
            let woken = waiter.wait(&mut poller, Some(DEADLINE), is_more_waiting).expect("a wait");
            if !is_more_waiting && matches!(woken, WaitEnd::Polled(ready) if ready.readable == 0) {
                return false;
            }
            let end = self.receiver.drain(&mut self.socket, self.budget, |_| {});
            is_more_waiting = end.is_more_waiting();
            drained.store(self.receiver.counts().datagrams, Ordering::Release);
        }
        true
    }
}

/// Sends each burst when the one before it was drained, until all are sent or the server has stopped.
fn send(to: SocketAddr, bursts: u64, drained: &AtomicU64, is_stopped: &AtomicBool) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a sender");
    socket.connect(to).expect("connected");
    let mut sent = 0;
    for number in 0..bursts {
        for _ in 0..burst(number) {
            socket.send(&[7; 32]).expect("sent");
            sent += 1;
        }
        while drained.load(Ordering::Acquire) < sent {
            if is_stopped.load(Ordering::Acquire) {
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
    let (drained, is_stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let is_served = std::thread::scope(|scope| {
        scope.spawn(|| send(address, bursts, &drained, &is_stopped));
        let _stop = StopOnDrop(&is_stopped);
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
