//! Tests of threads that panic outside a pass, on real sockets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drumfire_proto::{ChannelId, Message};
use drumfire_socket::ReuseportGroup;

use crate::base::clock;
use crate::base::sync::Notifier;
use crate::base::wake::Wake as _;
use crate::engine::app_side::AppSide;
use crate::engine::server_core::ServerCore;
use crate::{Access, Client, ClientConfig, Event, PeerId, Server, ServerConfig, ServerKey, Workers};

/// Injects a panic into a thread, and counts how often the threads check for one.
#[derive(Default)]
pub(super) struct PanicInjector {
    /// The place of the next panic. `None` if there is none to inject.
    point: Mutex<Option<PanicPoint>>,
    /// The number of calls of [`PanicInjector::panic_if_set`].
    checks: AtomicU64,
}

/// The place of a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PanicPoint {
    /// On the thread that is working on the shard with this index.
    DuringShard(u16),
    /// On the first thread that is between two passes.
    BetweenPasses,
}

impl PanicInjector {
    pub(super) fn set(&self, point: PanicPoint) {
        *self.point.lock().unwrap_or_else(PoisonError::into_inner) = Some(point);
    }

    /// Panics once at the place that [`PanicInjector::set`] selected.
    pub(super) fn panic_if_set(&self, shard: Option<u16>) {
        self.checks.fetch_add(1, Ordering::Relaxed);
        let mut point = self.point.lock().unwrap_or_else(PoisonError::into_inner);
        if *point == Some(shard.map_or(PanicPoint::BetweenPasses, PanicPoint::DuringShard)) {
            *point = None;
            drop(point);
            panic!("an injected fault");
        }
    }
}

/// Whether several sockets can share a port. Otherwise a server has one worker, and the tests need several.
const SHARES_PORTS: bool = ReuseportGroup::MAX_SOCKETS > 1;

/// The longest time to wait for a condition.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Workers on threads, and clients that have each sent their number.
struct World {
    core: ServerCore,
    app: AppSide,
    clients: Vec<Client>,
    /// The events of each client, by number.
    received: Vec<Vec<Event>>,
    /// The latest peer of each client, by number.
    peers: Vec<Option<PeerId>>,
    /// The peers that the server reported as disconnected.
    disconnected: Vec<PeerId>,
    /// The number of messages from peers that were already known.
    reply_count: usize,
}

impl World {
    fn new(sockets: u16, threads: u16, clients: usize) -> Self {
        let local = "127.0.0.1:0".parse().unwrap();
        let config = ServerConfig::new(local, ServerKey::dev(), Access::Open);
        let workers = Workers::Shards { sockets, threads };
        let core = ServerCore::bind(config.workers(workers), false, |links, _| Server::sinks(links, false));
        let core = core.unwrap();
        let mut world = Self {
            app: AppSide::new(Arc::clone(&core.links)),
            core,
            clients: Vec::new(),
            received: Vec::new(),
            peers: Vec::new(),
            disconnected: Vec::new(),
            reply_count: 0,
        };
        for _ in 0..clients {
            world.join();
        }
        world.run_until("all clients sent their numbers", |world| world.peers.iter().all(Option::is_some));
        world
    }

    fn join(&mut self) {
        let mut client = Client::new(ClientConfig::default()).unwrap();
        let server = client.connect((self.core.address, ServerKey::dev().public())).unwrap();
        let number = u16::try_from(self.clients.len()).unwrap();
        client.send(server, Message::reliable_ordered(ChannelId(0), number.to_be_bytes().to_vec())).unwrap();
        self.clients.push(client);
        self.received.push(Vec::new());
        self.peers.push(None);
    }

    /// Drives the server and the clients until `is_true` returns true.
    fn run_until(&mut self, what: &str, is_true: impl Fn(&Self) -> bool) {
        let deadline = clock::instant() + TIMEOUT;
        while !is_true(self) {
            assert!(clock::instant() < deadline, "not in time: {what}");
            self.app.take_events();
            while let Some(event) = self.app.next_event() {
                match event {
                    Event::Message { peer, payload, .. } => {
                        let number = usize::from(u16::from_be_bytes([payload[0], payload[1]]));
                        self.reply_count += usize::from(self.peers[number].replace(peer) == Some(peer));
                    }
                    Event::Disconnected { peer, .. } => self.disconnected.push(peer),
                    _ => {}
                }
            }
            for (client, received) in self.clients.iter_mut().zip(&mut self.received) {
                client.poll(Duration::from_micros(100));
                received.extend(client.events());
            }
        }
    }

    fn panic_injector(&self) -> &PanicInjector {
        &self.core.control.pool().panic_injector
    }

    fn inject_panic(&self, point: PanicPoint) {
        self.panic_injector().set(point);
        // A thread that waits would not check for the panic.
        self.core.links.iter().for_each(|link| link.wake());
    }

    fn restarts(&self) -> Vec<u64> {
        self.core.links.iter().map(|link| link.stats().restarts).collect()
    }

