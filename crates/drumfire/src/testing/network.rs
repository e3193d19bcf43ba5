//! The network of a world: a receive queue for each end, two links for each client, and the virtual time.
//!
//! It moves datagrams and records when each end is due. [`World`](super::World) runs the ends.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drumfire_proto::{Moment, Now};
use drumfire_socket::{Fault, SendMode, SteeringFilter};

use super::Datagram;
use super::port::{Message, Port};
use super::skewed_clock::ClockConfig;
use super::sockets::{SocketCounts, SocketFaults, Sockets};
use super::steer::{Steer, fold};
use super::{Traffic, WorldCounts};
use crate::base::wake::Wake;
use crate::conditioner::{Link, LinkConfig, Random};

/// The first part of the seed that belongs to a port. Lower parts belong to links.
const PORTS: u64 = 1 << 32;

/// A world begins one second after the origin, so that code cannot rely on a clock near zero.
const START: Moment = Moment::from_nanos(1_000_000_000);

/// A handle to the network, for all ends of a world.
#[derive(Clone, Debug)]
pub(crate) struct SharedNetwork(Arc<Mutex<Network>>);

impl SharedNetwork {
    pub(super) fn new(network: Network) -> Self {
        Self(Arc::new(Mutex::new(network)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Network> {
        // After a panic the world is no longer usable, but a test may still inspect it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Moment {
        self.lock().now
    }
}

/// The ports, links, and clocks of all ends of a world.
#[derive(Debug)]
pub(crate) struct Network {
    now: Moment,
    seed: u64,
    steer: Steer,
    /// The ports of all workers by index, and then the ports of all clients by index.
    ports: Vec<Port>,
    /// The links of all clients, by index.
    paths: Vec<Path>,
    /// The indexes of clients, by the address to which the server sends.
    by_address: HashMap<SocketAddr, usize>,
    inbox_full: u64,
    unreachable: u64,
    injected: u64,
    trace: u64,
    /// The bytes that the server received from each address and sent to it.
    traffic: HashMap<SocketAddr, Traffic>,
    /// Datagrams that were sent since the last call of `take_captured`. `None` before the first call.
    captured: Option<Vec<Datagram>>,
    /// Whether the server is down. Datagrams that arrive at the server or that it sends are then lost.
    is_server_dead: bool,
}

/// The source and the destination of a datagram.
type Addresses = (SocketAddr, SocketAddr);

impl From<(Addresses, Vec<u8>)> for Datagram {
    fn from(((from, to), bytes): (Addresses, Vec<u8>)) -> Self {
        Self { from, to, bytes }
    }
}

/// Returns a time as the links count it.
fn since_origin(now: Moment) -> Duration {
    now.since(Moment::ORIGIN)
}

/// The links between a client and the server: `up` to the server, and `down` to the client.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) up: Link<Addresses>,
    pub(super) down: Link<Addresses>,
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
            captured: None,
            is_server_dead: false,
        }
    }

