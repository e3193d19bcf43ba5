//! The network of a world: a receive queue for each end, two links for each client, and the virtual time.
//!
//! It moves datagrams and remembers when each end wants to be woken; it runs nobody.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drumfire_proto::Now;
use drumfire_socket::{Fault, SendMode, SteeringFilter};

use super::port::{Message, Port};
use super::skewed_clock::ClockConfig;
use super::sockets::{SocketCounts, Sockets, Trouble};
use super::steer::{Steer, fold};
use super::{Traffic, WorldCounts};
use crate::base::wake::Wake;
use crate::conditioner::{Datagram, Link, LinkConfig, Moment, Random};

/// The part of a world's random numbers from which those of ports come.
const PORTS: u64 = 1 << 32;

/// A world begins a second after the origin, so that nothing works only because it is early.
const START: Moment = Moment::from_nanos(1_000_000_000);

/// A network that all ends of a world share.
#[derive(Clone, Debug)]
pub(crate) struct SharedNetwork(Arc<Mutex<Network>>);

impl SharedNetwork {
    pub(super) fn new(network: Network) -> Self {
        Self(Arc::new(Mutex::new(network)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Network> {
        // After a panic the world is of no use, but it may still be looked at.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Moment {
        self.lock().now
    }
}

/// What lies between the ends of a world.
#[derive(Debug)]
pub(crate) struct Network {
    now: Moment,
    seed: u64,
    steer: Steer,
    /// The server's come first, one for each worker; the client at place `n` has the `n`th behind those.
    ports: Vec<Port>,
    paths: Vec<Path>,
    /// Clients by where the server reaches them.
    by_address: HashMap<SocketAddr, usize>,
    inbox_full: u64,
    unreachable: u64,
    injected: u64,
    trace: u64,
    /// What the server took from each address and sent to it.
    traffic: HashMap<SocketAddr, Traffic>,
    /// What was sent since somebody last looked, while somebody watches.
    seen: Option<Vec<Datagram>>,
    /// Nobody receives or sends at the server's port.
    is_server_dead: bool,
}

/// Both directions between a client and the server.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) up: Link,
    pub(super) down: Link,
}

impl Network {
    pub(super) fn new(server: SocketAddr, workers: usize, sockets: Sockets, seed: u64) -> Self {
        let random = |worker| Random::part(seed, PORTS + worker as u64);
        let port = |worker| Port::new(server, sockets.queue_datagrams, random(worker));
        Self {
            now: START,
            seed,
            steer: Steer::new(sockets, workers, seed),
            ports: (0..workers).map(port).collect(),
            paths: Vec::new(),
            by_address: HashMap::new(),
            inbox_full: 0,
            unreachable: 0,
            injected: 0,
            trace: 0,
            traffic: HashMap::new(),
            seen: None,
            is_server_dead: false,
        }
    }

    /// A client's port, with perfect links.
    pub(super) fn join(&mut self, address: SocketAddr) -> usize {
        let (client, port) = (self.paths.len(), self.ports.len());
        let random = Random::part(self.seed, PORTS + port as u64);
        self.ports.push(Port::new(address, Sockets::default().queue_datagrams, random));
        let link = |direction| {
            let seed = Random::part(self.seed, 2 * client as u64 + direction).bits();
            match Link::new(LinkConfig::default(), seed) {
                Ok(link) => link,
                Err(error) => panic!("a perfect link: {error}"),
            }
        };
        self.paths.push(Path { up: link(0), down: link(1) });
        self.by_address.insert(address, client);
        port
    }

    pub(super) fn path(&mut self, client: usize) -> &mut Path {
        let count = self.paths.len();
        match self.paths.get_mut(client) {
            Some(path) => path,
            None => panic!("there is no client {client}, there are {count}"),
        }
    }

    pub(super) fn client_address(&self, client: usize) -> SocketAddr {
        match self.ports.get(self.workers() + client) {
            Some(port) => port.address,
            None => panic!("there is no client {client}, there are {}", self.paths.len()),
        }
    }

    pub(super) fn rebind(&mut self, client: usize, address: SocketAddr) {
        let before = self.client_address(client);
        self.by_address.remove(&before);
        self.by_address.insert(address, client);
        let port = self.workers() + client;
        self.ports[port].address = address;
        self.path(client).up.rebind(Some(address));
    }

    pub(super) fn swap_addresses(&mut self, one: usize, other: usize) {
        let addresses = [self.client_address(one), self.client_address(other)];
        for (client, address) in [other, one].into_iter().zip(addresses) {
            self.by_address.insert(address, client);
            let port = self.workers() + client;
            self.ports[port].address = address;
            self.path(client).up.rebind(Some(address));
        }
    }

    /// Whether nobody is at the server's port from now on; what waits there is gone with the server.
    pub(super) fn set_server_dead(&mut self, is_dead: bool) {
        self.is_server_dead = is_dead;
        let (now, workers) = (self.now, self.workers());
        for server in self.ports.iter_mut().take(workers) {
            self.unreachable += server.clear();
            server.wake((!is_dead).then_some(now));
        }
    }

    /// What names the worker of a packet from now on.
    pub(super) fn set_filter(&mut self, filter: Option<SteeringFilter>) {
        self.steer.set_filter(filter);
    }

    pub(super) const fn sockets(&self) -> Sockets {
        self.steer.sockets
    }

    pub(super) const fn workers(&self) -> usize {
        self.steer.workers
    }

    /// The place of the client at this port; none for the server's.
    pub(super) const fn client_of(&self, port: usize) -> Option<usize> {
        port.checked_sub(self.workers())
    }

    /// The port of a worker.
    pub(super) fn worker(&mut self, worker: usize) -> &mut Port {
        assert!(worker < self.workers(), "there is no worker {worker}, there are {}", self.workers());
        &mut self.ports[worker]
    }

    pub(super) fn set_now(&mut self, now: Moment) {
        if now > self.now {
            for port in &mut self.ports {
                port.leave(self.now);
                port.make_room(now);
            }
            self.now = now;
        }
    }

    /// Every end gets its turn that nobody else would wake.
    pub(super) fn wake_all(&mut self) {
        let (now, workers) = (self.now, self.workers());
        let skipped = if workers > 1 { workers } else { usize::from(self.is_server_dead) };
        for port in self.ports.iter_mut().skip(skipped) {
            port.wake(Some(now));
        }
    }

    /// When something happens next.
    pub(super) fn next_at(&self) -> Option<Moment> {
        let links = self.paths.iter().flat_map(|path| [path.up.next_at(), path.down.next_at()]);
        links.chain(self.ports.iter().map(Port::next_at)).flatten().min()
    }

    /// Brings datagrams to their ends; answers which ends have something to do at this moment.
    pub(super) fn take_due(&mut self) -> Vec<usize> {
        let now = self.now;
        for client in 0..self.paths.len() {
            while let Some(datagram) = self.paths[client].up.poll(now) {
                self.arrive(datagram);
            }
            while let Some(datagram) = self.paths[client].down.poll(now) {
                let port = self.workers() + client;
                self.inbox_full += u64::from(!self.ports[port].take(datagram, false));
            }
        }
        let is_due = |port: &Port| port.next_at().is_some_and(|next| next <= now);
        (0..).zip(&self.ports).filter(|(_, port)| is_due(port)).map(|(at, _)| at).collect()
    }

    /// A datagram comes to the server.
    fn arrive(&mut self, datagram: Datagram) {
        if self.is_server_dead {
            self.unreachable += 1;
            return;
        }
        let (worker, is_joined) = self.steer.steer(self.now, &datagram);
        if !self.ports[worker].take(datagram, is_joined) {
            self.inbox_full += 1;
            self.steer.forget_train();
        }
    }

    /// An end has its turn; answers whether it hears that something arrived.
    pub(super) fn begin_turn(&mut self, port: usize) -> bool {
        self.ports[port].begin_turn()
    }

    /// Wakes an end when so much time has passed by its own clock, `None` for never.
    pub(super) fn wake_after(&mut self, port: usize, timeout: Option<Duration>) {
        if self.is_dead(port) {
            return;
        }
        let now = self.now;
        self.ports[port].wait(now, timeout);
    }

    /// Wakes an end now.
    pub(super) fn wake(&mut self, port: usize) {
        if !self.is_dead(port) {
            let now = self.now;
            self.ports[port].wake(Some(now));
        }
    }

    fn is_dead(&self, port: usize) -> bool {
        port < self.workers() && self.is_server_dead
    }

    /// Whether the next receive call of an end is to panic.
    pub(super) fn is_to_panic(&mut self, port: usize) -> bool {
        self.ports[port].is_to_panic()
    }

    /// The fault of a receive call, if it is to have one.
    pub(super) fn receive_fault(&mut self, port: usize) -> Option<Fault> {
        let now = self.now;
        self.ports[port].receive_fault(now)
    }

    /// Whether a wait is to fail.
    pub(super) fn wait_fault(&mut self, port: usize) -> bool {
        self.ports[port].wait_fault()
    }

    /// What a send call of so many datagrams does: how many it takes, or its fault.
    pub(super) fn sends(&mut self, port: usize, offered: usize, mode: SendMode) -> Result<usize, Fault> {
        let now = self.now;
        self.ports[port].sends(now, offered, mode)
    }

    pub(super) fn watch_room(&mut self, port: usize, is_blocked: bool) {
        self.ports[port].watch_room(is_blocked);
    }

    /// What goes wrong at a worker's socket from now on.
    pub(super) fn set_trouble(&mut self, worker: usize, trouble: Trouble) {
        self.worker(worker).set_trouble(trouble);
    }

    /// A worker does nothing for so long.
    pub(super) fn stall(&mut self, worker: usize, duration: Duration) {
        let until = self.now.after(duration);
        self.worker(worker).stall(until);
    }

    /// Datagrams that found an end's queue full.
    pub(super) fn overflowed(&self, port: usize) -> u64 {
        self.ports[port].counts.overflowed
    }

    /// Bytes of datagrams that wait in an end's queue.
    pub(super) fn queued_bytes(&self, port: usize) -> usize {
        self.ports[port].queued_bytes()
    }

    pub(super) fn socket_counts(&mut self, worker: usize) -> &SocketCounts {
        &self.worker(worker).counts
    }

    pub(super) fn set_clock(&mut self, port: usize, config: &ClockConfig) {
        let (now, is_dead) = (self.now, self.is_dead(port));
        let port = &mut self.ports[port];
        port.clock.set(now, config);
        // Whatever it waited for may be due by now, or later.
        port.wake((!is_dead).then_some(now));
    }

    /// What an end takes for the time.
    pub(super) fn clocks_of(&self, port: usize) -> Now {
        self.ports[port].clock.now(self.now)
    }

    /// The oldest message in an end's queue.
    pub(super) fn receive(&mut self, port: usize) -> Option<Message> {
        let message = self.ports[port].receive()?;
        if port < self.workers() {
            self.traffic.entry(message.from).or_default().received_bytes += message.bytes.len() as u64;
        }
        Some(message)
    }

    /// Puts a datagram into the queue of whoever it is for, past all links; false when that is nobody.
    pub(super) fn inject(&mut self, datagram: Datagram) -> bool {
        let Some(port) = self.ports.iter().position(|port| port.address == datagram.to) else { return false };
        self.injected += 1;
        if port < self.workers() {
            self.arrive(datagram);
        } else {
            self.inbox_full += u64::from(!self.ports[port].take(datagram, false));
        }
        true
    }

    /// What was sent since the last call; the first one begins to watch.
    pub(super) fn take_seen(&mut self) -> Vec<Datagram> {
        self.seen.replace(Vec::new()).unwrap_or_default()
    }

    pub(super) fn traffic(&self) -> impl Iterator<Item = (SocketAddr, Traffic)> {
        self.traffic.iter().map(|(address, traffic)| (*address, *traffic))
    }

    /// Puts a datagram on its link; `to` is `None` from a client, which has one place to send to.
    pub(super) fn send(&mut self, port: usize, to: Option<SocketAddr>, datagram: &[u8]) {
        if self.is_dead(port) {
            return;
        }
        self.note(port, datagram);
        let (now, from, server) = (self.now, self.ports[port].address, self.ports[0].address);
        let client = self.client_of(port);
        let to = to.filter(|_| client.is_none());
        if let Some(to) = to {
            self.traffic.entry(to).or_default().sent_bytes += datagram.len() as u64;
        }
        if let Some(seen) = &mut self.seen {
            seen.push(Datagram { from, to: to.unwrap_or(server), bytes: datagram.to_vec() });
        }
        let client = match (client, to) {
            (Some(client), _) => Some(client),
            (None, Some(to)) => self.by_address.get(&to).copied(),
            (None, None) => None,
        };
        let Some(path) = client.and_then(|client| self.paths.get_mut(client)) else {
            self.unreachable += 1;
            return;
        };
        match to {
            Some(to) => path.down.push(now, from, to, datagram),
            None => path.up.push(now, from, server, datagram),
        }
    }

    pub(super) fn counts(&self) -> WorldCounts {
        let waiting = self.ports.iter().map(|port| port.waiting_count() as u64).sum();
        WorldCounts {
            inbox_full: self.inbox_full,
            waiting,
            unreachable: self.unreachable,
            injected: self.injected,
        }
    }

    pub(super) const fn trace(&self) -> u64 {
        self.trace
    }

    /// Takes a datagram into the trace.
    fn note(&mut self, port: usize, datagram: &[u8]) {
        self.trace = fold(self.trace, self.now.as_nanos());
        self.trace = fold(self.trace, port as u64 ^ ((datagram.len() as u64) << 32));
        for chunk in datagram.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.trace = fold(self.trace, u64::from_le_bytes(word));
        }
    }
}

/// Ends the wait of one end.
#[derive(Debug)]
pub(crate) struct MemoryWaker {
    pub(super) network: SharedNetwork,
    pub(super) port: usize,
}

impl Wake for MemoryWaker {
    fn wake(&self) {
        self.network.lock().wake(self.port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1))
    }

