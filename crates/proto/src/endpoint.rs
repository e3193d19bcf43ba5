//! The protocol core of one shard: all its connections, driven by the shell. The docs of [`Endpoint`] give the order of
//! calls.

mod commands;
mod handshake_datagrams;
mod invalidate;
mod invariants;
mod lifecycle;
pub(crate) mod live;
mod receive;
mod send_errors;
mod transmit;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_crypto::{Entropy, IdKeys, IssuedToken, Secret};
use drumfire_wire::{ClientId, ConnectionId, ConnectionIdLength, SharedParameters, limits as wire_limits};

pub use commands::ConnectRequest;

use crate::config::{ClientConfig, Config, ServerConfig};
use crate::connection::{Connection, ConnectionLimits, Phase};
use crate::convert::saturated;
use crate::datagram::Forwarded;
use crate::epoch::EpochLimits;
use crate::error::ConfigError;
use crate::event::{Event, EventBatch, Events, MessageRun, charge, charge_all};
use crate::handshake::server::{HandshakeResponder, RefuseBytes};
use crate::hash_index::HashIndex;
use crate::ids::{ConnectionIds, KeyedBuildHasher, PeerMap, Shard};
use crate::limits::{FORWARDS_PREALLOCATED, REPLIES_WAITING, STAGE_DATAGRAMS};
use crate::memory_budget::MemoryBudget;
use crate::peer_id::PeerId;
use crate::placement::{Placement, SingleWorker};
use crate::recorder::FlightRecord;
use crate::route::Route;
use crate::slab::Slab;
use crate::stats::Stats;
use crate::time::{Moment, Now};
use crate::timers::Timers;

/// The protocol core of one shard, on a server or a client: all its connections and handshakes.
///
/// The caller drives it in a loop. First call one input: [`handle_datagrams`](Self::handle_datagrams),
/// [`handle_forwarded`](Self::handle_forwarded), [`handle_timeout`](Self::handle_timeout), or a command such as
/// [`send`](Self::send). Then call the outputs until each returns `None`, in any order:
/// [`poll_transmit`](Self::poll_transmit), [`poll_forward`](Self::poll_forward), and [`poll_event`](Self::poll_event). Then
/// wait for datagrams, but no longer than until [`poll_timeout`](Self::poll_timeout). When the operating system refuses a
/// datagram, call [`handle_too_large`](Self::handle_too_large) or [`handle_unreachable`](Self::handle_unreachable).
#[derive(Debug)]
pub struct Endpoint<P = SingleWorker> {
    config: Config,
    bounds: Arc<ConnectionLimits>,
    shared: SharedParameters,
    role: Role,
    placement: P,
    entropy: Entropy,
    ids: ConnectionIds,
    id_length: ConnectionIdLength,
    connections: Slab<Connection>,
    /// On a client, the reserved ids without a connection, with the resume token of the connection that ended. The limit of
    /// connections bounds their number.
    reserved: HashMap<PeerId, Option<(IssuedToken, Moment)>, KeyedBuildHasher>,
    /// Connections by connection id.
    by_id: HashIndex,
    /// The only connection of a socket without connection ids.
    only: Option<PeerId>,
    /// On a client, attempts to connect by client id.
    by_client_id: PeerMap,
    /// On a client with many connections, the connections by the server's ids.
    by_server_id: PeerMap,
    /// On a server, connections by the Hello that made them.
    by_hello: HashIndex,
    timers: Timers,
    /// The bytes of messages that all connections hold.
    budget: MemoryBudget,
    /// Connections with something to send, each once.
    active: VecDeque<PeerId>,
    /// An event that the application took gave a connection something to send, and `poll_transmit` has not been
    /// called since.
    is_transmit_due: bool,
    /// Connections that have freed send memory, for [`Endpoint::poll_freed`]. Empty unless `reports_freed` is set.
    freed: VecDeque<PeerId>,
    reports_freed: bool,
    /// Connections that changed and were not rescheduled since, at most [`STAGE_DATAGRAMS`].
    to_reschedule: VecDeque<PeerId>,
    /// The number of datagrams that the front of `active` has sent in this turn.
    turn_count: u32,
    replies: VecDeque<Reply>,
    forwards: VecDeque<Forwarded>,
    events: Events,
    stats: Stats,
    now: Moment,
    /// The time since the Unix epoch, as of the last call.
    wall: Duration,
    /// The number of calls until the tables are checked again, in builds with debug assertions.
    calls_before_check: u32,
}

