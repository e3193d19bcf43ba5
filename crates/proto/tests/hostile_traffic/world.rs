//! A server endpoint, an honest client, and the network between them, in virtual time. The allocator counts the
//! server's memory.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use drumfire_proto::{
    ChannelId, Claim, ClientConfig, Config, ConfirmDecision, DropReason, Endpoint, Event, HelloHash, Inbound,
    Message, Moment, Now, PeerId, Placement, PlacementDecision, RefuseReason, Rejection, Secret,
    ServerConfig, ServerIdentity, ServerKeyPair, SingleWorker,
};
use drumfire_puppet::Random;

use crate::cost::counted_packet;

/// The delay between the honest client and the server, each way.
pub(crate) const DELAY: Duration = Duration::from_millis(10);

/// Turns without time passing after which an endpoint counts as stuck.
const TURNS_MAX: u32 = 10_000;

pub(crate) fn server_address() -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 1], 7_777))
}

fn server_keys() -> ServerKeyPair {
    ServerKeyPair::from_secret(Secret::new([0x5e; 32]))
}

pub(crate) fn server_key() -> [u8; 32] {
    *server_keys().public()
}

/// The shell of an application that refuses some sources, and counts the questions.
#[derive(Debug, Default)]
pub(crate) struct SourceFilter {
    alone: SingleWorker,
    /// The source that is refused.
    refused: Option<IpAddr>,
    /// Questions about Hellos from that source, which the world reads.
    question_count: Arc<AtomicU64>,
}

impl SourceFilter {
    /// An application that refuses this source, and accepts all others.
    pub(crate) fn refusing(refused: Option<IpAddr>) -> Self {
        Self { refused, ..Self::default() }
    }
}

impl Placement for SourceFilter {
    fn place(&mut self, now: Now, claim: &Claim<'_>) -> PlacementDecision {
        if Some(claim.address.ip()) != self.refused {
            return self.alone.place(now, claim);
        }
        self.question_count.fetch_add(1, Ordering::Relaxed);
        PlacementDecision::Rejected(Rejection {
            counted_as: DropReason::Declined,
            reason: RefuseReason::Banned,
            retry_after: None,
            address: None,
        })
    }

    fn take(&mut self, hello: HelloHash) -> bool {
        self.alone.take(hello)
    }

    fn confirm(&mut self, now: Now, hello: HelloHash) -> ConfirmDecision {
        self.alone.confirm(now, hello)
    }

    fn release(&mut self, hello: HelloHash) {
        self.alone.release(hello);
    }
}

/// A datagram in flight to or from an honest client.
#[derive(Debug)]
struct InFlightDatagram {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// A client that follows the rules.
#[derive(Debug)]
pub(crate) struct Honest {
    endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    pub(crate) peer: PeerId,
    pub(crate) connected_at: Option<Moment>,
    /// Messages that this client sent.
    pub(crate) sent: u64,
    /// When the server sent each message to this client.
    pub(crate) expected: Vec<Moment>,
    pub(crate) received: usize,
}

/// The server, its clients, and the time.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Moment,
    pub(crate) server: Endpoint<SourceFilter>,
    /// Bytes that the server holds.
    pub(crate) held_bytes: i64,
    pub(crate) honest: Vec<Honest>,
    in_flight: BTreeMap<(Moment, u64), InFlightDatagram>,
    sequence: u64,
    /// Datagrams that the server sent to addresses of hostile clients.
    pub(crate) to_hostile: Vec<(SocketAddr, Vec<u8>)>,
    random: Random,
    /// The source that the application refuses, and how often it was asked about it.
    refused: Option<IpAddr>,
    question_count: Arc<AtomicU64>,
    /// The first fault that the honest client noticed.
    pub(crate) noticed: Option<String>,
}

