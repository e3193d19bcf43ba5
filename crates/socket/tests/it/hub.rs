//! Edges through two polls: what happens to a socket or a waker reaches the thread that waits for many pollers, however
//! drains, moves and wake-ups fall around it.
//!
//! Real polls; who sends waits for each burst to be drained, so a lost edge is a stall.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

use drumfire_tries::tries;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Inbox, SyncSender, sync_channel};
use std::time::Duration;

use drumfire_socket::{
    Gro, GroupConfig, Hub, Parker, Poller, Ready, Receiver, ReceiverConfig, ReuseportGroup, Socket,
};

/// Silence after which a datagram that was sent counts as stranded.
const DEADLINE: Duration = Duration::from_secs(60);

const SHARDS: usize = 3;

/// Bursts of a long run.
fn bursts() -> u64 {
    tries(1_000_000).into()
}

/// A number from another, by a fixed rule.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33
}

/// Datagrams in a burst: 1 to 40, mostly few.
fn burst(number: u64) -> u64 {
    let mixed = mixed(number);
    if mixed.is_multiple_of(16) { 1 + mixed / 16 % 40 } else { 1 + mixed / 16 % 4 }
}

/// A socket with all that belongs to it.
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

    /// Drains up to the budget, telling the sender.
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

fn hub() -> Hub {
    Hub::new().expect("a hub")
}

