//! One server and some clients on loopback. A test steps them together until a condition holds. On the way, the order of the server's
//! events is checked.
//!
//! Nothing here sleeps: a step waits for events, at most for a millisecond.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use drumfire::stats::DropReason;
use drumfire::{Access, Client, ClientConfig, Event, PeerId, Server, ServerConfig, ServerKey, Workers};
use drumfire_socket::ReuseportGroup;

/// The time after which a test gives up on a condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Polls without waiting.
pub(crate) trait Polled {
    /// Returns the events that a poll receives.
    fn polled(&mut self) -> impl Iterator<Item = Event>;
}

impl Polled for Server {
    fn polled(&mut self) -> impl Iterator<Item = Event> {
        self.poll(Duration::ZERO);
        self.events()
    }
}

impl Polled for Client {
    fn polled(&mut self) -> impl Iterator<Item = Event> {
        self.poll(Duration::ZERO);
        self.events()
    }
}

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    /// The events of each client, by its index.
    pub(crate) heard: Vec<Vec<Event>>,
    /// The events of the server. A test may clear them.
    pub(crate) events: Vec<Event>,
    /// The connected peers, in the order in which they connected.
    pub(crate) peers: Vec<PeerId>,
    /// How often each peer connected and disconnected.
    pub(crate) comings: HashMap<PeerId, (u32, u32)>,
}

/// Returns this number of workers, or one where sockets cannot share a port.
pub(crate) fn granted(workers: u16) -> u16 {
    u16::try_from(ReuseportGroup::MAX_SOCKETS).map_or(workers, |most| workers.min(most))
}

/// Returns whether sockets can share a port, so that there can be several workers.
pub(crate) fn shares_ports() -> bool {
    granted(2) == 2
}

/// Limits the workers to what the platform allows.
pub(crate) fn possible(workers: Workers) -> Workers {
    match workers {
        Workers::Count(count) => Workers::Count(granted(count)),
        other => other,
    }
}

pub(crate) fn config(workers: Workers) -> ServerConfig {
    let address = "127.0.0.1:0".parse().expect("an address");
    ServerConfig::new(address, ServerKey::dev(), Access::Open).workers(possible(workers))
}

impl World {
    pub(crate) fn new(config: ServerConfig, clients: usize) -> Self {
        let server = Server::bind(config).expect("a free port on the loopback");
        let mut world = Self {
            server,
            clients: Vec::new(),
            heard: Vec::new(),
            events: Vec::new(),
            peers: Vec::new(),
            comings: HashMap::new(),
        };
        for _ in 0..clients {
            world.join();
        }
        world
    }

    pub(crate) fn join(&mut self) {
        let mut client = Client::new(ClientConfig::default()).expect("a client");
        client.connect((self.server.local_addr(), ServerKey::dev().public())).expect("room");
        self.clients.push(client);
        self.heard.push(Vec::new());
    }

    /// Returns a world in which all clients are connected, on both ends.
    pub(crate) fn connected(config: ServerConfig, clients: usize) -> Self {
        let mut world = Self::new(config, clients);
        world.until("all are connected", |world| {
            world.peers.len() == clients && world.heard.iter().all(|heard| !heard.is_empty())
        });
        assert!(world.heard.iter().all(|heard| matches!(heard[..], [Event::Connected { .. }])));
        world.heard.iter_mut().for_each(Vec::clear);
        world.events.clear();
        world
    }

    pub(crate) fn step(&mut self) {
        self.server.poll(Duration::from_millis(1));
        while let Some(event) = self.server.next_event() {
            self.note(&event);
            self.events.push(event);
        }
        for (client, heard) in self.clients.iter_mut().zip(&mut self.heard) {
            heard.extend(client.polled());
        }
    }

    pub(crate) fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Self) -> bool) {
        let deadline = now() + PATIENCE;
        while !is_true(self) {
            assert!(now() < deadline, "not in time: {what}; {}", self.describe());
            self.step();
        }
    }

    /// Describes what the server dropped, by name, and the last event of each client.
    fn describe(&self) -> String {
        let stats = self.server.control().stats();
        let dropped = DropReason::ALL.into_iter().map(|reason| (reason.name(), stats.dropped(reason)));
        let dropped: Vec<_> = dropped.filter(|(_, count)| *count > 0).collect();
        let last: Vec<_> = self.heard.iter().map(|heard| heard.last()).collect();
        format!("dropped: {dropped:?}; the last event of each client: {last:?}")
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::Connected { peer, .. } => {
                let comings = self.comings.entry(*peer).or_default();
                assert_eq!(*comings, (0, 0), "each peer connects once");
                comings.0 = 1;
                self.peers.push(*peer);
            }
            Event::Message { peer, .. } => {
                assert_eq!(self.comings.get(peer), Some(&(1, 0)), "each message is of a connected peer");
            }
            Event::Disconnected { peer, .. } => {
                let comings = self.comings.get_mut(peer).expect("it was connected");
                assert_eq!(*comings, (1, 0), "each peer disconnects once");
                comings.1 = 1;
                self.peers.retain(|other| other != peer);
            }
            _ => {}
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "conditions on real sockets have deadlines")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
