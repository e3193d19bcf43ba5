//! Edges of two nested polls. An event of a socket or a waker reaches the thread that waits for many pollers, whatever the
//! timing of drains, moves, and wake-ups.
//!
//! The polls are real. The sender waits until each burst is drained, so a lost edge stalls the test.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Inbox, SyncSender, sync_channel};
use std::time::Duration;

use drumfire_socket::{
    Gro, GroupConfig, MultiPoller, Parker, Poller, Ready, Receiver, ReceiverConfig, ReuseportGroup, Socket,
};
use drumfire_tries::tries;

use crate::fixtures::{DEADLINE, StopOnDrop, burst, mix};

const SHARDS: usize = 3;

/// Returns the number of bursts in the longest test.
fn bursts() -> u64 {
    tries(1_000_000).into()
}

/// A socket with its poller and receiver.
struct Shard {
    index: usize,
    socket: Socket,
    poller: Poller,
    receiver: Receiver,
    is_more_waiting: bool,
}

impl Shard {
    fn new(index: usize) -> (Self, SocketAddr) {
        let group = ReuseportGroup::bind(&GroupConfig::new(SocketAddr::from(([127, 0, 0, 1], 0))));
        let mut socket = group.expect("a socket").into_sockets().remove(0);
        let receiver = Receiver::new(&mut socket, &ReceiverConfig::default().gro(Gro::Off));
        let mut poller = Poller::new().expect("a poller");
        poller.register(&mut socket, 0).expect("registered");
        let address = socket.local_addr().expect("a bound socket");
        let receiver = receiver.expect("a receiver");
        (Self { index, socket, poller, receiver, is_more_waiting: false }, address)
    }

    /// Drains up to the budget and notifies the sender.
    fn drain(&mut self, budget: usize, drained: &AtomicU64) {
        let before = self.receiver.counts().datagrams;
        let end = self.receiver.drain(&mut self.socket, budget, |_| {});
        self.is_more_waiting = end.is_more_waiting();
        drained.fetch_add(self.receiver.counts().datagrams - before, Ordering::AcqRel);
    }
}

fn shards() -> (Vec<Shard>, Vec<SocketAddr>) {
    (0..SHARDS).map(Shard::new).unzip()
}

fn multi_poller() -> MultiPoller {
    MultiPoller::new().expect("a multi-poller")
}