#[derive(Debug)]
enum Role {
    Server(Box<HandshakeResponder>),
    Client,
}

/// A handshake response that waits to be sent.
#[derive(Debug, Clone, Copy)]
enum Reply {
    Retry {
        to: Route,
        client_id: ClientId,
        cookie: [u8; wire_limits::COOKIE_BYTES],
    },
    Refuse {
        to: Route,
        refuse: RefuseBytes,
    },
    Reset {
        to: Route,
        id: ConnectionId,
    },
    /// The Welcome of a half-open connection.
    Welcome {
        to: Route,
        peer: PeerId,
    },
}

impl<P: Placement> Endpoint<P> {
    /// Creates a server's endpoint. Everything random in it is derived from `seed`: 32 bytes from a secure source,
    /// different for every shard and every start.
    ///
    /// # Errors
    /// Returns the first field of a configuration that is out of range.
    pub fn server(
        config: Config,
        server: ServerConfig,
        placement: P,
        seed: Secret<32>,
    ) -> Result<Self, ConfigError> {
        server.check()?;
        let ids = ConnectionIds::new(IdKeys::derive(&server.persistent, &server.server_id), server.shard);
        let mut endpoint =
            Self::new(config, ids, ConnectionIdLength::Eight, placement, Entropy::from_seed(seed))?;
        let hash = KeyedBuildHasher::new(u64::from_be_bytes(endpoint.entropy.bytes()));
        let responder = HandshakeResponder::new(&endpoint.config, server, endpoint.shared, hash);
        endpoint.role = Role::Server(Box::new(responder));
        Ok(endpoint)
    }

    fn new(
        config: Config,
        ids: ConnectionIds,
        id_length: ConnectionIdLength,
        placement: P,
        mut entropy: Entropy,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let hash = KeyedBuildHasher::new(u64::from_be_bytes(entropy.bytes()));
        let worker_memory_bytes = config.worker_memory_bytes;
        // Nothing but an id in each packet distinguishes the connections of a socket.
        let connections = if id_length == ConnectionIdLength::Zero { 1 } else { config.connections };
        let worker = ids.shard_index();
        Ok(Self {
            // One copy for all connections. `reconfigure` replaces it, and existing connections keep theirs.
            bounds: Arc::new(ConnectionLimits {
                send_memory_bytes: config.send_memory_bytes,
                receive_memory_bytes: config.receive_memory_bytes,
                message_max_bytes: config.message_max_bytes,
                credit_bytes: config.credit_bytes(),
                credit_max_bytes: config.credit_max_bytes(),
                in_flight_bytes: config.in_flight_limit_bytes(),
                in_flight_start_bytes: config.in_flight_start_bytes(),
                congestion: config.congestion,
                pass_share_datagrams: config.pass_share_datagrams,
                datagram_max_bytes: config.datagram_max_bytes,
                replay_window: config.replay_window,
                epochs: EpochLimits { packets: config.rekey_packets, interval: config.rekey_interval },
                has_recorder: config.flight_recorder,
                hash,
            }),
            shared: SharedParameters {
                datagram_max_bytes: config.datagram_max_bytes,
                idle_timeout: whole_milliseconds(config.idle_timeout),
                unacknowledged_timeout: whole_milliseconds(config.unacknowledged_timeout),
                // `check` refuses more than 16 MiB.
                message_max_bytes: saturated(config.message_max_bytes, u32::MAX),
                credit_bytes: config.credit_bytes(),
            },
            events: Events::new(config.event_memory_bytes),
            config,
            role: Role::Client,
            placement,
            entropy,
            ids,
            id_length,
            connections: Slab::new(worker, connections),
            reserved: HashMap::with_hasher(hash),
            by_id: HashIndex::new(hash),
            only: None,
            by_client_id: HashMap::with_hasher(hash),
            by_server_id: HashMap::with_hasher(hash),
            by_hello: HashIndex::new(hash),
            timers: Timers::default(),
            budget: MemoryBudget::new(worker_memory_bytes),
            active: VecDeque::new(),
            is_transmit_due: false,
            freed: VecDeque::new(),
            reports_freed: false,
            to_reschedule: VecDeque::with_capacity(STAGE_DATAGRAMS),
            turn_count: 0,
            // Handshake responses never allocate, however many Hellos arrive.
            replies: VecDeque::with_capacity(REPLIES_WAITING),
            forwards: VecDeque::with_capacity(FORWARDS_PREALLOCATED),
            stats: Stats::default(),
            now: Moment::ORIGIN,
            wall: Duration::ZERO,
            calls_before_check: 0,
        })
    }

