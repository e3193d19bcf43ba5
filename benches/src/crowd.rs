//! Many connections over a few sockets of [`Clients`], all on the calling thread.
//!
//! They are begun at a rate that servers accept, and counted by their outcome.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drumfire::{
    ChannelId, ClientConfig, Clients, ClientsEvent, ConnectError, Message, PeerId, SendError, SendOptions,
    ServerPublicKey, WorkerStats,
};
use drumfire_tools::clock;

use crate::books::{close_books, close_way_back, count, counts_text};
use crate::process::{Child, Counts};
use crate::roles::{RECEIVE_BUFFER_BYTES, settle};
use crate::traffic::Client;

/// Attempts in progress at a time. A server keeps 4,096 half-open connections.
const CONNECTING_MAX: u64 = 1_024;

/// The time that a ramp may take in addition to its schedule.
const PATIENCE: Duration = Duration::from_secs(60);

/// The interval in which a client reads how many datagrams the kernel dropped in front of its socket, and some time more.
const DROPS_READ_AFTER: Duration = Duration::from_millis(1_100);

/// The pause after a poll that found nothing.
const REST: Duration = Duration::from_micros(500);

/// Connections over a few sockets.
#[derive(Debug)]
pub struct Crowd {
    sockets: Vec<Clients>,
    peers: Vec<(usize, PeerId)>,
    /// The index of each connection in `peers`.
    places: HashMap<(usize, PeerId), usize>,
    ended: u64,
    messages: u64,
    /// The number of attempts so far. Attempts use the sockets in turn.
    begun: usize,
    options: SendOptions,
    /// The channel whose messages are reliable and ordered, whatever the options.
    reliable_channel: Option<ChannelId>,
}

/// The outcome of attempts to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ramped {
    /// The time from the first attempt to the last outcome.
    pub took: Duration,
    /// The number of connections made.
    pub connected: u64,
    /// The number of failed attempts by reason.
    pub failed: BTreeMap<String, u64>,
}

impl Ramped {
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
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.connected + self.failed_count()
    }
}

impl std::fmt::Display for Ramped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.took.as_secs_f64();
        let rate = self.connected as f64 / seconds;
        write!(f, "{} in {seconds:.1} s ({rate:.0}/s), failed: {:?}", self.connected, self.failed)
    }
}

impl Crowd {
    /// Binds this number of sockets on the loopback for this number of connections over all of them.
    pub fn bind(sockets: u32, connections: u32) -> Result<Self, String> {
        // Many clients share a socket here. Its buffer must hold what comes while this process has no core.
        let config = ClientConfig::default().receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
        Self::bind_with(sockets, connections, &config)
    }

    /// Binds sockets with this configuration.
    pub fn bind_with(sockets: u32, connections: u32, config: &ClientConfig) -> Result<Self, String> {
        let bind = |_| Clients::bind(([127, 0, 0, 1], 0).into(), connections.div_ceil(sockets), config);
        let sockets = (0..sockets).map(bind).collect::<Result<_, _>>();
        let sockets = sockets.map_err(|error| format!("the clients' sockets: {error}"))?;
        let (peers, places, options) = (Vec::new(), HashMap::new(), SendOptions::unreliable());
        Ok(Self { sockets, peers, places, ended: 0, messages: 0, begun: 0, options, reliable_channel: None })
    }

    /// Sends messages with these options. By default they are unreliable.
    #[must_use]
    pub fn with_options(self, options: SendOptions) -> Self {
        Self { options, ..self }
    }

    /// Sends messages on this channel reliably and in order. The options apply to the other channels.
    #[must_use]
    pub fn with_reliable_channel(self, channel: ChannelId) -> Self {
        Self { reliable_channel: Some(channel), ..self }
    }

    /// The connections: the index of the socket, and the peer at this socket.
    pub fn peers(&self) -> &[(usize, PeerId)] {
        &self.peers
    }

    /// The socket with this index.
    pub fn socket(&mut self, index: usize) -> Option<&mut Clients> {
        self.sockets.get_mut(index)
    }

    /// The number of sockets.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// The number of connections that ended after they were made.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// The number of messages that [`Self::look`] and [`Self::look_at`] passed on.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Makes further connections at this rate, each on the next socket. `heard` receives the events of established connections.
    pub fn connect(
        &mut self,
        (server, key): (SocketAddr, ServerPublicKey),
        count: u64,
        per_second: u64,
        mut heard: impl FnMut(usize, &ClientsEvent),
    ) -> Result<Ramped, String> {
        let start = clock::now();
        let deadline = start + Duration::from_secs(count / per_second.max(1)) + PATIENCE;
        let (mut begun, mut ramped) = (0, Ramped::default());
        while ramped.ended() < count {
            let due = due(start, per_second).min(count).min(ramped.ended() + CONNECTING_MAX);
            self.begin((server, key), due.saturating_sub(begun))?;
            begun = begun.max(due);
            let came = self.look_for_outcomes(&mut ramped, &mut heard);
            if clock::now() > deadline {
                return Err(format!("{} of {count} attempts came to an end in time", ramped.ended()));
            }
            if !came {
                clock::pause(REST);
            }
        }
        ramped.took = clock::now().duration_since(start);
        Ok(ramped)
    }

    /// Begins attempts to connect, each on the next socket. [`Self::look_for_outcomes`] counts what becomes of them.
    ///
    /// # Errors
    ///
    /// One line, when an attempt cannot begin.
    pub fn begin(&mut self, (server, key): (SocketAddr, ServerPublicKey), count: u64) -> Result<(), String> {
        for _ in 0..count {
            let index = self.begun % self.sockets.len();
            let begins = self.sockets[index].connect(server, key);
            begins.map_err(|error| format!("connection {}: {error}", self.begun))?;
            self.begun += 1;
        }
        Ok(())
    }