impl World {
    pub(crate) fn new(seed: u64, config: Config, filter: SourceFilter) -> Self {
        let mut random = Random::of_seed(!seed);
        let (refused, question_count) = (filter.refused, Arc::clone(&filter.question_count));
        let server = ServerConfig::new(server_keys(), Secret::new([0x0e; 32]), Secret::new([0x0c; 32]));
        let server = Endpoint::server(config, server, filter, Secret::new(random.secret()));
        Self {
            now: Moment::from_nanos(1_000_000_000),
            server: server.expect("the settings are good"),
            held_bytes: 0,
            honest: Vec::new(),
            in_flight: BTreeMap::new(),
            sequence: 0,
            to_hostile: Vec::new(),
            random,
            refused,
            question_count,
            noticed: None,
        }
    }

    /// Returns the source that the application refuses.
    pub(crate) const fn refused(&self) -> Option<IpAddr> {
        self.refused
    }

    /// Returns how often the application was asked about the source that it refuses.
    pub(crate) fn question_count(&self) -> u64 {
        self.question_count.load(Ordering::Relaxed)
    }

    fn wall(&self) -> Now {
        Now { monotonic: self.now, wall: Duration::from_nanos(self.now.as_nanos()) }
    }

    /// Starts to connect an honest client from its own source. Returns its index.
    pub(crate) fn join(&mut self) -> usize {
        let place = self.honest.len();
        let number = u8::try_from(place).expect("few honest clients");
        let seed = Secret::new(self.random.secret());
        let mut endpoint = Endpoint::client(Config::default(), ClientConfig::default(), seed)
            .expect("the default settings are good");
        let identity = ServerIdentity { public_key: server_key(), key_id: 0 };
        let peer = endpoint.connect(self.wall(), server_address(), &identity, None);
        self.honest.push(Honest {
            endpoint,
            address: SocketAddr::from(([10, 1, number, 1], 5_000)),
            peer: peer.expect("a first connection"),
            connected_at: None,
            sent: 0,
            expected: Vec::new(),
            received: 0,
        });
        self.run_honest(place);
        place
    }

    /// Calls `work` with the server, and takes its datagrams.
    pub(crate) fn at_server<T>(&mut self, work: impl FnOnce(&mut Endpoint<SourceFilter>, Now) -> T) -> T {
        let (now, server) = (self.wall(), &mut self.server);
        let mut result = None;
        let place = &mut result;
        let counted = measure(|| *place = Some(work(server, now)));
        self.held_bytes += counted.bytes_current;
        self.flush_server();
        result.expect("the work was done")
    }

    fn flush_server(&mut self) {
        let mut memory = [0; 1_472];
        for _ in 0..TURNS_MAX {
            let (now, server, mut sent) = (self.wall(), &mut self.server, None);
            let place = &mut sent;
            let counted = measure(|| *place = server.poll_transmit(now, &mut memory));
            self.held_bytes += counted.bytes_current;
            let Some(transmit) = sent else { return };
            let (to, bytes) = (transmit.to.peer, memory[..transmit.bytes].to_vec());
            if self.honest.iter().any(|honest| honest.address == to) {
                self.transmit(server_address(), to, bytes);
            } else {
                self.to_hostile.push((to, bytes));
            }
        }
        panic!("the server sends for ever");
    }

    fn transmit(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.sequence += 1;
        self.in_flight.insert((self.now.after(DELAY), self.sequence), InFlightDatagram { from, to, bytes });
    }