/// Ends the sender when the server is done, stalled or panicking.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Sends burst after burst, each to another socket and when the one before was drained.
fn send(to: &[SocketAddr], bursts: u64, drained: &AtomicU64, is_over: &AtomicBool) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a sender");
    let mut sent = 0;
    for number in 0..bursts {
        for at in 0..burst(number) {
            let to = to[usize::try_from(mixed(number + at / 3)).expect("small") % to.len()];
            socket.send_to(&[7; 32], to).expect("sent");
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

/// Serves the sockets through one hub until all datagrams came; false where it stalled.
fn serve(mut shards: Vec<Shard>, budget: usize, looks: bool, total: u64, drained: &AtomicU64) -> bool {
    let mut hub = hub();
    for shard in &shards {
        hub.add(&shard.poller, shard.index).expect("watched");
    }
    while drained.load(Ordering::Acquire) < total {
        let is_busy = shards.iter().any(|shard| shard.is_more_waiting);
        let ready = hub.poll(Some(if is_busy { Duration::ZERO } else { DEADLINE })).expect("a wait");
        if !is_busy && ready == Ready::default() {
            return false;
        }
        for index in hub.ready() {
            shards[index].is_more_waiting = true;
        }
        for shard in shards.iter_mut().filter(|shard| shard.is_more_waiting) {
            if looks {
                shard.poller.poll(Some(Duration::ZERO)).expect("a look");
            }
            shard.drain(budget, drained);
        }
    }
    true
}

#[track_caller]
fn assert_never_stalls(budget: usize, looks: bool, bursts: u64) {
    let (shards, addresses) = shards();
    let total = (0..bursts).map(burst).sum();
    let (drained, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let is_served = std::thread::scope(|scope| {
        scope.spawn(|| send(&addresses, bursts, &drained, &is_over));
        let _over = Over(&is_over);
        serve(shards, budget, looks, total, &drained)
    });
    let drained = drained.load(Ordering::Acquire);
    assert!(is_served, "budget {budget}, looks {looks}: stalled after {drained} of {total} datagrams");
}

#[test]
fn no_datagram_is_stranded_when_pollers_are_looked_at() {
    assert_never_stalls(1_024, true, bursts());
}

#[test]
fn no_datagram_is_stranded_when_sockets_are_drained_on_the_hubs_word_alone() {
    assert_never_stalls(1_024, false, bursts());
}

#[test]
fn a_spent_budget_strands_no_datagram() {
    for budget in [1, 2, 3, 8, 9] {
        assert_never_stalls(budget, false, bursts() / 20);
        assert_never_stalls(budget, true, bursts() / 20);
    }
}

/// One of two threads that give all they have to each other, again and again: after a wait, with what it told not looked
/// at, or in the middle of a drain.
fn juggle(
    (inbox, outbox): (&Inbox<Shard>, &SyncSender<Shard>),
    seed: u64,
    total: u64,
    drained: &AtomicU64,
    is_over: &AtomicBool,
) {
    let mut hub = hub();
    let mut shards: Vec<Shard> = Vec::new();
    let mut turn = seed;
    while drained.load(Ordering::Acquire) < total && !is_over.load(Ordering::Acquire) {
        for shard in inbox.try_iter() {
            hub.add(&shard.poller, shard.index).expect("watched");
            shards.push(shard);
        }
        let is_busy = shards.iter().any(|shard| shard.is_more_waiting);
        hub.poll(Some(if is_busy { Duration::ZERO } else { Duration::from_millis(1) })).expect("a wait");
        turn += 1;
        if mixed(turn).is_multiple_of(3) {
            // Given away before anybody looks at what the wait told.
            for shard in shards.drain(..) {
                hub.remove(&shard.poller).expect("it was watched");
                // Where all datagrams came, the other one may have ended.
                let _ = outbox.send(shard);
            }
            continue;
        }
        for index in hub.ready() {
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
    let (drained, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (to_first, first) = sync_channel(SHARDS);
    let (to_second, second) = sync_channel(SHARDS);
    for shard in shards {
        to_first.send(shard).expect("room");
    }
    std::thread::scope(|scope| {
        let (drained, is_over) = (&drained, &is_over);
        let addresses = &addresses;
        scope.spawn(move || send(addresses, bursts, drained, is_over));
        scope.spawn(move || juggle((&first, &to_second), 1, total, drained, is_over));
        scope.spawn(move || juggle((&second, &to_first), 2, total, drained, is_over));
        let _over = Over(is_over);
        let (mut before, mut quiet) = (0, Duration::ZERO);
        let mut pause = Poller::new().expect("a poller");
        while before < total && quiet < DEADLINE {
            pause.poll(Some(Duration::from_millis(20))).expect("a pause");
            let now = drained.load(Ordering::Acquire);
            quiet = if now == before { quiet + Duration::from_millis(20) } else { Duration::ZERO };
            before = now;
        }
    });
    assert_eq!(drained.load(Ordering::Acquire), total, "stalled");
}

#[test]
fn every_wake_up_arrives_whoever_is_woken() {
    const WAKES: u64 = 30_000;
    let mut hub = hub();
    let pollers: Vec<Poller> = (0..SHARDS).map(|_| Poller::new().expect("a poller")).collect();
    let wakers: Vec<_> = pollers.iter().map(Poller::waker).collect();
    for (index, poller) in pollers.iter().enumerate() {
        hub.add(poller, index).expect("watched");
    }
    let (heard, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let stalled_at = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..WAKES {
                wakers[usize::try_from(mixed(number)).expect("small") % SHARDS].wake().expect("woken");
                while heard.load(Ordering::Acquire) <= number && !is_over.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            }
        });
        let _over = Over(&is_over);
        (0..WAKES).find(|number| {
            let ready = hub.poll(Some(DEADLINE)).expect("a wait");
            let woken = usize::try_from(mixed(*number)).expect("small") % SHARDS;
            let is_heard = ready != Ready::default() && hub.ready().any(|index| index == woken);
            heard.store(number + 1, Ordering::Release);
            !is_heard
        })
    });
    assert_eq!(stalled_at, None, "a wake-up was lost");
}

#[test]
fn room_to_write_is_told_through_the_hub_while_it_is_watched() {
    let mut hub = hub();
    let (mut shard, _) = Shard::new(5);
    hub.add(&shard.poller, shard.index).expect("watched");
    assert_eq!(hub.poll(Some(Duration::ZERO)), Ok(Ready::default()));
    for _ in 0..3 {
        // The socket has room: a watch for it is an event at once.
        shard.poller.watch_writable(&mut shard.socket, 0, true).expect("watched");
        hub.poll(Some(DEADLINE)).expect("a wait");
        assert_eq!(hub.ready().collect::<Vec<_>>(), [5]);
        let inner = shard.poller.poll(Some(Duration::ZERO)).expect("a look");
        assert_eq!(inner.writable, 1);
        shard.poller.watch_writable(&mut shard.socket, 0, false).expect("watched");
        assert_eq!(hub.poll(Some(Duration::ZERO)), Ok(Ready::default()));
    }
}

#[test]
fn a_poller_tells_its_next_waiter_what_the_one_before_did_not_look_at() {
    let (mut first, mut second) = (hub(), hub());
    let (mut shard, address) = Shard::new(0);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a sender");
    let drained = AtomicU64::new(0);
    for round in 1..=100 {
        first.add(&shard.poller, 1).expect("watched");
        sender.send_to(b"here", address).expect("sent");
        first.poll(Some(DEADLINE)).expect("a wait");
        assert_eq!(first.ready().collect::<Vec<_>>(), [1]);
        first.remove(&shard.poller).expect("it was watched");
        second.add(&shard.poller, 2).expect("watched");
        second.poll(Some(DEADLINE)).expect("a wait");
        assert_eq!(second.ready().collect::<Vec<_>>(), [2]);
        second.remove(&shard.poller).expect("it was watched");
        let own = shard.poller.poll(Some(DEADLINE)).expect("a wait");
        assert_eq!(own.readable, 1, "alone again, in its own poll");
        shard.drain(1_024, &drained);
        assert_eq!(drained.load(Ordering::Acquire), round);
    }
}

/// The slack of this thread's timers in nanoseconds, as the system shows it to the thread itself.
fn slack() -> String {
    let thread = std::fs::read_link("/proc/thread-self").expect("a thread of a process");
    let number = thread.file_name().and_then(|name| name.to_str()).expect("a number").to_owned();
    std::fs::read_to_string(format!("/proc/{number}/timerslack_ns")).expect("its own").trim().to_owned()
}

#[test]
fn a_thread_with_a_hub_naps_finely_whoever_made_the_pollers() {
    // Threads have it from those that start them: this one must make none itself.
    let poller = std::thread::spawn(|| Poller::new().expect("a poller")).join().expect("no panic");
    let thread = std::thread::spawn(move || {
        let before = slack();
        let hub = hub();
        hub.add(&poller, 0).expect("watched");
        (before, slack())
    });
    let (before, after) = thread.join().expect("no panic");
    assert_ne!(before, after);
    assert_eq!(after, "1000");
}