    /// Polls all sockets, counts outcomes of attempts, and passes on the other events. Returns whether there was an event.
    pub fn look_for_outcomes(
        &mut self,
        ramped: &mut Ramped,
        mut heard: impl FnMut(usize, &ClientsEvent),
    ) -> bool {
        self.look(|index, event| match event {
            ClientsEvent::Connected { .. } => ramped.connected += 1,
            ClientsEvent::ConnectFailed { error, .. } => {
                *ramped.failed.entry(reason(error)).or_default() += 1;
            }
            event => heard(index, event),
        })
    }

    /// Polls all sockets and passes on their events. Returns whether there was an event.
    pub fn look(&mut self, mut heard: impl FnMut(usize, &ClientsEvent)) -> bool {
        let mut came = false;
        for index in 0..self.sockets.len() {
            came |= self.look_at(index, |event| heard(index, event));
        }
        came
    }

    /// Polls one socket and passes on its events. Returns whether there was an event.
    pub fn look_at(&mut self, index: usize, mut heard: impl FnMut(&ClientsEvent)) -> bool {
        let Some(socket) = self.sockets.get_mut(index) else { return false };
        let mut came = false;
        for event in socket.poll() {
            came = true;
            match &event {
                ClientsEvent::Connected { peer } => {
                    self.places.insert((index, *peer), self.peers.len());
                    self.peers.push((index, *peer));
                }
                ClientsEvent::Disconnected { .. } => self.ended += 1,
                ClientsEvent::Message { .. } => self.messages += 1,
                _ => {}
            }
            heard(&event);
        }
        came
    }

    /// Sends what all connections have queued.
    pub fn flush(&mut self) {
        self.sockets.iter_mut().for_each(Clients::flush);
    }

    /// Datagrams that all sockets received, including those that no connection used.
    pub fn received_in_all(&self) -> u64 {
        let received = self.sockets.iter().map(|socket| socket.stats().received);
        received.map(|received| received.datagrams + received.dropped_in_all()).sum()
    }

    /// Receives until the sockets are empty, and returns [`Self::received_in_all`].
    pub fn drain(&mut self) -> u64 {
        loop {
            let before = self.received_in_all();
            self.look(|_, _| {});
            if self.received_in_all() == before {
                return before;
            }
        }
    }

    /// The counters of all sockets since they were bound.
    pub fn carried(&self) -> Carried {
        self.sockets.iter().map(Carried::of).fold(Carried::default(), Carried::plus)
    }

    /// The counters of one socket since it was bound.
    pub fn socket_stats(&self, index: usize) -> Option<WorkerStats> {
        self.sockets.get(index).map(Clients::stats)
    }

    /// Datagrams that the kernel dropped in front of all sockets, when each last read it.
    fn kernel_dropped(&self) -> u64 {
        self.sockets.iter().map(|socket| socket.stats().kernel_dropped).sum()
    }

    /// The traffic of one socket since it was bound.
    pub fn carried_by(&self, index: usize) -> Carried {
        self.sockets.get(index).map(Carried::of).unwrap_or_default()
    }
}

impl Client for Crowd {
    fn is_ready(&self) -> bool {
        true
    }

    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        for index in 0..self.sockets.len() {
            for event in self.sockets[index].poll() {
                match event {
                    ClientsEvent::Message { peer, bytes, .. } => {
                        take(self.places.get(&(index, peer)).copied().unwrap_or(usize::MAX), &bytes);
                    }
                    ClientsEvent::Disconnected { .. } => self.ended += 1,
                    _ => {}
                }
            }
        }
        if self.ended > 0 { Err(format!("{} connections ended", self.ended)) } else { Ok(()) }
    }

    fn send(&mut self, _: u64, connection: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        let (socket, peer) = self.peers[connection];
        let channel = ChannelId(channel.into());
        let is_reliable = self.reliable_channel == Some(channel);
        let options = if is_reliable { SendOptions::reliable_ordered() } else { self.options };
        match self.sockets[socket].send(peer, Message::new(channel, message.to_vec(), options)) {
            Ok(_) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(format!("a connection: {error}")),
        }
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        Self::flush(self);
        Ok(())
    }
}

/// Ends a server and closes the books of both directions with its clients. Returns the counts of the server, which are those after its
/// end.
///
/// Only drops in front of these sockets excuse missing datagrams, because other sockets of the host may overflow all the time.
pub fn close_server(server: Child, crowds: &mut [&mut Crowd]) -> Result<Counts, String> {
    settle();
    let sent = crowds.iter().map(|crowd| crowd.carried().sent).sum();
    let served = server.finish_counts()?;
    println!("server    {}", counts_text(&served));
    println!("books     {}", close_books(sent, &served, None)?);
    settle();
    let mut drain = || crowds.iter_mut().map(|crowd| crowd.drain()).sum::<u64>();
    if drain() < count(&served, "socket sent") {
        clock::pause(DROPS_READ_AFTER);
    }
    let received = drain();
    let drops = crowds.iter().map(|crowd| crowd.kernel_dropped()).sum();
    println!("books     {}", close_way_back(&served, received, drops)?);
    Ok(served)
}

/// Counters of what sockets carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Datagrams sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

impl Carried {
    /// The difference to an earlier value.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            sent_bytes: self.sent_bytes - before.sent_bytes,
            received: self.received - before.received,
            received_bytes: self.received_bytes - before.received_bytes,
        }
    }

    fn of(socket: &Clients) -> Self {
        let stats = socket.stats();
        Self {
            sent: stats.sent.datagrams,
            sent_bytes: stats.sent.bytes,
            received: stats.received.datagrams,
            received_bytes: stats.received.bytes,
        }
    }

    /// The sum of both.
    #[must_use]
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
