//! Connections of drumfire over a few sockets, all on the calling thread.
//!
//! They are made of the connection core and plain sockets without a poll. Attempts are begun at a rate that servers accept, and counted
//! by their outcome.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drumfire::stats::WorkerStats;
use drumfire::{Bytes, ChannelId, ConnectError, Message, SendError, SendOptions, ServerPublicKey};
use drumfire_crypto::{Secret, Suite};
use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    ClientConfig, Config, Endpoint, Event, Inbound, Moment, Now, PeerId, ServerIdentity, SingleWorker,
};
use drumfire_tools::clock;

use crate::batch_socket::BatchSocket;
use crate::books::{close_books, close_way_back};
use crate::process::{Child, Counts};
use crate::roles::settle;
use crate::traffic::Client;

/// Attempts in progress at a time. A server keeps 4,096 half-open connections.
const CONNECTING_MAX: u64 = 1_024;

/// Connections that clients begin per second where their number is not the subject. A server accepts 2,000.
pub const RAMP_PER_SECOND: u64 = 1_600;

/// The time that a ramp may take in addition to its schedule.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause after a poll that found nothing.
const REST: Duration = Duration::from_micros(500);

/// How clients connect and send.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The address and the key of the server.
    pub to: (SocketAddr, ServerPublicKey),
    /// The settings of the connection core.
    pub config: Config,
    /// How messages are sent.
    pub options: SendOptions,
    /// The channel whose messages are reliable and ordered, whatever the options.
    pub reliable_channel: Option<ChannelId>,
    /// Datagrams that a socket receives or sends in one pass, for each of [`crate::PER_SOCKET`] connections.
    pub each: usize,
}

impl ClientSettings {
    /// Unreliable messages, sealed with the strongest suite of this machine.
    pub fn new(to: (SocketAddr, ServerPublicKey)) -> Self {
        let config = Config::default().has_aes_gcm(Suite::Aes128Gcm.is_offered());
        Self { to, config, options: SendOptions::unreliable(), reliable_channel: None, each: 16 }
    }

    /// Offers this suite as the strongest. Fails when this machine does not support it.
    pub fn with_suite(self, suite: Suite) -> Result<Self, String> {
        if !suite.is_offered() && suite == Suite::Aes128Gcm {
            return Err("this machine has no instructions for AES".to_owned());
        }
        Ok(Self { config: self.config.has_aes_gcm(suite == Suite::Aes128Gcm), ..self })
    }
}

/// A socket with the connections that share it.
struct ClientSocket {
    wire: BatchSocket,
    endpoint: Endpoint<SingleWorker>,
    /// The index of each connection in [`ClientPool::peers`], by its slot at the endpoint.
    places: Vec<usize>,
    /// Room for one datagram on its way out.
    memory: Box<[u8; DATAGRAM_SENT_MAX_BYTES]>,
}

impl ClientSocket {
    fn connect(settings: &ClientSettings, connections: u32) -> Result<Self, String> {
        let server = settings.to.0;
        let wire = if connections == 1 {
            BatchSocket::connect_for_trains(server, settings.each)?
        } else {
            BatchSocket::connect_to_receive_trains(server, settings.each)?
        };
        let config = settings.config.clone().connections(connections);
        let endpoint = Endpoint::client(config, ClientConfig::many(), seed());
        let endpoint = endpoint.map_err(|error| format!("a client: {error}"))?;
        Ok(Self { wire, endpoint, places: Vec::new(), memory: Box::new([0; DATAGRAM_SENT_MAX_BYTES]) })
    }

    /// Passes what came to the endpoint, and runs its timers.
    fn receive(&mut self, now: Now) {
        let Self { wire, endpoint, .. } = self;
        wire.receive(|mut received| {
            let datagrams = received.datagrams_mut();
            let inbound =
                datagrams.map(|datagram| Inbound { from: datagram.from.into(), bytes: datagram.bytes });
            endpoint.handle_datagrams(now, inbound);
        });
        if endpoint.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            endpoint.handle_timeout(now);
        }
    }

    fn flush(&mut self, now: Now) -> Result<(), String> {
        let Self { wire, endpoint, memory, .. } = self;
        while let Some(transmit) = endpoint.poll_transmit(now, &mut memory[..]) {
            while !wire.push(&memory[..transmit.bytes]) {
                wire.flush()?;
            }
        }
        wire.flush()
    }
}

/// Connections to one server over a few sockets.
pub struct ClientPool {
    settings: ClientSettings,
    sockets: Vec<ClientSocket>,
    /// The connections: the index of the socket, and the handle of the server at this socket.
    peers: Vec<(usize, PeerId)>,
    /// The number of failed attempts by reason.
    failed: BTreeMap<String, u64>,
    ended: u64,
    /// The number of attempts so far. Attempts use the sockets in turn.
    begun: usize,
}