    /// Continues the numbering of [`PeerId`]s of `earlier`, an endpoint of the same shard that this one replaces. All ids of
    /// `earlier` are stale here.
    pub const fn continue_peer_ids(&mut self, earlier: &Self) {
        self.connections.continue_ids(&earlier.connections);
    }

    /// Returns when `handle_timeout` must be called, or `None` for never. An earlier or later call is harmless, except that a
    /// late call delays what is due.
    #[must_use]
    pub fn poll_timeout(&mut self) -> Option<Moment> {
        if self.is_transmit_due {
            // The application made room for the peer's messages. The peer may be waiting for the Credit, and no timer
            // covers it.
            return Some(self.now);
        }
        self.poll_timer()
    }

    /// Returns whether [`Self::handle_timeout`] may have work at `now`. It compares the armed timers, which are never
    /// late and often early. [`Self::poll_timeout`] computes when a connection is really due, which costs as much as a
    /// packet.
    #[must_use]
    pub fn may_have_due_timer(&self, now: Moment) -> bool {
        // A connection that waits to be rescheduled may have an earlier deadline than its timer.
        !self.to_reschedule.is_empty() || self.timers.next().is_some_and(|timer| timer <= now)
    }

    /// Returns the time that [`Self::poll_timeout`] returns, but for a caller that cannot send at the moment: data that
    /// waits to be sent causes no wake-up.
    pub fn poll_timer(&mut self) -> Option<Moment> {
        self.finish_transmit();
        self.defer_head();
        self.timers.next()
    }