    /// Adds the port of a client and its perfect links. Returns the index of the port.
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
    }

    pub(super) fn swap_addresses(&mut self, one: usize, other: usize) {
        let addresses = [self.client_address(one), self.client_address(other)];
        for (client, address) in [other, one].into_iter().zip(addresses) {
            self.by_address.insert(address, client);
            let port = self.workers() + client;
            self.ports[port].address = address;
        }
    }

    /// Stops or restarts the server's side. Datagrams in the queues of the server are lost.
    pub(super) fn set_server_dead(&mut self, is_dead: bool) {
        self.is_server_dead = is_dead;
        let (now, workers) = (self.now, self.workers());
        for server in self.ports.iter_mut().take(workers) {
            self.unreachable += server.clear();
            server.wake((!is_dead).then_some(now));
        }
    }

    /// Replaces the filter that selects the worker of a packet.
    pub(super) fn set_filter(&mut self, filter: Option<SteeringFilter>) {
        self.steer.set_filter(filter);
    }

    pub(super) const fn sockets(&self) -> Sockets {
        self.steer.sockets
    }

    pub(super) const fn workers(&self) -> usize {
        self.steer.workers
    }

    /// Returns the index of the client at this port, or `None` for a worker's port.
    pub(super) const fn client_of(&self, port: usize) -> Option<usize> {
        port.checked_sub(self.workers())
    }

    /// Returns the port of a worker.
    ///
    /// # Panics
    /// Panics if there is no such worker.
    pub(super) fn worker(&mut self, worker: usize) -> &mut Port {
        assert!(worker < self.workers(), "there is no worker {worker}, there are {}", self.workers());
        &mut self.ports[worker]
    }

    pub(super) fn set_now(&mut self, now: Moment) {
        if now > self.now {
            for port in &mut self.ports {
                port.count_missed_wakeup(self.now);
                port.make_room(now);
            }
            self.now = now;
        }
    }

    /// Wakes all clients, and the worker of a server with one worker. Several workers have wakers, as threads do.
    pub(super) fn wake_all(&mut self) {
        let (now, workers) = (self.now, self.workers());
        let skipped = if workers > 1 { workers } else { usize::from(self.is_server_dead) };
        for port in self.ports.iter_mut().skip(skipped) {
            port.wake(Some(now));
        }
    }

    /// Returns the time of the next arrival or turn.
    pub(super) fn next_at(&self) -> Option<Moment> {
        let links = self.paths.iter().flat_map(|path| [path.up.next_at(), path.down.next_at()]);
        let links = links.map(|at| at.map(|at| Moment::ORIGIN.after(at)));
        links.chain(self.ports.iter().map(Port::next_at)).flatten().min()
    }

    /// Delivers the datagrams that arrive by now. Returns the ports of the ends that are due.
    pub(super) fn take_due(&mut self) -> Vec<usize> {
        let now = self.now;
        for client in 0..self.paths.len() {
            while let Some(datagram) = self.paths[client].up.poll(since_origin(now)) {
                self.arrive(datagram.into());
            }
            while let Some(datagram) = self.paths[client].down.poll(since_origin(now)) {
                let port = self.workers() + client;
                self.inbox_full += u64::from(!self.ports[port].take(datagram.into(), false));
            }
        }
        let is_due = |port: &Port| port.next_at().is_some_and(|next| next <= now);
        (0..).zip(&self.ports).filter(|(_, port)| is_due(port)).map(|(at, _)| at).collect()
    }

    /// Delivers a datagram to the server.
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

    /// Begins the turn of an end. Returns whether a datagram arrived since its last turn.
    pub(super) fn begin_turn(&mut self, port: usize) -> bool {
        self.ports[port].begin_turn()
    }

    /// Wakes an end after `timeout` by its own clock. `None` means never.
    pub(super) fn wake_after(&mut self, port: usize, timeout: Option<Duration>) {
        if self.is_dead(port) {
            return;
        }
        let now = self.now;
        self.ports[port].wait(now, timeout);
    }

    /// Wakes an end now. Workers of a dead server stay asleep.
    pub(super) fn wake(&mut self, port: usize) {
        if !self.is_dead(port) {
            let now = self.now;
            self.ports[port].wake(Some(now));
        }
    }

    fn is_dead(&self, port: usize) -> bool {
        port < self.workers() && self.is_server_dead
    }

    /// Returns whether this receive call of an end panics.
    pub(super) fn should_panic(&mut self, port: usize) -> bool {
        self.ports[port].should_panic()
    }

    /// Returns the fault of a receive call, if it fails.
    pub(super) fn receive_fault(&mut self, port: usize) -> Option<Fault> {
        let now = self.now;
        self.ports[port].receive_fault(now)
    }

    /// Returns whether a wait fails.
    pub(super) fn wait_fault(&mut self, port: usize) -> bool {
        self.ports[port].wait_fault()
    }

    /// Returns how many of the `offered` datagrams a send call accepts, or its fault.
    pub(super) fn sends(&mut self, port: usize, offered: usize, mode: SendMode) -> Result<usize, Fault> {
        let now = self.now;
        self.ports[port].sends(now, offered, mode)
    }

    pub(super) fn watch_room(&mut self, port: usize, is_blocked: bool) {
        self.ports[port].watch_room(is_blocked);
    }

    /// Replaces the faults of a worker's socket.
    pub(super) fn set_socket_faults(&mut self, worker: usize, faults: SocketFaults) {
        self.worker(worker).set_socket_faults(faults);
    }

    /// Gives a worker no turns for `duration`.
    pub(super) fn stall(&mut self, worker: usize, duration: Duration) {
        let until = self.now.after(duration);
        self.worker(worker).stall(until);
    }

    /// Returns the number of datagrams that an end's full queue dropped.
    pub(super) fn overflowed(&self, port: usize) -> u64 {
        self.ports[port].counts.overflowed
    }

    /// Returns the bytes of the datagrams in an end's queue.
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
        // The deadline of the end was computed with the old clock. Its next wait computes another one.
        port.wake((!is_dead).then_some(now));
    }

    /// Returns the readings of an end's clocks.
    pub(super) fn clocks_of(&self, port: usize) -> Now {
        self.ports[port].clock.now(self.now)
    }

    /// Removes the oldest message from an end's queue.
    pub(super) fn receive(&mut self, port: usize) -> Option<Message> {
        let message = self.ports[port].receive()?;
        if port < self.workers() {
            self.traffic.entry(message.from).or_default().received_bytes += message.bytes.len() as u64;
        }
        Some(message)
    }

    /// Delivers a datagram to the end at its address without a link. Returns false if no end has this address.
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

    /// Returns the datagrams sent since the last call. The first call starts the capture.
    pub(super) fn take_captured(&mut self) -> Vec<Datagram> {
        self.captured.replace(Vec::new()).unwrap_or_default()
    }

    pub(super) fn traffic(&self) -> impl Iterator<Item = (SocketAddr, Traffic)> {
        self.traffic.iter().map(|(address, traffic)| (*address, *traffic))
    }

    /// Puts a datagram on its link. Clients pass no destination, because their sockets are connected.
    pub(super) fn send(&mut self, port: usize, to: Option<SocketAddr>, datagram: &[u8]) {
        if self.is_dead(port) {
            return;
        }
        self.add_to_trace(port, datagram);
        let (now, from, server) = (self.now, self.ports[port].address, self.ports[0].address);
        let client = self.client_of(port);
        let to = to.filter(|_| client.is_none());
        if let Some(to) = to {
            self.traffic.entry(to).or_default().sent_bytes += datagram.len() as u64;
        }
        if let Some(captured) = &mut self.captured {
            captured.push(Datagram { from, to: to.unwrap_or(server), bytes: datagram.to_vec() });
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
            Some(to) => path.down.push(since_origin(now), (from, to), datagram),
            None => path.up.push(since_origin(now), (from, server), datagram),
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

    /// Adds a sent datagram to the trace.
    fn add_to_trace(&mut self, port: usize, datagram: &[u8]) {
        self.trace = fold(self.trace, self.now.as_nanos());
        self.trace = fold(self.trace, port as u64 ^ ((datagram.len() as u64) << 32));
        for chunk in datagram.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.trace = fold(self.trace, u64::from_le_bytes(word));
        }
    }
}