impl ClientPool {
    /// Connects this number of sockets, for this number of connections over all of them.
    pub fn bind(settings: ClientSettings, sockets: u32, connections: u32) -> Result<Self, String> {
        let socket = |_| ClientSocket::connect(&settings, connections.div_ceil(sockets));
        let sockets = (0..sockets).map(socket).collect::<Result<_, _>>()?;
        Ok(Self { settings, sockets, peers: Vec::new(), failed: BTreeMap::new(), ended: 0, begun: 0 })
    }

    /// Begins to connect this number of times over one socket.
    pub fn on_one_socket(settings: &ClientSettings, connections: usize) -> Result<Self, String> {
        let count = u32::try_from(connections).map_err(|_| "too many connections")?;
        let mut pool = Self::bind(settings.clone(), 1, count)?;
        pool.begin(count.into())?;
        pool.flush(clock::host_ns())?;
        Ok(pool)
    }

    /// The number of failed attempts by reason.
    pub fn failed(&self) -> &BTreeMap<String, u64> {
        &self.failed
    }

    /// The number of connections that ended after they were made.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Makes further connections at [`RAMP_PER_SECOND`]. Fails if an attempt fails.
    pub fn connect_all(&mut self, count: u32) -> Result<(), String> {
        self.connect(count, RAMP_PER_SECOND, |came| {
            if !came {
                clock::pause(REST);
            }
            Ok(())
        })?;
        if self.failed.is_empty() { Ok(()) } else { Err(format!("connects failed: {:?}", self.failed)) }
    }

    /// Makes attempts to connect at this rate, each on the next socket, until each has an outcome. `between` is called between two polls.
    /// Its argument says whether the last poll found something.
    pub fn connect(
        &mut self,
        count: u32,
        per_second: u64,
        mut between: impl FnMut(bool) -> Result<(), String>,
    ) -> Result<(), String> {
        let count = u64::from(count);
        let (start, before) = (clock::now(), self.begun as u64);
        let deadline = start + Duration::from_secs(count / per_second.max(1)) + PATIENCE;
        while self.outcomes() < before + count {
            let due = before + due(start, per_second).min(count);
            self.begin(due.min(self.outcomes() + CONNECTING_MAX).saturating_sub(self.begun as u64))?;
            let came = self.poll();
            if clock::now() > deadline {
                let ended = self.outcomes() - before;
                return Err(format!("{ended} of {count} attempts came to an end in time"));
            }
            between(came)?;
        }
        Ok(())
    }

    /// The number of attempts that came to an end.
    fn outcomes(&self) -> u64 {
        self.peers.len() as u64 + self.failed.values().sum::<u64>()
    }

    /// Begins attempts to connect, each on the next socket.
    fn begin(&mut self, count: u64) -> Result<(), String> {
        let (server, key) = &self.settings.to;
        let identity = ServerIdentity { public_key: key.to_bytes(), key_id: 0 };
        for _ in 0..count {
            let index = self.begun % self.sockets.len();
            let begins = self.sockets[index].endpoint.connect(now(), *server, &identity, None);
            begins.map_err(|error| format!("connection {}: {error}", self.begun))?;
            self.begun += 1;
        }
        Ok(())
    }

    /// Polls all sockets. Returns whether there was an event.
    fn poll(&mut self) -> bool {
        let mut came = false;
        for index in 0..self.sockets.len() {
            came |= self.poll_socket(index);
        }
        came
    }

    /// Polls one socket, and sends what its connections have queued. Returns whether there was an event.
    pub fn poll_socket(&mut self, index: usize) -> bool {
        let (now, mut came) = (now(), false);
        self.receive_at(index, now, |_, _| came = true);
        // A server that has ended refuses datagrams.
        let _ = self.sockets[index].flush(now);
        came
    }