    /// Whether the last event of a client is its disconnect.
    fn is_disconnected(&self, number: usize) -> bool {
        matches!(self.received[number].last(), Some(Event::Disconnected { .. }))
    }

    /// Checks the state after a restart of the workers `restarted`. Their peers are disconnected on both sides, and all other peers
    /// still send messages. New clients connect to the restarted workers.
    #[track_caller]
    fn assert_restarted(&mut self, restarted: &[usize]) {
        let before: Vec<PeerId> = self.peers.iter().copied().flatten().collect();
        let is_lost = |peer: &PeerId| restarted.contains(&peer.worker());
        let mut lost: Vec<PeerId> = before.iter().copied().filter(|peer| is_lost(peer)).collect();
        assert!(!lost.is_empty() && lost.len() < before.len());
        self.reply_count = 0;
        for (number, client) in self.clients.iter_mut().enumerate() {
            let number = u16::try_from(number).unwrap().to_be_bytes().to_vec();
            // A client of a restarted worker receives a reset in response, unless it has received one before.
            let Some(server) = client.peers().next() else { continue };
            let _ = client.send(server, Message::reliable_ordered(ChannelId(0), number));
        }
        let others = before.len() - lost.len();
        self.run_until("the others send messages, and the lost clients are disconnected", |world| {
            let mut disconnects = (0..before.len()).filter(|number| is_lost(&before[*number]));
            world.reply_count == others && disconnects.all(|number| world.is_disconnected(number))
        });
        assert!((0..before.len()).all(|number| self.is_disconnected(number) == is_lost(&before[number])));
        lost.sort_unstable();
        self.disconnected.sort_unstable();
        assert_eq!(self.disconnected, lost, "each lost peer is reported once");
        (0..lost.len()).for_each(|_| self.join());
        self.run_until("the new clients connected", |world| world.peers.iter().all(Option::is_some));
        let new = || self.peers[before.len()..].iter().flatten();
        assert!(new().all(is_lost), "the new clients are on the restarted workers");
        assert!(new().all(|peer| !before.contains(peer)));
    }
}

impl World {
    /// Returns the number of workers of each running thread.
    fn threads(&self) -> Vec<u16> {
        self.core.control.stats().threads
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.core.stop();
    }
}

#[test]
fn a_panic_outside_a_pass_affects_only_the_current_worker() {
    if !SHARES_PORTS {
        return;
    }
    for (sockets, threads) in [(2, 2), (4, 2), (4, 1)] {
        let mut world = World::new(sockets, threads, usize::from(sockets) * 3);
        world.inject_panic(PanicPoint::DuringShard(1));
        world.run_until("worker 1 restarted", |world| world.restarts()[1] == 1);
        assert_eq!(world.restarts().iter().sum::<u64>(), 1);
        world.assert_restarted(&[1]);
        assert_eq!(world.threads().len(), usize::from(threads));
    }
}

#[test]
fn a_panic_between_passes_restarts_all_workers_of_the_thread() {
    if !SHARES_PORTS {
        return;
    }
    let mut world = World::new(4, 2, 12);
    world.inject_panic(PanicPoint::BetweenPasses);
    world.run_until("two workers restarted", |world| world.restarts().iter().sum::<u64>() == 2);
    let restarted: Vec<usize> = (0..4).filter(|worker| world.restarts()[*worker] == 1).collect();
    // The shards are assigned to the two threads in turn.
    assert!(restarted == [0, 2] || restarted == [1, 3], "{restarted:?}");
    world.assert_restarted(&restarted);
}

#[test]
fn repeated_panics_end_no_thread_and_stop_no_move() {
    if !SHARES_PORTS {
        return;
    }
    let mut world = World::new(4, 4, 12);
    for round in 1..=20 {
        world.inject_panic(PanicPoint::DuringShard(3));
        let threads = [2, 3, 1, 4][round % 4];
        world.core.control.set_threads(threads).unwrap();
        world.run_until("worker 3 restarted, and all shards moved", |world| {
            let shard_counts = world.threads();
            world.restarts()[3] == round as u64
                && shard_counts.len() == usize::from(threads)
                && shard_counts.iter().sum::<u16>() == 4
        });
    }
    assert_eq!(world.restarts(), [0, 0, 0, 20]);
    world.assert_restarted(&[3]);
}

#[test]
fn a_thread_with_several_workers_sleeps_while_it_is_idle() {
    if !SHARES_PORTS {
        return;
    }
    const QUIET: Duration = Duration::from_millis(300);
    let mut world = World::new(8, 3, 0);
    world.core.control.set_threads(2).unwrap();
    world.run_until("all shards moved", |world| world.threads() == [4, 4]);
    let checks = || world.panic_injector().checks.load(Ordering::Relaxed);
    // The first passes of the shards and the move cause some checks.
    Notifier::default().wait(QUIET);
    let before = checks();
    Notifier::default().wait(QUIET);
    let more = checks() - before;
    assert!(more < 20, "{more} checks; polling every millisecond takes {}", QUIET.as_millis());
}