    /// Returns the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event<'_>> {
        let Self { events, connections, budget, active, is_transmit_due, .. } = self;
        let event = events.pop()?;
        // The application has the payload from now on, so it no longer counts against the peer.
        if let Some((peer, payload_bytes)) = event.held()
            && let Some(connection) = connections.get_mut(peer)
        {
            *is_transmit_due |= release(connection, budget, peer, charge(payload_bytes), active);
        }
        Some(event)
    }

    /// Returns the next event if it is a run of messages, or the rest of a run of which [`Self::poll_event`] returned the
    /// first messages. The application takes all of it. `None` for any other event, which [`Self::poll_event`] returns.
    pub fn poll_run(&mut self) -> Option<MessageRun<'_>> {
        let Self { events, connections, budget, active, is_transmit_due, .. } = self;
        let run = events.pop_run()?;
        if let Some(connection) = connections.get_mut(run.peer) {
            let charge_bytes = charge_all(run.count(), run.payload_bytes());
            *is_transmit_due |= release(connection, budget, run.peer, charge_bytes, active);
        }
        Some(run)
    }

    /// Returns whether events wait for the application.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns whether an event waits that begins, moves, or ends a connection, or ends an attempt to connect.
    #[must_use]
    pub fn has_lifecycle_events(&self) -> bool {
        self.events.has_lifecycle_events()
    }

    /// Moves all events into `batch`, unless it still holds some. Each event counts as waiting for the application
    /// until the caller returns its bytes ([`Event::held`], [`Endpoint::release`]). A slow part of the application
    /// therefore blocks only its own peers.
    pub fn take_events(&mut self, batch: &mut EventBatch) {
        self.events.take(batch);
    }

    /// Registers that the application has taken an event of a batch that holds `payload_bytes` ([`Event::held`]). Its
    /// peer may send as much again.
    pub fn release(&mut self, peer: PeerId, payload_bytes: usize) {
        self.release_charge(peer, charge(payload_bytes));
    }

    /// Registers that the application has taken a run of messages of a batch ([`EventBatch::pop_run`]), as
    /// [`Endpoint::release`] does for one message.
    pub fn release_run(&mut self, run: &MessageRun<'_>) {
        self.release_charge(run.peer, charge_all(run.count(), run.payload_bytes()));
    }

    fn release_charge(&mut self, peer: PeerId, charge_bytes: usize) {
        let Self { connections, budget, active, is_transmit_due, .. } = self;
        if let Some(connection) = connections.get_mut(peer) {
            *is_transmit_due |= release(connection, budget, peer, charge_bytes, active);
        }
    }

    /// Returns the next datagram that must be passed to another shard's `handle_forwarded`.
    pub fn poll_forward(&mut self) -> Option<Forwarded> {
        self.forwards.pop_front()
    }

    /// Returns the counters of this endpoint.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns whether this is a server's endpoint.
    #[must_use]
    pub const fn is_server(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    /// Returns the bytes of messages that all connections hold, including charges, and the bytes of blocks. Messages
    /// that wait for the application are counted to the byte, and the queues of each connection in whole kilobytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.budget.bytes()
    }

    /// Sets the memory of the blocks that connections still need, which only the caller knows. It counts in
    /// [`Self::held_bytes`], and against the memory beyond which no more connections are accepted.
    pub const fn set_block_bytes(&mut self, bytes: usize) {
        self.budget.set_block_bytes(bytes);
    }

    /// Returns the number of connections, including half-open and closing ones.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Returns the smoothed round trip to a peer, or `None` for a stale id.
    #[must_use]
    pub fn round_trip(&self, peer: PeerId) -> Option<Duration> {
        self.connections.get(peer).map(|connection| connection.loss.round_trip().smoothed())
    }

    /// Returns the number of connection slots that were ever used. The slot of every connection is lower. A caller can
    /// visit a few connections at a time with [`round_trip_of_slot`](Self::round_trip_of_slot).
    #[must_use]
    pub const fn slot_count(&self) -> u32 {
        self.connections.slot_count()
    }

    /// Returns the smoothed round trip of the connection in `slot` ([`PeerId::slot`]). `None` when the slot
    /// is empty or nothing was measured yet.
    #[must_use]
    pub fn round_trip_of_slot(&self, slot: u32) -> Option<Duration> {
        self.connections.get(self.connections.id_at(slot)?)?.loss.round_trip().measured()
    }

    /// Returns the longest reliable message that may be sent to a peer, in bytes, except ReliableLatest values. This is
    /// the smaller limit of both ends, or this end's limit until the peer's is known.
    #[must_use]
    pub fn message_max_bytes(&self, peer: PeerId) -> usize {
        let of_peer = self.connections.get(peer).map(|connection| connection.sending.message_max_bytes());
        of_peer.unwrap_or(usize::MAX).min(self.config.message_max_bytes)
    }

    /// Returns the bytes of messages to a peer that wait or are not acknowledged, with a charge of 64 B for each
    /// message. 0 for a stale id.
    #[must_use]
    pub fn undelivered_bytes(&self, peer: PeerId) -> usize {
        self.connections.get(peer).map_or(0, |connection| connection.sending.used_bytes())
    }

    /// Returns whether the connection of a peer is open.
    #[must_use]
    pub fn is_open(&self, peer: PeerId) -> bool {
        self.connections.get(peer).is_some_and(Connection::is_open)
    }

    /// Returns whether this client is still connecting to a peer. Messages can be queued, and are sent when the
    /// connection is open.
    #[must_use]
    pub fn is_connecting(&self, peer: PeerId) -> bool {
        let phase = self.connections.get(peer).map(|connection| connection.phase.as_deref());
        matches!(phase, Some(Some(Phase::Connecting(_))))
    }

    /// Returns whether packets to a peer are in flight that it must acknowledge. False for a stale id and before the
    /// connection is established.
    #[must_use]
    pub fn awaits_ack(&self, peer: PeerId) -> bool {
        self.connections.get(peer).is_some_and(|connection| connection.loss.has_in_flight())
    }

    /// Returns the address to which packets to a peer are sent, in the form in which the shell reported it. `None` for a
    /// stale id.
    #[must_use]
    pub fn address(&self, peer: PeerId) -> Option<SocketAddr> {
        self.connections.get(peer).map(|connection| connection.path.route.peer)
    }

    /// Returns the contents of a connection's flight recorder at present; `None` for a stale id, without
    /// [`Config::flight_recorder`](crate::Config::flight_recorder), and for an idle connection.
    pub fn flight_record(&mut self, now: Now, peer: PeerId) -> Option<FlightRecord> {
        let now = self.advance(now);
        self.connection(peer)?.flight_record(now, None)
    }

    pub(crate) fn connection(&self, peer: PeerId) -> Option<&Connection> {
        self.connections.get(peer)
    }

    /// Begins a call that may change connections: advances the clock, and finishes the work of `poll_transmit`.
    #[inline]
    pub(crate) fn advance(&mut self, now: Now) -> Moment {
        self.advance_clock(now);
        if !self.to_reschedule.is_empty() {
            self.reschedule_changed();
        }
        self.now
    }

    /// Advances the clock, which never goes back.
    #[inline]
    fn advance_clock(&mut self, now: Now) -> Moment {
        // Only the monotonic clock orders events. The wall clock may be set, and is only compared with the times in
        // tokens.
        self.wall = now.wall;
        self.now = self.now.max(now.monotonic);
        self.now
    }
}

