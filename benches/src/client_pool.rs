//! Connections of drumfire over a few sockets, all on the calling thread.
//!
//! They are made of the connection core and plain sockets without a poll. Attempts are begun at a rate that servers accept, and counted
//! by their outcome.

use std::collections::BTreeMap;
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
    ended: u64,
    messages: u64,
    /// The number of attempts so far. Attempts use the sockets in turn.
    begun: usize,
}

/// The outcome of attempts to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOutcomes {
    /// The time from the first attempt to the last outcome.
    pub took: Duration,
    /// The number of connections made.
    pub connected: u64,
    /// The number of failed attempts by reason.
    pub failed: BTreeMap<String, u64>,
}

impl ConnectOutcomes {
    /// The number of failed attempts.
    pub fn failed_count(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Fails if an attempt failed.
    pub fn check(&self) -> Result<(), String> {
        let failed = self.failed_count();
        if failed == 0 { Ok(()) } else { Err(format!("{failed} connects failed: {:?}", self.failed)) }
    }

    /// The number of attempts that have an outcome.
    fn ended(&self) -> u64 {
        self.connected + self.failed_count()
    }

    /// Counts an event if it is an outcome. Returns whether it is one.
    fn count(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::Connected { .. } => self.connected += 1,
            Event::ConnectFailed { error, .. } => *self.failed.entry(reason(error)).or_default() += 1,
            _ => return false,
        }
        true
    }
}

impl ClientPool {
    /// Connects this number of sockets, for this number of connections over all of them.
    pub fn bind(settings: ClientSettings, sockets: u32, connections: u32) -> Result<Self, String> {
        let socket = |_| ClientSocket::connect(&settings, connections.div_ceil(sockets));
        let sockets = (0..sockets).map(socket).collect::<Result<_, _>>()?;
        Ok(Self { settings, sockets, peers: Vec::new(), ended: 0, messages: 0, begun: 0 })
    }

    /// Begins to connect this number of times over one socket.
    pub fn on_one_socket(settings: &ClientSettings, connections: usize) -> Result<Self, String> {
        let count = u32::try_from(connections).map_err(|_| "too many connections")?;
        let mut pool = Self::bind(settings.clone(), 1, count)?;
        pool.begin(count.into())?;
        pool.flush(clock::host_ns())?;
        Ok(pool)
    }

    /// The number of connections that were made.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// The number of sockets.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// The number of connections that ended after they were made.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// The number of messages that [`Self::poll`] and [`Self::poll_socket`] passed on.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Makes further connections at [`RAMP_PER_SECOND`]. Fails if an attempt fails.
    pub fn connect_all(&mut self, count: u32) -> Result<(), String> {
        self.connect(count.into(), RAMP_PER_SECOND, |_, _| {})?.check()
    }

    /// Makes further connections at this rate, each on the next socket. `heard` receives the events of established connections.
    pub fn connect(
        &mut self,
        count: u64,
        per_second: u64,
        heard: impl FnMut(usize, &Event<'_>),
    ) -> Result<ConnectOutcomes, String> {
        let rest = |came: bool| {
            if !came {
                clock::pause(REST);
            }
            Ok(())
        };
        self.connect_while(count, per_second, heard, rest)
    }

    /// As [`Self::connect`]. `between` is called between two polls. Its argument says whether the last poll found something.
    pub fn connect_while(
        &mut self,
        count: u64,
        per_second: u64,
        mut heard: impl FnMut(usize, &Event<'_>),
        mut between: impl FnMut(bool) -> Result<(), String>,
    ) -> Result<ConnectOutcomes, String> {
        let start = clock::now();
        let deadline = start + Duration::from_secs(count / per_second.max(1)) + PATIENCE;
        let (mut begun, mut outcomes) = (0, ConnectOutcomes::default());
        while outcomes.ended() < count {
            let due = due(start, per_second).min(count).min(outcomes.ended() + CONNECTING_MAX);
            self.begin(due.saturating_sub(begun))?;
            begun = begun.max(due);
            let came = self.poll(|index, event| {
                if !outcomes.count(event) {
                    heard(index, event);
                }
            });
            if clock::now() > deadline {
                return Err(format!("{} of {count} attempts came to an end in time", outcomes.ended()));
            }
            between(came)?;
        }
        outcomes.took = clock::now().duration_since(start);
        Ok(outcomes)
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

    /// Polls all sockets and passes on their events. Returns whether there was an event.
    pub fn poll(&mut self, mut heard: impl FnMut(usize, &Event<'_>)) -> bool {
        let mut came = false;
        for index in 0..self.sockets.len() {
            came |= self.poll_socket(index, |event| heard(index, event));
        }
        came
    }

    /// Polls one socket, passes on its events, and sends what its connections have queued. Returns whether there was an event.
    pub fn poll_socket(&mut self, index: usize, mut heard: impl FnMut(&Event<'_>)) -> bool {
        let (now, mut came) = (now(), false);
        self.receive_at(index, now, |_, event| {
            came = true;
            heard(event);
        });
        // A server that has ended refuses datagrams.
        let _ = self.sockets[index].flush(now);
        came
    }

    /// Receives at one socket, and passes on its events. A message has the index of its connection.
    fn receive_at(&mut self, index: usize, now: Now, mut heard: impl FnMut(usize, &Event<'_>)) {
        let Self { sockets, peers, ended, messages, .. } = self;
        let socket = &mut sockets[index];
        socket.receive(now);
        while let Some(event) = socket.endpoint.poll_event() {
            let mut place = usize::MAX;
            match &event {
                Event::Connected { peer, .. } => note_place(&mut socket.places, peers, (index, *peer)),
                Event::Disconnected { .. } => *ended += 1,
                Event::Message { peer, .. } => {
                    *messages += 1;
                    place = socket.places.get(peer.slot() as usize).copied().unwrap_or(usize::MAX);
                }
                _ => {}
            }
            heard(place, &event);
        }
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
            self.poll(|_, _| {});
            if self.received_in_all() == before {
                return before;
            }
        }
    }

    /// The counters of all sockets since they were bound.
    pub fn counters(&self) -> SocketCounters {
        (0..self.sockets.len())
            .map(|index| self.counters_of(index))
            .fold(SocketCounters::default(), SocketCounters::plus)
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
        let (socket, peer) = self.peers[connection];
        let channel = ChannelId(channel.into());
        let is_reliable = self.settings.reliable_channel == Some(channel);
        let options = if is_reliable { SendOptions::reliable_ordered() } else { self.settings.options };
        let message = Message::new(channel, Bytes::copy_from_slice(message), options);
        match self.sockets[socket].endpoint.send(at(now), peer, message) {
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
pub fn close_server(server: Child, pools: &mut [&mut ClientPool]) -> Result<Counts, String> {
    settle();
    let sent = pools.iter().map(|pool| pool.counters().sent).sum();
    let served = server.finish_counts()?;
    close_books(sent, &served, None)?;
    settle();
    let received = pools.iter_mut().map(|pool| pool.drain()).sum();
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

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received: self.received + other.received,
            received_bytes: self.received_bytes + other.received_bytes,
        }
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
