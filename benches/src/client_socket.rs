//! Connections of drumfire that share a socket, all on the calling thread.
//!
//! They are made of the connection core and a plain socket without a poll. Attempts are begun at a rate that servers accept, and counted
//! by their outcome.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drumfire::stats::WorkerStats;
use drumfire::{Bytes, ChannelId, ConnectError, Message, SendError, SendOptions};
use drumfire_crypto::{Secret, Suite};
use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    ClientConfig, Config, Endpoint, Event, Inbound, Moment, Now, PeerId, ServerIdentity, SingleWorker,
};
use drumfire_socket::{Gro, SendMode};
use drumfire_tools::clock;

use crate::batch_socket::BatchSocket;
use crate::books::{close_books, close_return_path, count};
use crate::client::{Client, client_counts};
use crate::process::{Child, Counts, key};
use crate::roles::settle;

/// Attempts in progress at a time. A server keeps 4,096 half-open connections.
const CONNECTING_MAX: u64 = 1_024;

/// Connections that clients begin per second where their number is not the subject. A server accepts 2,000.
pub(crate) const RAMP_PER_SECOND: u64 = 1_600;

/// The time that a ramp may take in addition to its schedule.
const RAMP_EXTRA: Duration = Duration::from_secs(60);

/// The pause after a poll that found nothing.
const PAUSE: Duration = Duration::from_micros(500);