    /// Passes a datagram to the server now.
    pub(crate) fn deliver(&mut self, from: SocketAddr, mut datagram: Vec<u8>) {
        self.at_server(|server, now| {
            server.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut datagram }]);
        });
    }

    /// [`World::hand`] for a packet whose cost is counted.
    pub(crate) fn deliver_counted(&mut self, from: SocketAddr, mut datagram: Vec<u8>) {
        self.at_server(|server, now| {
            let batch = [Inbound { from: from.into(), bytes: &mut datagram }];
            counted_packet(|| server.handle_datagrams(now, batch));
        });
    }

    /// Sends the next message of an honest client.
    pub(crate) fn honest_sends(&mut self, place: usize) {
        let (now, honest) = (self.wall(), &mut self.honest[place]);
        let payload = Bytes::copy_from_slice(&honest.sent.to_be_bytes());
        honest.sent += 1;
        let sent = honest.endpoint.send(now, honest.peer, Message::reliable_ordered(ChannelId(3), payload));
        if let Err(error) = sent {
            self.record_fault(format!("the honest client cannot send: {error}"));
        }
        self.run_honest(place);
    }

    /// Sends the server's next message to an honest client.
    pub(crate) fn server_sends(&mut self, place: usize, peer: PeerId) {
        let number = self.honest[place].expected.len() as u64;
        let payload = Bytes::copy_from_slice(&number.to_be_bytes());
        let moment = self.now;
        self.honest[place].expected.push(moment.after(DELAY));
        let sent = self.at_server(|server, now| {
            server.send(now, peer, Message::reliable_ordered(ChannelId(3), payload))
        });
        if let Err(error) = sent {
            self.record_fault(format!("the server cannot send to the honest client: {error}"));
        }
    }

    pub(crate) fn record_fault(&mut self, what: String) {
        self.noticed.get_or_insert(what);
    }

    /// Lets time pass, from timeout to timeout.
    pub(crate) fn advance(&mut self, duration: Duration) {
        let end = self.now.after(duration);
        for _ in 0..TURNS_MAX * 10 {
            let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
            let timers = self.honest.iter_mut().map(|honest| honest.endpoint.poll_timeout());
            let next = timers.chain([arrival, self.server.poll_timeout()]).flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            self.arrive();
            self.at_server(Endpoint::handle_timeout);
            for place in 0..self.honest.len() {
                self.run_honest(place);
            }
        }
        panic!("the world does not come to rest");
    }

    /// Delivers the datagrams that have arrived.
    fn arrive(&mut self) {
        while let Some(entry) = self.in_flight.first_entry()
            && entry.key().0 <= self.now
        {
            let InFlightDatagram { from, to, mut bytes } = entry.remove();
            if to == server_address() {
                let before = *self.server.stats();
                self.deliver(from, bytes);
                let after = self.server.stats();
                let (before, after) = (before.dropped_count(), after.dropped_count());
                if before != after {
                    self.record_fault("a datagram of the honest client was dropped".to_owned());
                }
                continue;
            }
            let now = self.wall();
            if let Some(honest) = self.honest.iter_mut().find(|honest| honest.address == to) {
                let from = from.into();
                honest.endpoint.handle_datagrams(now, [Inbound { from, bytes: &mut bytes }]);
            }
        }
    }

    /// Lets an honest client handle its timeouts, send, and report what it received.
    fn run_honest(&mut self, place: usize) {
        let (now, mut memory) = (self.wall(), [0; 1_472]);
        let honest = &mut self.honest[place];
        honest.endpoint.handle_timeout(now);
        let (address, mut sent) = (honest.address, Vec::new());
        while let Some(transmit) = honest.endpoint.poll_transmit(now, &mut memory) {
            sent.push(memory[..transmit.bytes].to_vec());
        }
        let mut noticed = None;
        while let Some(event) = honest.endpoint.poll_event() {
            match event {
                Event::Connected { .. } => honest.connected_at = Some(now.monotonic),
                Event::Message { payload, .. } => {
                    let number = honest.received;
                    honest.received += 1;
                    let is_next = payload == (number as u64).to_be_bytes();
                    if !is_next || honest.expected.get(number) != Some(&now.monotonic) {
                        noticed = Some(format!(
                            "the honest client received message {number} late or out of order: {:?} after it was due",
                            honest.expected.get(number).map(|due| now.monotonic.since(*due))
                        ));
                    }
                }
                Event::FlightRecord { .. } => {}
                other => noticed = Some(format!("the honest client heard of {other:?}")),
            }
        }
        for bytes in sent {
            self.transmit(address, server_address(), bytes);
        }
        if let Some(noticed) = noticed {
            self.record_fault(noticed);
        }
    }
}