impl Endpoint<SingleWorker> {
    /// Creates a client's endpoint. Everything random in it is derived from `seed`: 32 bytes from a secure source.
    ///
    /// # Errors
    /// Returns the first field of a configuration that is out of range.
    pub fn client(config: Config, client: ClientConfig, seed: Secret<32>) -> Result<Self, ConfigError> {
        let mut entropy = Entropy::from_seed(seed);
        // A client's ids need not survive a restart, so the key for them is random.
        let ids = ConnectionIds::new(IdKeys::derive(&entropy.secret(), b"client"), Shard::ONLY);
        Self::new(config, ids, client.ids(), SingleWorker::default(), entropy)
    }
}

/// Returns the memory of a message to its connection. Returns true when the connection now has something to send that
/// no timer covers.
fn release(
    connection: &mut Connection,
    budget: &mut MemoryBudget,
    peer: PeerId,
    charge_bytes: usize,
    active: &mut VecDeque<PeerId>,
) -> bool {
    // Both totals contain the charge: the one that limits the peer, and the one that limits the worker.
    connection.on_event_taken(charge_bytes);
    budget.on_taken(charge_bytes);
    // Only a Credit can have become due. The connection is queued here and not rescheduled, because events are taken
    // far more often than credit is extended.
    let is_transmit_due = connection.control.has_waiting() && !connection.is_queued;
    if is_transmit_due {
        connection.is_queued = true;
        active.push_back(peer);
    }
    is_transmit_due
}

/// Rounds a duration down to what the wire format can express.
fn whole_milliseconds(duration: Duration) -> Duration {
    Duration::from_millis(saturated(duration.as_millis(), u64::MAX))
}

#[cfg(test)]
mod tests;