/// How clients connect and send.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The address of the server.
    pub to: SocketAddr,
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
    pub fn new(to: SocketAddr) -> Self {
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

/// Connections to one server over one socket.
pub struct ClientSocket {
    settings: ClientSettings,
    identity: ServerIdentity,
    wire: BatchSocket,
    endpoint: Endpoint<SingleWorker>,
    /// The handle of the server at each connection.
    peers: Vec<PeerId>,
    /// The index of each connection in `peers`, by its slot at the endpoint.
    places: Vec<usize>,
    /// The number of connections for which there is room.
    connections_max: usize,
    /// The number of attempts so far.
    begun: usize,
    /// The number of failed attempts by reason.
    failed: BTreeMap<String, u64>,
    /// Room for one datagram on its way out.
    memory: Box<[u8; DATAGRAM_SENT_MAX_BYTES]>,
}

impl ClientSocket {
    /// Connects a socket with room for this number of connections.
    pub fn bind(settings: &ClientSettings, connections: usize) -> Result<Self, String> {
        // A train with datagrams of several connections is one that no client sends.
        let mode = if connections == 1 { SendMode::Gso } else { SendMode::Sendmmsg };
        let wire = BatchSocket::connect(settings.to, settings.each, Gro::On, mode)?;
        let count = u32::try_from(connections).map_err(|_| "too many connections")?;
        let config = settings.config.clone().connections(count);
        let endpoint = Endpoint::client(config, ClientConfig::many(), seed());
        Ok(Self {
            settings: settings.clone(),
            identity: ServerIdentity { public_key: key().public().to_bytes(), key_id: 0 },
            wire,
            endpoint: endpoint.map_err(|error| format!("a client: {error}"))?,
            peers: Vec::new(),
            places: Vec::new(),
            connections_max: connections,
            begun: 0,
            failed: BTreeMap::new(),
            memory: Box::new([0; DATAGRAM_SENT_MAX_BYTES]),
        })
    }

    /// Connects sockets with room for this number of connections over all of them.
    pub fn bind_all(
        settings: &ClientSettings,
        connections: usize,
        per_socket: usize,
    ) -> Result<Vec<Self>, String> {
        let begins = (0..connections).step_by(per_socket.max(1));
        begins.map(|begin| Self::bind(settings, per_socket.min(connections - begin))).collect()
    }

    /// Begins to connect this number of times over one socket.
    pub fn connect(settings: &ClientSettings, connections: usize) -> Result<Self, String> {
        let mut socket = Self::bind(settings, connections)?;
        (0..connections).try_for_each(|_| socket.begin())?;
        socket.flush(clock::host_ns())?;
        Ok(socket)
    }

    /// Makes connections over some sockets at `RAMP_PER_SECOND`. Fails if an attempt fails.
    pub fn connect_all(
        settings: &ClientSettings,
        connections: usize,
        per_socket: usize,
    ) -> Result<Vec<Self>, String> {
        let mut sockets = Self::bind_all(settings, connections, per_socket)?;
        Self::attempt(&mut sockets, connections, RAMP_PER_SECOND, |is_active| {
            if !is_active {
                clock::pause(PAUSE);
            }
            Ok(())
        })?;
        let failed = Self::failed(&sockets);
        if failed.is_empty() { Ok(sockets) } else { Err(format!("connects failed: {failed:?}")) }
    }

    /// Makes attempts to connect at this rate until each has an outcome. `between` is called between two polls. Its argument says whether
    /// the last poll found something.
    pub fn attempt(
        sockets: &mut [Self],
        count: usize,
        per_second: u64,
        mut between: impl FnMut(bool) -> Result<(), String>,
    ) -> Result<(), String> {
        let (start, count) = (clock::now(), count as u64);
        let deadline = start + Duration::from_secs(count / per_second.max(1)) + RAMP_EXTRA;
        let (mut begun, mut ended) = (0, 0);
        while ended < count {
            while begun < due(start, per_second).min(count).min(ended + CONNECTING_MAX) {
                let socket = sockets.iter_mut().find(|socket| socket.begun < socket.connections_max);
                socket.ok_or("no room for more connections")?.begin()?;
                begun += 1;
            }
            let is_active = sockets.iter_mut().fold(false, |is_active, socket| socket.poll() | is_active);
            ended = sockets.iter().map(Self::outcomes).sum();
            if clock::now() > deadline {
                return Err(format!("{ended} of {count} attempts ended in time"));
            }
            between(is_active)?;
        }
        Ok(())
    }

    /// The number of failed attempts by reason.
    pub fn failed(sockets: &[Self]) -> BTreeMap<String, u64> {
        let mut failed = BTreeMap::new();
        for (reason, count) in sockets.iter().flat_map(|socket| &socket.failed) {
            *failed.entry(reason.clone()).or_default() += count;
        }
        failed
    }

    /// The number of connections that ended after they were made.
    pub fn ended(&self) -> u64 {
        self.endpoint.stats().connections_closed
    }

    /// The number of datagrams sent.
    pub(crate) fn sent(&self) -> u64 {
        self.wire.sent()
    }

    /// The number of attempts that ended.
    fn outcomes(&self) -> u64 {
        self.peers.len() as u64 + self.failed.values().sum::<u64>()
    }

    /// Begins an attempt to connect.
    fn begin(&mut self) -> Result<(), String> {
        let begins = self.endpoint.connect(now(), self.settings.to, &self.identity, None);
        begins.map_err(|error| format!("connection {}: {error}", self.begun))?;
        self.begun += 1;
        Ok(())
    }

    /// Receives, and sends what the connections have queued. Returns whether there was an event.
    pub fn poll(&mut self) -> bool {
        let (now, mut is_active) = (clock::host_ns(), false);
        self.handle_events(now, |_, _| is_active = true);
        // A server that has ended refuses datagrams.
        let _ = self.flush(now);
        is_active
    }

    /// Receives, runs the timers, and passes on the events. A message has the index of its connection.
    fn handle_events(&mut self, now: u64, mut handle: impl FnMut(usize, &Event<'_>)) {
        let Self { wire, endpoint, peers, places, failed, .. } = self;
        let now = at(now);
        wire.receive(|mut received| {
            let datagrams = received.datagrams_mut();
            let inbound =
                datagrams.map(|datagram| Inbound { from: datagram.from.into(), bytes: datagram.bytes });
            endpoint.handle_datagrams(now, inbound);
        });
        if endpoint.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            endpoint.handle_timeout(now);
        }
        while let Some(event) = endpoint.poll_event() {
            let mut place = usize::MAX;
            match &event {
                Event::Connected { peer, .. } => {
                    let slot = peer.slot() as usize;
                    places.resize(places.len().max(slot + 1), usize::MAX);
                    places[slot] = peers.len();
                    peers.push(*peer);
                }
                Event::ConnectFailed { error, .. } => *failed.entry(reason(error)).or_default() += 1,
                Event::Message { peer, .. } => {
                    place = places.get(peer.slot() as usize).copied().unwrap_or(usize::MAX);
                }
                _ => {}
            }
            handle(place, &event);
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
        let channel = ChannelId(channel.into());
        let is_reliable = self.settings.reliable_channel == Some(channel);
        let options = if is_reliable { SendOptions::reliable_ordered() } else { self.settings.options };
        let message = Message::new(channel, Bytes::copy_from_slice(message), options);
        self.endpoint.send(at(now), self.peers[connection], message)
    }

    /// The endpoint, and the handle of the server at the first connection.
    pub(crate) fn first(&mut self) -> Option<(&mut Endpoint<SingleWorker>, PeerId)> {
        let peer = *self.peers.first()?;
        Some((&mut self.endpoint, peer))
    }
}

impl Client for ClientSocket {
    fn is_ready(&self) -> bool {
        self.peers.len() == self.begun
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        let mut outcome = Ok(());
        self.handle_events(now, |place, event| match event {
            Event::Message { payload, .. } => take(place, payload),
            Event::ConnectFailed { error, .. } => outcome = Err(format!("a client: {error}")),
            Event::Disconnected { reason, .. } => {
                outcome = Err(format!("a client lost its connection: {}", reason.name()));
            }
            _ => {}
        });
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
        let Self { wire, endpoint, memory, .. } = self;
        while let Some(transmit) = endpoint.poll_transmit(at(now), &mut memory[..]) {
            while !wire.push(&memory[..transmit.bytes]) {
                wire.flush()?;
            }
        }
        wire.flush()
    }

    fn stats(&mut self) -> WorkerStats {
        let mut stats = self.wire.stats();
        stats.protocol = *self.endpoint.stats();
        stats
    }
}

/// Ends a server and closes the books of both directions with its clients. Returns the counts of the server, which are those after its
/// end.
///
/// Only drops in front of these sockets excuse missing datagrams, because other sockets of the host may overflow all the time.
pub fn close_server(server: Child, sockets: &mut [ClientSocket]) -> Result<Counts, String> {
    settle();
    let sent = count(&client_counts(sockets), "socket sent");
    let served = server.finish_counts()?;
    close_books(sent, &served, None)?;
    settle();
    let mut counts = client_counts(sockets);
    loop {
        let before = count(&counts, "socket received");
        sockets.iter_mut().for_each(|socket| _ = socket.poll());
        counts = client_counts(sockets);
        if count(&counts, "socket received") == before {
            close_return_path(&served, &counts)?;
            return Ok(served);
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