/// A waker that makes one end due now.
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
    fn a_full_receive_queue_drops_and_counts_datagrams() {
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
    fn injected_datagrams_arrive_and_sent_datagrams_are_captured() {
        let mut network = network();
        let port = network.join(address(2));
        assert!(network.take_captured().is_empty());
        let datagram = |from, to| Datagram { from: address(from), to: address(to), bytes: vec![7; 9] };
        assert!(network.inject(datagram(9, 1)) && network.inject(datagram(1, 2)));
        assert!(!network.inject(datagram(1, 3)), "each end has its own address");
        assert_eq!(network.take_due(), [0, port]);
        assert_eq!(network.receive(0).unwrap().from, address(9));
        network.send(0, Some(address(9)), b"who?");
        assert_eq!(network.counts().injected, 2);
        let traffic: Vec<_> = network.traffic().collect();
        assert_eq!(traffic, [(address(9), Traffic { received_bytes: 9, sent_bytes: 4 })]);
        let seen = network.take_captured();
        assert_eq!((seen.len(), seen[0].to, &seen[0].bytes[..]), (1, address(9), b"who?".as_slice()));
    }

    #[test]
    fn an_address_without_a_client_is_unreachable() {
        let mut network = network();
        let port = network.join(address(2));
        network.rebind(0, address(3));
        network.send(0, Some(address(2)), b"x");
        assert_eq!(network.counts().unreachable, 1);
        network.send(0, Some(address(3)), b"x");
        assert_eq!(network.take_due(), [port]);
    }

    #[test]
    fn the_trace_depends_on_time_sender_content_and_order() {
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
