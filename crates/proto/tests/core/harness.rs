//! Two endpoints and the network between them, all from one seed.
//!
//! It makes no protocol decisions. Tests inspect its records.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    ChannelId, ClientConfig, CloseReason, Config, ConnectError, Endpoint, Event, FlightRecord, Inbound,
    LocalAddress, Message, Moment, Now, Outcome, PeerId, PlayerId, ReceiptId, Route, Secret, SendError,
    SendOptions, ServerConfig, ServerIdentity, ServerKeyPair, Transmit,
};
pub(crate) use drumfire_puppet::Random;

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

/// The first byte of a Refuse.
pub(crate) const REFUSE_KIND: u8 = 0x8b;

/// The faults of the network, in percent of the datagrams in both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    pub(crate) corrupt: u64,
    pub(crate) delay: Duration,
    /// The maximum additional delay, chosen for each datagram, so that datagrams overtake each other.
    pub(crate) jitter: Duration,
}

pub(crate) const CLEAN: Link =
    Link { loss: 0, duplicate: 0, corrupt: 0, delay: Duration::from_millis(10), jitter: Duration::ZERO };

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Seen {
    Connected,
    ConnectFailed(ConnectError),
    Message(u16, Vec<u8>),
    Receipt(u64, Outcome),
    /// This many messages on this channel.
    Skipped(u16, u32),
    Writable,
    Disconnected(CloseReason, Vec<u8>),
}

/// A datagram in flight.
#[derive(Debug, Clone)]
pub(crate) struct InFlightDatagram {
    pub(crate) from: SocketAddr,
    pub(crate) to: usize,
    pub(crate) bytes: Vec<u8>,
}

/// The memory of a connection for sending, and for receiving, in bytes. It is less than the default, so that tests fill it
/// faster. Limits hold for any memory.
pub(crate) const MEMORY_BYTES: usize = 256 * 1_024;

/// Returns the settings of most tests.
pub(crate) fn config() -> Config {
    Config::default().memory_bytes(MEMORY_BYTES, MEMORY_BYTES).flight_recorder(true)
}

pub(crate) struct World {
    pub(crate) now: Moment,
    /// The present address of the client.
    pub(crate) client_address: SocketAddr,
    /// The time since the Unix epoch at the origin of `now`.
    pub(crate) wall: Duration,
    pub(crate) ends: [Endpoint; 2],
    pub(crate) link: Link,
    pub(crate) random: Random,
    /// Datagrams in flight, by arrival time and order of sending.
    pub(crate) in_flight: BTreeMap<(Moment, u64), InFlightDatagram>,
    pub(crate) seen: [Vec<(Moment, PeerId, Seen)>; 2],
    /// Flight records: the end, the number of events before it, and the record.
    pub(crate) records: [Vec<(PeerId, usize, FlightRecord)>; 2],
    /// The players that the server reported, with their data.
    pub(crate) players: Vec<(PlayerId, Vec<u8>)>,
    /// The application hellos that came with `Connected`.
    pub(crate) hellos: [Vec<Vec<u8>>; 2],
    /// The new addresses of peers that the server reported.
    pub(crate) moves: Vec<(PeerId, SocketAddr)>,
    /// Whether the applications take their events.
    pub(crate) takes_events: bool,
    /// Datagrams to addresses that belong to neither end.
    pub(crate) stray: Vec<(SocketAddr, Vec<u8>)>,
    /// The local address at which datagrams to the server arrive.
    pub(crate) server_local: LocalAddress,
    /// The local addresses from which each end sent.
    pub(crate) left_from: [Vec<LocalAddress>; 2],
    /// The largest datagram that each end's operating system sends. Without it, paths are not probed.
    pub(crate) carries: [Option<usize>; 2],
    /// The destination to which no operating system can send.
    pub(crate) unreachable: Vec<SocketAddr>,
    /// The lengths of the datagrams that the operating systems refused, oldest first.
    pub(crate) refused: Vec<usize>,
    /// Every datagram sent: time, sender, contents.
    pub(crate) sent: Vec<(Moment, usize, Vec<u8>)>,
    sequence: u64,
}