    fn network() -> Network {
        Network::new(address(1), 1, Sockets::default(), 0)
    }

    #[test]
    fn a_receive_queue_takes_what_it_holds_and_counts_the_rest() {
        let mut network = network();
        let port = network.join(address(2));
        let most = Sockets::default().queue_datagrams;
        for _ in 0..=most {
            network.send(port, None, b"x");
        }
        assert_eq!(network.take_due(), [0]);
        let counts = network.counts();
        assert_eq!((counts.waiting, counts.inbox_full), (most as u64, 1));
        assert_eq!(network.receive(0).unwrap().from, address(2));
    }

    #[test]
    fn what_is_injected_arrives_at_once_whoever_it_claims_to_be_from_and_all_that_is_sent_is_seen() {
        let mut network = network();
        let port = network.join(address(2));
        assert!(network.take_seen().is_empty());
        let datagram = |from, to| Datagram { from: address(from), to: address(to), bytes: vec![7; 9] };
        assert!(network.inject(datagram(9, 1)) && network.inject(datagram(1, 2)));
        assert!(!network.inject(datagram(1, 3)), "nobody is there");
        assert_eq!(network.take_due(), [0, port]);
        assert_eq!(network.receive(0).unwrap().from, address(9));
        network.send(0, Some(address(9)), b"who?");
        assert_eq!(network.counts().injected, 2);
        let traffic: Vec<_> = network.traffic().collect();
        assert_eq!(traffic, [(address(9), Traffic { received_bytes: 9, sent_bytes: 4 })]);
        let seen = network.take_seen();
        assert_eq!((seen.len(), seen[0].to, &seen[0].bytes[..]), (1, address(9), b"who?".as_slice()));
    }

