//! The network of a world: a receive queue for each end, two links for each client, and the virtual time.
//!
//! It moves datagrams and remembers when each end wants to be woken; it runs nobody.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drumfire_proto::Now;

use super::clockwork::{ClockConfig, Clockwork};
use super::{Traffic, WorldCounts};
use crate::conditioner::{Datagram, Link, LinkConfig, Moment, Random};

/// The server's port; the client at place `n` has port `n + 1`.
pub(crate) const SERVER: usize = 0;

/// Datagrams that wait in one receive queue, at most.
const INBOX_DATAGRAMS: usize = 4_096;

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

/// One end's socket.
#[derive(Debug)]
struct Port {
    address: SocketAddr,
    inbox: VecDeque<Datagram>,
    clock: Clockwork,
    wake_at: Option<Moment>,
}

/// Both directions between a client and the server.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) up: Link,
    pub(super) down: Link,
}

impl Network {
    pub(super) fn new(server: SocketAddr, seed: u64) -> Self {
        Self {
            now: START,
            seed,
            ports: vec![Port::new(server)],
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
        self.ports.push(Port::new(address));
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
        match self.ports.get(client + 1) {
            Some(port) => port.address,
            None => panic!("there is no client {client}, there are {}", self.paths.len()),
        }
    }

    pub(super) fn rebind(&mut self, client: usize, address: SocketAddr) {
        let before = self.client_address(client);
        self.by_address.remove(&before);
        self.by_address.insert(address, client);
        self.ports[client + 1].address = address;
        self.path(client).up.rebind(Some(address));
    }

    /// Whether nobody is at the server's port from now on; what waits there is gone with the server.
    pub(super) fn set_server_dead(&mut self, is_dead: bool) {
        self.is_server_dead = is_dead;
        let now = self.now;
        if let Some(server) = self.ports.first_mut() {
            self.unreachable += server.inbox.len() as u64;
            server.inbox.clear();
            server.wake_at = (!is_dead).then_some(now);
        }
    }

    pub(super) fn set_now(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    /// Every end gets its turn.
    pub(super) fn wake_all(&mut self) {
        for port in self.ports.iter_mut().skip(usize::from(self.is_server_dead)) {
            port.wake_at = Some(self.now);
        }
    }

    /// When something happens next.
    pub(super) fn next_at(&self) -> Option<Moment> {
        let links = self.paths.iter().flat_map(|path| [path.up.next_at(), path.down.next_at()]);
        links.chain(self.ports.iter().map(|port| port.wake_at)).flatten().min()
    }

    /// Brings datagrams to their ends; answers which ends have something to do at this moment.
    pub(super) fn take_due(&mut self) -> Vec<usize> {
        let (now, inbox_full) = (self.now, &mut self.inbox_full);
        let Some((server, clients)) = self.ports.split_first_mut() else { return Vec::new() };
        for (path, client) in self.paths.iter_mut().zip(clients) {
            for (link, port) in [(&mut path.up, &mut *server), (&mut path.down, client)] {
                while let Some(datagram) = link.poll(now) {
                    *inbox_full += u64::from(!port.take(datagram));
                }
            }
        }
        if self.is_server_dead {
            self.unreachable += server.inbox.len() as u64;
            server.inbox.clear();
        }
        let is_due = |port: &Port| !port.inbox.is_empty() || port.wake_at.is_some_and(|at| at <= now);
        let due: Vec<usize> =
            (0..).zip(&self.ports).filter(|(_, port)| is_due(port)).map(|(at, _)| at).collect();
        for port in &due {
            self.ports[*port].wake_at = None;
        }
        due
    }

    /// Wakes an end when so much time has passed by its own clock, `None` for never.
    pub(super) fn wake_after(&mut self, port: usize, timeout: Option<Duration>) {
        if port == SERVER && self.is_server_dead {
            return;
        }
        let (now, port) = (self.now, &mut self.ports[port]);
        port.wake_at = timeout.and_then(|timeout| port.clock.after(now, timeout));
    }

    pub(super) fn set_clock(&mut self, port: usize, config: &ClockConfig) {
        let is_dead = port == SERVER && self.is_server_dead;
        let (now, port) = (self.now, &mut self.ports[port]);
        port.clock.set(now, config);
        // Whatever it waited for may be due by now, or later.
        port.wake_at = (!is_dead).then_some(now);
    }

    /// What an end takes for the time.
    pub(super) fn clocks_of(&self, port: usize) -> Now {
        self.ports[port].clock.now(self.now)
    }

    /// The oldest datagram in an end's queue.
    pub(super) fn receive(&mut self, port: usize) -> Option<Datagram> {
        let datagram = self.ports[port].inbox.pop_front()?;
        if port == SERVER {
            self.traffic.entry(datagram.from).or_default().received_bytes += datagram.bytes.len() as u64;
        }
        Some(datagram)
    }

    /// Puts a datagram into the queue of whoever it is for, past all links; false when that is nobody.
    pub(super) fn inject(&mut self, datagram: Datagram) -> bool {
        let Some(port) = self.ports.iter_mut().find(|port| port.address == datagram.to) else { return false };
        self.injected += 1;
        self.inbox_full += u64::from(!port.take(datagram));
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
        if port == SERVER && self.is_server_dead {
            return;
        }
        self.note(port, datagram);
        let (now, from, server) = (self.now, self.ports[port].address, self.ports[SERVER].address);
        if let Some(to) = to.filter(|_| port == SERVER) {
            self.traffic.entry(to).or_default().sent_bytes += datagram.len() as u64;
        }
        if let Some(seen) = &mut self.seen {
            seen.push(Datagram { from, to: to.unwrap_or(server), bytes: datagram.to_vec() });
        }
        let client = match (port.checked_sub(1), to) {
            (Some(client), _) => Some(client),
            (None, Some(to)) => self.by_address.get(&to).copied(),
            (None, None) => None,
        };
        let Some(path) = client.and_then(|client| self.paths.get_mut(client)) else {
            self.unreachable += 1;
            return;
        };
        match to.filter(|_| port == SERVER) {
            Some(to) => path.down.push(now, from, to, datagram),
            None => path.up.push(now, from, server, datagram),
        }
    }

    pub(super) fn counts(&self) -> WorldCounts {
        let waiting = self.ports.iter().map(|port| port.inbox.len() as u64).sum();
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

impl Port {
    fn new(address: SocketAddr) -> Self {
        Self { address, inbox: VecDeque::new(), clock: Clockwork::right(), wake_at: None }
    }

    /// Puts a datagram into the queue; false when it is full.
    fn take(&mut self, datagram: Datagram) -> bool {
        let has_room = self.inbox.len() < INBOX_DATAGRAMS;
        if has_room {
            self.inbox.push_back(datagram);
        }
        has_room
    }
}

/// Mixes a word into a hash, so that its place among the others matters.
const fn fold(hash: u64, word: u64) -> u64 {
    let mixed = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1))
    }

    #[test]
    fn a_receive_queue_takes_what_it_holds_and_counts_the_rest() {
        let mut network = Network::new(address(1), 0);
        let port = network.join(address(2));
        for _ in 0..=INBOX_DATAGRAMS {
            network.send(port, None, b"x");
        }
        assert_eq!(network.take_due(), [SERVER]);
        let counts = network.counts();
        assert_eq!((counts.waiting, counts.inbox_full), (INBOX_DATAGRAMS as u64, 1));
        assert_eq!(network.receive(SERVER).unwrap().from, address(2));
    }

    #[test]
    fn what_is_injected_arrives_at_once_whoever_it_claims_to_be_from_and_all_that_is_sent_is_seen() {
        let mut network = Network::new(address(1), 0);
        let port = network.join(address(2));
        assert!(network.take_seen().is_empty());
        let datagram = |from, to| Datagram { from: address(from), to: address(to), bytes: vec![7; 9] };
        assert!(network.inject(datagram(9, 1)) && network.inject(datagram(1, 2)));
        assert!(!network.inject(datagram(1, 3)), "nobody is there");
        assert_eq!(network.take_due(), [SERVER, port]);
        assert_eq!(network.receive(SERVER), Some(datagram(9, 1)));
        network.send(SERVER, Some(address(9)), b"who?");
        assert_eq!(network.counts().injected, 2);
        let traffic: Vec<_> = network.traffic().collect();
        assert_eq!(traffic, [(address(9), Traffic { received_bytes: 9, sent_bytes: 4 })]);
        let seen = network.take_seen();
        assert_eq!((seen.len(), seen[0].to, &seen[0].bytes[..]), (1, address(9), b"who?".as_slice()));
    }

    #[test]
    fn what_nobody_has_is_unreachable() {
        let mut network = Network::new(address(1), 0);
        let port = network.join(address(2));
        network.rebind(0, address(3));
        network.send(SERVER, Some(address(2)), b"x");
        assert_eq!(network.counts().unreachable, 1);
        network.send(SERVER, Some(address(3)), b"x");
        assert_eq!(network.take_due(), [port]);
    }

    #[test]
    fn the_trace_tells_time_end_content_and_order_apart() {
        let trace = |nanos, sends: [(usize, &[u8]); 2]| {
            let mut network = Network::new(address(1), 0);
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