pub(crate) fn address(end: usize) -> SocketAddr {
    ["192.0.2.1:5000", "198.51.100.1:7777"][end].parse().unwrap()
}

pub(crate) fn server_keys() -> ServerKeyPair {
    ServerKeyPair::from_secret(Secret::new([0x5e; 32]))
}

pub(crate) fn identity() -> ServerIdentity {
    ServerIdentity { public_key: *server_keys().public(), key_id: 0 }
}

pub(crate) fn server_config() -> ServerConfig {
    ServerConfig::new(server_keys(), Secret::new([0x0e; 32]), Secret::new([0x0c; 32]))
}

fn seed(seed: u64, end: usize) -> Secret<32> {
    let mut random = Random(seed ^ (end as u64) << 60);
    Secret::new(std::array::from_fn(|_| random.bits().to_le_bytes()[0]))
}

impl World {
    pub(crate) fn new(number: u64, link: Link) -> Self {
        Self::with(number, link, config(), ClientConfig::default())
    }

    pub(crate) fn with(number: u64, link: Link, config: Config, client: ClientConfig) -> Self {
        let client = Endpoint::client(config.clone(), client, seed(number, CLIENT)).unwrap();
        let server = Endpoint::server(
            config,
            server_config(),
            drumfire_proto::SingleWorker::default(),
            seed(number, SERVER),
        )
        .unwrap();
        Self {
            now: Moment::from_nanos(1_000_000_000),
            client_address: address(CLIENT),
            wall: Duration::ZERO,
            players: Vec::new(),
            hellos: [Vec::new(), Vec::new()],
            moves: Vec::new(),
            takes_events: true,
            stray: Vec::new(),
            ends: [client, server],
            link,
            random: Random(number),
            in_flight: BTreeMap::new(),
            seen: [Vec::new(), Vec::new()],
            records: [Vec::new(), Vec::new()],
            server_local: LocalAddress::ANY,
            left_from: [Vec::new(), Vec::new()],
            carries: [None; 2],
            unreachable: Vec::new(),
            refused: Vec::new(),
            sent: Vec::new(),
            sequence: 0,
        }
    }

    fn address_of(&self, end: usize) -> SocketAddr {
        if end == CLIENT { self.client_address } else { address(end) }
    }