/// Sends each burst when the one before it was drained. A socket is selected for every three datagrams.
fn send(to: &[SocketAddr], bursts: u64, drained: &AtomicU64, is_stopped: &AtomicBool) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a sender");
    let mut sent = 0;
    for number in 0..bursts {
        for index in 0..burst(number) {
            let to = to[usize::try_from(mix(number + index / 3)).expect("small") % to.len()];
            socket.send_to(&[7; 32], to).expect("sent");
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

/// Drains the sockets through one multi-poller until all datagrams have arrived. Returns `false` if a socket stalled.
///
/// `polls_each` is whether the poller of a socket is polled before its drain.
fn serve(mut shards: Vec<Shard>, budget: usize, polls_each: bool, total: u64, drained: &AtomicU64) -> bool {
    let mut multi_poller = multi_poller();
    for shard in &shards {
        multi_poller.add(&shard.poller, shard.index).expect("watched");
    }
    while drained.load(Ordering::Acquire) < total {
        let is_busy = shards.iter().any(|shard| shard.is_more_waiting);
        let ready = multi_poller.poll(Some(if is_busy { Duration::ZERO } else { DEADLINE })).expect("a wait");
        if !is_busy && ready == Ready::default() {
            return false;
        }
        for index in multi_poller.ready() {
            shards[index].is_more_waiting = true;
        }
        for shard in shards.iter_mut().filter(|shard| shard.is_more_waiting) {
            if polls_each {
                shard.poller.poll(Some(Duration::ZERO)).expect("a poll");
            }
            shard.drain(budget, drained);
        }
    }
    true
}

#[track_caller]
fn assert_never_stalls(budget: usize, polls_each: bool, bursts: u64) {
    let (shards, addresses) = shards();
    let total = (0..bursts).map(burst).sum();
    let (drained, is_stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let is_served = std::thread::scope(|scope| {
        scope.spawn(|| send(&addresses, bursts, &drained, &is_stopped));
        let _stop = StopOnDrop(&is_stopped);
        serve(shards, budget, polls_each, total, &drained)
    });
    let drained = drained.load(Ordering::Acquire);
    assert!(
        is_served,
        "budget {budget}, polls each {polls_each}: stalled after {drained} of {total} datagrams"
    );
}

#[test]
fn no_datagram_is_stranded_when_each_poller_is_polled() {
    assert_never_stalls(1_024, true, bursts());
}

#[test]
fn no_datagram_is_stranded_when_only_the_multi_poller_is_polled() {
    assert_never_stalls(1_024, false, bursts());
}

#[test]
fn a_spent_budget_strands_no_datagram() {
    for budget in [1, 2, 3, 8, 9] {
        assert_never_stalls(budget, false, bursts() / 20);
        assert_never_stalls(budget, true, bursts() / 20);
    }
}

/// Runs one of two threads that repeatedly pass all of their sockets to each other. They pass them after a wait whose
/// events were not processed, or drains that were not complete.
fn exchange_shards(
    (inbox, outbox): (&Inbox<Shard>, &SyncSender<Shard>),
    seed: u64,
    total: u64,
    drained: &AtomicU64,
    is_stopped: &AtomicBool,
) {
    let mut multi_poller = multi_poller();
    let mut shards: Vec<Shard> = Vec::new();
    let mut turn = seed;
    while drained.load(Ordering::Acquire) < total && !is_stopped.load(Ordering::Acquire) {
        for shard in inbox.try_iter() {
            multi_poller.add(&shard.poller, shard.index).expect("watched");
            shards.push(shard);
        }
        let is_busy = shards.iter().any(|shard| shard.is_more_waiting);
        multi_poller
            .poll(Some(if is_busy { Duration::ZERO } else { Duration::from_millis(1) }))
            .expect("a wait");
        turn += 1;
        if mix(turn).is_multiple_of(3) {
            // Pass on the sockets before the events of the wait are processed.
            for shard in shards.drain(..) {
                multi_poller.remove(&shard.poller).expect("removed");
                // The other thread may have ended, if all datagrams have arrived.
                let _ = outbox.send(shard);
            }
            continue;
        }
        for index in multi_poller.ready() {
            if let Some(shard) = shards.iter_mut().find(|shard| shard.index == index) {
                shard.is_more_waiting = true;
            }
        }
        for shard in shards.iter_mut().filter(|shard| shard.is_more_waiting) {
            shard.drain(4, drained);
        }
    }
}

#[test]
fn sockets_that_move_between_two_threads_strand_no_datagram() {
    let (shards, addresses) = shards();
    let bursts = bursts() / 10;
    let total: u64 = (0..bursts).map(burst).sum();
    let (drained, is_stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let (to_first, first) = sync_channel(SHARDS);
    let (to_second, second) = sync_channel(SHARDS);
    for shard in shards {
        to_first.send(shard).expect("room");
    }
    std::thread::scope(|scope| {
        let (drained, is_stopped) = (&drained, &is_stopped);
        let addresses = &addresses;
        scope.spawn(move || send(addresses, bursts, drained, is_stopped));
        scope.spawn(move || exchange_shards((&first, &to_second), 1, total, drained, is_stopped));
        scope.spawn(move || exchange_shards((&second, &to_first), 2, total, drained, is_stopped));
        let _stop = StopOnDrop(is_stopped);
        // Fail after a period without progress, and not after a total time.
        let (mut before, mut quiet) = (0, Duration::ZERO);
        let mut pause = Poller::new().expect("a poller");
        while before < total && quiet < DEADLINE {
            pause.poll(Some(Duration::from_millis(20))).expect("a pause");
            let now = drained.load(Ordering::Acquire);
            quiet = if now == before { quiet + Duration::from_millis(20) } else { Duration::ZERO };
            before = now;
        }
    });
    assert_eq!(drained.load(Ordering::Acquire), total, "all datagrams arrive");
}

#[test]
fn every_wake_up_of_every_poller_arrives() {
    const WAKES: u64 = 30_000;
    let mut multi_poller = multi_poller();
    let pollers: Vec<Poller> = (0..SHARDS).map(|_| Poller::new().expect("a poller")).collect();
    let wakers: Vec<_> = pollers.iter().map(Poller::waker).collect();
    for (index, poller) in pollers.iter().enumerate() {
        multi_poller.add(poller, index).expect("watched");
    }
    let (received, is_stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let stalled_at = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..WAKES {
                wakers[usize::try_from(mix(number)).expect("small") % SHARDS].wake().expect("woken");
                while received.load(Ordering::Acquire) <= number && !is_stopped.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            }
        });
        let _stop = StopOnDrop(&is_stopped);
        (0..WAKES).find(|number| {
            let ready = multi_poller.poll(Some(DEADLINE)).expect("a wait");
            let woken = usize::try_from(mix(*number)).expect("small") % SHARDS;
            let is_received = ready != Ready::default() && multi_poller.ready().any(|index| index == woken);
            received.store(number + 1, Ordering::Release);
            !is_received
        })
    });
    assert_eq!(stalled_at, None, "each wake-up arrives");
}

#[test]
fn the_multi_poller_reports_writable_sockets_only_if_watched() {
    let mut multi_poller = multi_poller();
    let (mut shard, _) = Shard::new(5);
    multi_poller.add(&shard.poller, shard.index).expect("watched");
    assert_eq!(multi_poller.poll(Some(Duration::ZERO)), Ok(Ready::default()));
    for _ in 0..3 {
        // The socket is writable, so the watch triggers an event immediately.
        shard.poller.watch_writable(&mut shard.socket, 0, true).expect("watched");
        multi_poller.poll(Some(DEADLINE)).expect("a wait");
        assert_eq!(multi_poller.ready().collect::<Vec<_>>(), [5]);
        let inner = shard.poller.poll(Some(Duration::ZERO)).expect("a poll");
        assert_eq!(inner.writable, 1);
        shard.poller.watch_writable(&mut shard.socket, 0, false).expect("watched");
        assert_eq!(multi_poller.poll(Some(Duration::ZERO)), Ok(Ready::default()));
    }
}

#[test]
fn a_second_multi_poller_receives_the_remaining_events() {
    let (mut first, mut second) = (multi_poller(), multi_poller());
    let (mut shard, address) = Shard::new(0);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a sender");
    let drained = AtomicU64::new(0);
    for round in 1..=100 {
        first.add(&shard.poller, 1).expect("watched");
        sender.send_to(b"datagram", address).expect("sent");
        first.poll(Some(DEADLINE)).expect("a wait");
        assert_eq!(first.ready().collect::<Vec<_>>(), [1]);
        first.remove(&shard.poller).expect("removed");
        second.add(&shard.poller, 2).expect("watched");
        second.poll(Some(DEADLINE)).expect("a wait");
        assert_eq!(second.ready().collect::<Vec<_>>(), [2]);
        second.remove(&shard.poller).expect("removed");
        let own = shard.poller.poll(Some(DEADLINE)).expect("a wait");
        assert_eq!(own.readable, 1, "the poller itself reports the datagram too");
        shard.drain(1_024, &drained);
        assert_eq!(drained.load(Ordering::Acquire), round);
    }
}

/// Returns the timer slack of the calling thread in nanoseconds (`/proc/pid/timerslack_ns`, proc(5)).
fn timer_slack() -> String {
    let thread = std::fs::read_link("/proc/thread-self").expect("a thread of a process");
    let number = thread.file_name().and_then(|name| name.to_str()).expect("a number").to_owned();
    std::fs::read_to_string(format!("/proc/{number}/timerslack_ns"))
        .expect("its timer slack")
        .trim()
        .to_owned()
}

#[test]
fn a_multi_poller_lowers_the_timer_slack_of_its_thread() {
    // A thread inherits the timer slack of the thread that starts it, so this thread must not create a poller.
    let poller = std::thread::spawn(|| Poller::new().expect("a poller")).join().expect("no panic");
    let thread = std::thread::spawn(move || {
        let before = timer_slack();
        let multi_poller = multi_poller();
        multi_poller.add(&poller, 0).expect("watched");
        (before, timer_slack())
    });
    let (before, after) = thread.join().expect("no panic");
    assert_ne!(before, after);
    assert_eq!(after, "1000");
}