    #[test]
    fn what_nobody_has_is_unreachable() {
        let mut network = network();
        let port = network.join(address(2));
        network.rebind(0, address(3));
        network.send(0, Some(address(2)), b"x");
        assert_eq!(network.counts().unreachable, 1);
        network.send(0, Some(address(3)), b"x");
        assert_eq!(network.take_due(), [port]);
    }

    #[test]
    fn the_trace_tells_time_end_content_and_order_apart() {
        let trace = |nanos, sends: [(usize, &[u8]); 2]| {
            let mut network = network();
            network.join(address(2));
            network.set_now(START.after(Duration::from_nanos(nanos)));
            for (port, bytes) in sends {
                network.send(port, Some(address(2)), bytes);
            }
            network.trace()
        };
        let base = trace(0, [(0, b"a"), (1, b"b")]);
        assert_eq!(base, trace(0, [(0, b"a"), (1, b"b")]));
        for other in [
            trace(1, [(0, b"a"), (1, b"b")]),
            trace(0, [(1, b"b"), (0, b"a")]),
            trace(0, [(1, b"a"), (1, b"b")]),
            trace(0, [(0, b"a\0"), (1, b"b")]),
            trace(0, [(0, b"a"), (1, b"c")]),
        ] {
            assert_ne!(base, other);
        }
    }
}