    /// Restarts the server, which keeps only its keys.
    pub(crate) fn restart_server(&mut self) {
        let seed = Secret::new([0x77; 32]);
        self.ends[SERVER] = Endpoint::server(
            Config::default(),
            server_config(),
            drumfire_proto::SingleWorker::default(),
            seed,
        )
        .unwrap();
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic: self.now, wall: self.wall + self.now.since(Moment::from_nanos(1_000_000_000)) }
    }

    pub(crate) fn connect(&mut self) -> PeerId {
        let now = self.now();
        self.ends[CLIENT].connect(now, address(SERVER), &identity(), None).unwrap()
    }

    /// Connects over a clean link. Returns the ids on the client and on the server.
    pub(crate) fn connected(&mut self) -> (PeerId, PeerId) {
        let link = std::mem::replace(&mut self.link, CLEAN);
        let client = self.connect();
        self.run(Duration::from_millis(500));
        self.link = link;
        let server = self.peers(SERVER).last().copied().expect("the server is connected");
        assert!(self.peers(CLIENT).contains(&client));
        (client, server)
    }

    /// The peers that connected on this end.
    pub(crate) fn peers(&self, end: usize) -> Vec<PeerId> {
        let connected = self.seen[end].iter().filter(|(_, _, seen)| *seen == Seen::Connected);
        connected.map(|(_, peer, _)| *peer).collect()
    }

    pub(crate) fn send(
        &mut self,
        end: usize,
        peer: PeerId,
        channel: u16,
        bytes: &[u8],
        options: SendOptions,
    ) -> Result<(), SendError> {
        let now = self.now();
        let message = Message::new(ChannelId(channel), Bytes::copy_from_slice(bytes), options);
        self.ends[end].send(now, peer, message)
    }

    /// [`Self::send`] with a receipt of this number.
    pub(crate) fn send_with_receipt(
        &mut self,
        end: usize,
        peer: PeerId,
        bytes: &[u8],
        options: SendOptions,
        receipt: u64,
    ) -> Result<(), SendError> {
        let message = Message::new(ChannelId(1), Bytes::copy_from_slice(bytes), options);
        let (now, receipt) = (self.now(), NonZeroU64::new(receipt).map(ReceiptId));
        self.ends[end].send_with_receipt(now, peer, message, receipt)
    }

    /// The receipts that one end received, in order.
    pub(crate) fn receipts(&self, end: usize) -> Vec<(u64, Outcome)> {
        let receipts = self.seen[end].iter().filter_map(|(_, _, seen)| match seen {
            Seen::Receipt(receipt, outcome) => Some((*receipt, *outcome)),
            _ => None,
        });
        receipts.collect()
    }

    pub(crate) fn reliable(&mut self, end: usize, peer: PeerId, bytes: &[u8]) -> Result<(), SendError> {
        self.send(end, peer, 0, bytes, SendOptions::reliable_ordered())
    }

    pub(crate) fn messages(&self, end: usize) -> Vec<(u16, Vec<u8>)> {
        let messages = self.seen[end].iter().filter_map(|(_, _, seen)| match seen {
            Seen::Message(channel, bytes) => Some((*channel, bytes.clone())),
            _ => None,
        });
        messages.collect()
    }

    /// The last event of one end, and its time.
    pub(crate) fn last(&self, end: usize) -> Option<&(Moment, PeerId, Seen)> {
        self.seen[end].last()
    }

    /// Runs for this long.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now.after(duration);
        loop {
            self.flush();
            let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
            let timers = self.ends.each_mut().map(Endpoint::poll_timeout);
            let next = [arrival, timers[0], timers[1]].into_iter().flatten().min();
            match next {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => break,
            }
            self.wake();
        }
        self.now = end;
    }

    /// Delivers the datagrams that have arrived, and handles timeouts.
    fn wake(&mut self) {
        let mut arrived: [Vec<InFlightDatagram>; 2] = [Vec::new(), Vec::new()];
        while let Some(entry) = self.in_flight.first_entry()
            && entry.key().0 <= self.now
        {
            let datagram = entry.remove();
            arrived[datagram.to].push(datagram);
        }
        let now = self.now();
        let locals = [LocalAddress::ANY, self.server_local];
        for ((end, datagrams), local) in self.ends.iter_mut().zip(&mut arrived).zip(locals) {
            let batch = datagrams.iter_mut().map(|datagram| Inbound {
                from: Route { peer: datagram.from, local },
                bytes: &mut datagram.bytes,
            });
            end.handle_datagrams(now, batch);
            end.handle_timeout(now);
        }
    }

    /// Takes all datagrams and events of both ends.
    pub(crate) fn flush(&mut self) {
        for end in [CLIENT, SERVER] {
            self.flush_end(end);
        }
    }

    fn flush_end(&mut self, end: usize) {
        let (now, mut memory) = (self.now(), [0; 1_472]);
        let room = if self.carries[end].is_some() { 1_472 } else { 1_200 };
        while let Some(transmit) = self.ends[end].poll_transmit(now, &mut memory[..room]) {
            if self.refuses(end, &transmit) {
                continue;
            }
            self.left_from[end].push(transmit.to.local);
            if transmit.to.peer != self.address_of(1 - end) {
                self.stray.push((transmit.to.peer, memory[..transmit.bytes].to_vec()));
                continue;
            }
            self.sent.push((self.now, end, memory[..transmit.bytes].to_vec()));
            self.transmit(end, &memory[..transmit.bytes]);
        }
        assert!(self.ends[end].poll_forward().is_none());
        while self.takes_events
            && let Some(event) = self.ends[end].poll_event()
        {
            let (peer, seen) = match event {
                Event::Connected { peer, player, user_data, hello, .. } => {
                    self.hellos[end].push(hello.to_vec());
                    self.players.extend(player.map(|player| (player, user_data.to_vec())));
                    (peer, Seen::Connected)
                }
                Event::ConnectFailed { peer, error } => (peer, Seen::ConnectFailed(error.clone())),
                Event::Message { peer, channel, payload } => {
                    (peer, Seen::Message(channel.0, payload.to_vec()))
                }
                Event::Receipt { peer, receipt, outcome } => (peer, Seen::Receipt(receipt.0.get(), outcome)),
                Event::Skipped { peer, channel, count } => (peer, Seen::Skipped(channel.0, count)),
                Event::Writable { peer } => (peer, Seen::Writable),
                Event::Disconnected { peer, reason, text } => {
                    (peer, Seen::Disconnected(reason, text.to_vec()))
                }
                Event::PathChanged { peer, address } => {
                    self.moves.push((peer, address));
                    continue;
                }
                Event::FlightRecord { peer, record } => {
                    let before = self.seen[end].len();
                    self.records[end].push((peer, before, record.clone()));
                    continue;
                }
                other => panic!("{other:?}"),
            };
            self.seen[end].push((self.now, peer, seen));
        }
        assert_eq!(self.ends[end].stats().unexplained(), 0, "every datagram of end {end} is counted once");
    }

    /// Whether the operating system refuses this datagram, in which case the endpoint was notified.
    fn refuses(&mut self, end: usize, transmit: &Transmit) -> bool {
        let now = self.now();
        let is_unreachable = self.unreachable.contains(&transmit.to.peer);
        let is_too_large = self.carries[end].is_some_and(|most| transmit.bytes > most);
        if is_unreachable || is_too_large {
            self.refused.push(transmit.bytes);
            let peer = transmit.peer.expect("it is of a connection");
            if is_unreachable {
                self.ends[end].handle_unreachable(now, peer, Some(transmit.to));
            } else {
                self.ends[end].handle_too_large(now, peer, transmit.bytes);
            }
        }
        is_unreachable || is_too_large
    }

    /// Puts a datagram on the link, with the faults of the link.
    fn transmit(&mut self, from: usize, bytes: &[u8]) {
        let copies = if self.random.happens(self.link.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.happens(self.link.loss) {
                continue;
            }
            let mut bytes = bytes.to_vec();
            if self.random.happens(self.link.corrupt) {
                let bit = self.random.below(8 * bytes.len() as u64) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let jitter = self.link.jitter.as_nanos() as u64;
            let late = if jitter == 0 { 0 } else { self.random.below(jitter) };
            let at = self.now.after(self.link.delay + Duration::from_nanos(late));
            self.inject(at, InFlightDatagram { from: self.address_of(from), to: 1 - from, bytes });
        }
    }

    /// Puts a datagram on the link that arrives at this time, from any sender.
    pub(crate) fn inject(&mut self, at: Moment, datagram: InFlightDatagram) {
        self.sequence += 1;
        self.in_flight.insert((at, self.sequence), datagram);
    }

    /// Passes a datagram to an end immediately.
    pub(crate) fn deliver(&mut self, end: usize, from: SocketAddr, bytes: &[u8]) {
        let (now, mut bytes) = (self.now(), bytes.to_vec());
        let local = if end == SERVER { self.server_local } else { LocalAddress::ANY };
        self.ends[end]
            .handle_datagrams(now, [Inbound { from: Route { peer: from, local }, bytes: &mut bytes }]);
    }
}