    /// Receives at one socket, and passes on its events. A message has the index of its connection.
    fn receive_at(&mut self, index: usize, now: Now, mut heard: impl FnMut(usize, &Event<'_>)) {
        let Self { sockets, peers, failed, ended, .. } = self;
        let socket = &mut sockets[index];
        socket.receive(now);
        while let Some(event) = socket.endpoint.poll_event() {
            let mut place = usize::MAX;
            match &event {
                Event::Connected { peer, .. } => note_place(&mut socket.places, peers, (index, *peer)),
                Event::ConnectFailed { error, .. } => *failed.entry(reason(error)).or_default() += 1,
                Event::Disconnected { .. } => *ended += 1,
                Event::Message { peer, .. } => {
                    place = socket.places.get(peer.slot() as usize).copied().unwrap_or(usize::MAX);
                }
                _ => {}
            }
            heard(place, &event);
        }
    }

    /// Queues a message on a connection.
    pub(crate) fn try_send(
        &mut self,
        now: u64,
        connection: usize,
        channel: u8,
        message: &[u8],
    ) -> Result<(), SendError> {
        let (socket, peer) = self.peers[connection];
        let channel = ChannelId(channel.into());
        let is_reliable = self.settings.reliable_channel == Some(channel);
        let options = if is_reliable { SendOptions::reliable_ordered() } else { self.settings.options };
        let message = Message::new(channel, Bytes::copy_from_slice(message), options);
        self.sockets[socket].endpoint.send(at(now), peer, message)
    }

    /// The endpoint of the first socket, and the handle of the server at its first connection.
    pub(crate) fn first(&mut self) -> Option<(&mut Endpoint<SingleWorker>, PeerId)> {
        let (socket, peer) = *self.peers.first()?;
        Some((&mut self.sockets[socket].endpoint, peer))
    }

    /// Datagrams that all sockets received, including those that no connection used.
    fn received_in_all(&self) -> u64 {
        let received = self.sockets.iter().map(|socket| socket.wire.stats().received);
        received.map(|received| received.datagrams + received.dropped_total()).sum()
    }

    /// Receives until the sockets are empty, and returns [`Self::received_in_all`].
    fn drain(&mut self) -> u64 {
        loop {
            let before = self.received_in_all();
            self.poll();
            if self.received_in_all() == before {
                return before;
            }
        }
    }

    /// The counters of all sockets since they were bound.
    pub fn counters(&self) -> SocketCounters {
        self.sockets.iter().map(|socket| socket.wire.counters()).sum()
    }

    /// The counters of one socket since it was bound.
    pub fn counters_of(&self, index: usize) -> SocketCounters {
        self.sockets.get(index).map(|socket| socket.wire.counters()).unwrap_or_default()
    }
}

impl Client for ClientPool {
    fn is_ready(&self) -> bool {
        self.peers.len() == self.begun
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        let mut outcome = Ok(());
        for index in 0..self.sockets.len() {
            self.receive_at(index, at(now), |place, event| match event {
                Event::Message { payload, .. } => take(place, payload),
                Event::ConnectFailed { error, .. } => outcome = Err(format!("a client: {error}")),
                Event::Disconnected { reason, .. } => {
                    outcome = Err(format!("a client lost its connection: {}", reason.name()));
                }
                _ => {}
            });
        }
        outcome
    }

    fn send(&mut self, now: u64, connection: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        match self.try_send(now, connection, channel, message) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(format!("a client: {error}")),
        }
    }

    fn flush(&mut self, now: u64) -> Result<(), String> {
        self.sockets.iter_mut().try_for_each(|socket| socket.flush(at(now)))
    }

    fn stats(&self) -> Vec<WorkerStats> {
        let stats = |socket: &ClientSocket| {
            let mut stats = socket.wire.stats();
            stats.protocol = *socket.endpoint.stats();
            stats
        };
        self.sockets.iter().map(stats).collect()
    }
}

/// Notes the index of a new connection.
fn note_place(places: &mut Vec<usize>, peers: &mut Vec<(usize, PeerId)>, (socket, peer): (usize, PeerId)) {
    let slot = peer.slot() as usize;
    places.resize(places.len().max(slot + 1), usize::MAX);
    places[slot] = peers.len();
    peers.push((socket, peer));
}

/// Ends a server and closes the books of both directions with its clients. Returns the counts of the server, which are those after its
/// end.
///
/// Only drops in front of these sockets excuse missing datagrams, because other sockets of the host may overflow all the time.
pub fn close_server(server: Child, pools: &mut [ClientPool]) -> Result<Counts, String> {
    settle();
    let sent = pools.iter().map(|pool| pool.counters().sent).sum();
    let served = server.finish_counts()?;
    close_books(sent, &served, None)?;
    settle();
    let received = pools.iter_mut().map(ClientPool::drain).sum();
    let sockets = pools.iter_mut().flat_map(|pool| &mut pool.sockets);
    let drops = sockets.map(|socket| socket.wire.drops()).sum();
    close_way_back(&served, received, drops)?;
    Ok(served)
}

/// Counters of the datagrams of sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// Datagrams sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

impl SocketCounters {
    /// The difference to an earlier value.
    pub fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            sent_bytes: self.sent_bytes - before.sent_bytes,
            received: self.received - before.received,
            received_bytes: self.received_bytes - before.received_bytes,
        }
    }
}

impl Sum for SocketCounters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            sent: sum.sent + one.sent,
            sent_bytes: sum.sent_bytes + one.sent_bytes,
            received: sum.received + one.received,
            received_bytes: sum.received_bytes + one.received_bytes,
        })
    }
}

/// The number of attempts that are due by now.
fn due(start: Instant, per_second: u64) -> u64 {
    let elapsed = clock::now().duration_since(start).as_micros();
    let due = elapsed.saturating_mul(per_second.into()) / 1_000_000;
    u64::try_from(due).unwrap_or(u64::MAX).saturating_add(1)
}

fn reason(error: &ConnectError) -> String {
    match error {
        ConnectError::Refused(refusal) => format!("refused: {:?}", refusal.reason),
        error => format!("{error:?}"),
    }
}

/// A seed that differs between clients. It protects nothing.
fn seed() -> Secret<32> {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&clock::host_ns().to_be_bytes());
    Secret::new(seed)
}

fn at(nanos: u64) -> Now {
    Now { monotonic: Moment::from_nanos(nanos), wall: Duration::ZERO }
}

fn now() -> Now {
    at(clock::host_ns())
}
