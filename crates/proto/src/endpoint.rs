//! All connections of one shard: what the shell drives.
//!
//! One input, then outputs until nothing is left: `handle_datagrams`, `handle_forwarded` or `handle_timeout`,
//! or a command; then `poll_transmit` until `None`, `poll_forward` until `None`, `poll_event` until `None`;
//! then wait until `poll_timeout`. Whatever order the outputs are taken in, nothing is lost. `handle_too_large` and
//! `handle_unreachable` tell what the system refused to send.

mod commands;
mod greet;
mod invalidate;
mod lifecycle;
pub(crate) mod live;
mod receive;
mod transmit;
mod unsent;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_crypto::{Entropy, IdKeys, Secret};
use drumfire_wire::{ClientId, ConnectionId, ConnectionIdLength, SharedParameters, limits as wire_limits};

use crate::config::{ClientConfig, Config, ServerConfig};
use crate::connection::{Bounds, Connection};
use crate::datagram::Forwarded;
use crate::epoch::EpochLimits;
use crate::error::ConfigError;
use crate::event::{Event, EventBatch, Events, charge};
use crate::handshake::server::{Greeter, RefuseBytes};
use crate::ids::{ConnectionIds, FoldBuild, PeerMap, Shard};
use crate::limits::{FORWARDS_USUAL, REPLIES_WAITING};
use crate::lookup::Lookup;
use crate::placement::{Alone, Placement};
use crate::route::Route;
use crate::slab::{PeerId, Slab};
use crate::stats::Stats;
use crate::time::{Moment, Now};
use crate::timers::Timers;
use crate::together::Together;

/// The protocol core of one shard, a server's or a client's.
#[derive(Debug)]
pub struct Endpoint<P = Alone> {
    config: Config,
    bounds: Arc<Bounds>,
    shared: SharedParameters,
    role: Role,
    placement: P,
    entropy: Entropy,
    ids: ConnectionIds,
    id_length: ConnectionIdLength,
    connections: Slab<Connection>,
    /// By connection id.
    by_id: Lookup,
    /// The one connection of a socket without ids.
    only: Option<PeerId>,
    /// A client's attempts, by client id.
    by_client_id: PeerMap,
    /// A client's connections, by the ids of the server, where there are many.
    by_server_id: PeerMap,
    /// A server's connections, by the Hello that made them.
    by_hello: Lookup,
    timers: Timers,
    /// What the connections hold of messages.
    together: Together,
    /// Connections with something to send, each once.
    active: VecDeque<PeerId>,
    /// Events that were taken gave one of them something to say, and nobody has asked for it yet.
    has_news: bool,
    /// The connection whose packets were delivered last, if nothing was done about it since.
    unsettled: Option<PeerId>,
    /// Datagrams the front of `active` has sent in this turn.
    turn_count: u32,
    replies: VecDeque<Reply>,
    forwards: VecDeque<Forwarded>,
    events: Events,
    stats: Stats,
    now: Moment,
    /// Time since 1970, as it was told last.
    wall: Duration,
}

#[derive(Debug)]
enum Role {
    Server(Box<Greeter>),
    Client,
}

/// A handshake answer waiting to be sent.
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
    /// The Welcome of this half-open connection.
    Welcome {
        to: Route,
        peer: PeerId,
    },
}

impl<P: Placement> Endpoint<P> {
    /// A server's endpoint. Everything random in it comes from `seed`: 32 bytes from a secure source, other
    /// ones for every shard and every start.
    ///
    /// # Errors
    /// The first field of a configuration that is not what it must be.
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
        let hash = FoldBuild::new(u64::from_be_bytes(endpoint.entropy.bytes()));
        let greeter = Greeter::new(&endpoint.config, server, endpoint.shared, hash);
        endpoint.role = Role::Server(Box::new(greeter));
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
        let hash = FoldBuild::new(u64::from_be_bytes(entropy.bytes()));
        let worker_memory_bytes = config.worker_memory_bytes;
        let connections = if id_length == ConnectionIdLength::Zero { 1 } else { config.connections };
        Ok(Self {
            bounds: Arc::new(Bounds {
                send_memory_bytes: config.send_memory_bytes,
                receive_memory_bytes: config.receive_memory_bytes,
                message_max_bytes: config.message_max_bytes,
                credit_bytes: config.credit_bytes(),
                in_flight_bytes: config.in_flight_limit_bytes(),
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
                silent_timeout: whole_milliseconds(config.silent_timeout),
                unacknowledged_timeout: whole_milliseconds(config.unacknowledged_timeout),
                message_max_bytes: u32::try_from(config.message_max_bytes).unwrap_or(u32::MAX),
                credit_bytes: config.credit_bytes(),
            },
            events: Events::new(config.event_memory_bytes),
            config,
            role: Role::Client,
            placement,
            entropy,
            ids,
            id_length,
            connections: Slab::new(connections),
            by_id: Lookup::new(hash),
            only: None,
            by_client_id: HashMap::with_hasher(hash),
            by_server_id: HashMap::with_hasher(hash),
            by_hello: Lookup::new(hash),
            timers: Timers::default(),
            together: Together::new(worker_memory_bytes),
            active: VecDeque::new(),
            has_news: false,
            unsettled: None,
            turn_count: 0,
            replies: VecDeque::with_capacity(REPLIES_WAITING),
            forwards: VecDeque::with_capacity(FORWARDS_USUAL),
            stats: Stats::default(),
            now: Moment::ORIGIN,
            wall: Duration::ZERO,
        })
    }

    /// When `handle_timeout` must be called, `None` for never. Earlier or later calls harm nothing, save that
    /// what was due is late.
    #[must_use]
    pub fn poll_timeout(&mut self) -> Option<Moment> {
        if self.has_news {
            return Some(self.now);
        }
        self.poll_timer()
    }

    /// [`Self::poll_timeout`] for who cannot send at the moment: that there is something to send is then no reason to come back.
    pub fn poll_timer(&mut self) -> Option<Moment> {
        self.put_off_first();
        self.timers.next()
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event<'_>> {
        let Self { events, connections, together, active, has_news, .. } = self;
        let event = events.pop()?;
        if let Some((peer, payload_bytes)) = event.held()
            && let Some(connection) = connections.get_mut(peer)
        {
            *has_news |= release(connection, together, peer, payload_bytes, active);
        }
        Some(event)
    }

    /// Whether there are events.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Moves all events into `batch`, unless it still holds some. Until the caller gives back what each event holds
    /// ([`Event::held`], [`Endpoint::release`]), the event counts as waiting for the application: a part of the application that
    /// is slow blocks its own peers alone.
    pub fn take_events(&mut self, batch: &mut EventBatch) {
        self.events.take(batch);
    }

    /// Notes that the application has taken an event of a batch that holds this many bytes ([`Event::held`]): its peer may send
    /// as much again.
    pub fn release(&mut self, peer: PeerId, payload_bytes: usize) {
        let Self { connections, together, active, has_news, .. } = self;
        if let Some(connection) = connections.get_mut(peer) {
            *has_news |= release(connection, together, peer, payload_bytes, active);
        }
    }

    /// The next datagram that must be taken to another shard, into its `handle_forwarded`.
    pub fn poll_forward(&mut self) -> Option<Forwarded> {
        self.forwards.pop_front()
    }

    /// What this endpoint did so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether it is a server's.
    #[must_use]
    pub const fn is_server(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    /// Bytes of messages that all connections hold together, charges included: for the application to the byte, in the queues of
    /// each in whole kilobytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.together.bytes()
    }

    /// Connections there are, half-open and closing ones included.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// The smoothed round trip to a peer, `None` for a stale id.
    #[must_use]
    pub fn round_trip(&self, peer: PeerId) -> Option<Duration> {
        self.connections.get(peer).map(|connection| connection.loss.round_trip().smoothed())
    }

    /// Places of connections that were ever used, for who looks at a few at a time: see [`round_trip_at`](Self::round_trip_at).
    #[must_use]
    pub const fn places(&self) -> u32 {
        self.connections.places()
    }

    /// The smoothed round trip of the connection in this place ([`PeerId::index`]); `None` where there is none, or where it was
    /// never measured.
    #[must_use]
    pub fn round_trip_at(&self, place: u32) -> Option<Duration> {
        self.connections.get(self.connections.id_at(place)?)?.loss.round_trip().measured()
    }

    /// Bytes of the longest reliable message, values by key aside, that may be sent to a peer: what both ends allow, this
    /// end's limit until the peer's is known.
    #[must_use]
    pub fn message_max_bytes(&self, peer: PeerId) -> usize {
        let of_peer = self.connections.get(peer).map(|connection| connection.sending.message_max_bytes());
        of_peer.unwrap_or(usize::MAX).min(self.config.message_max_bytes)
    }

    /// Bytes of messages to a peer that wait or were not acknowledged, each charged 64 B more; 0 for a stale id.
    #[must_use]
    pub fn undelivered_bytes(&self, peer: PeerId) -> usize {
        self.connections.get(peer).map_or(0, |connection| connection.sending.used_bytes())
    }

    /// Where packets to a peer go, in the form in which the shell told it; `None` for a stale id.
    #[must_use]
    pub fn address(&self, peer: PeerId) -> Option<SocketAddr> {
        self.connections.get(peer).map(|connection| connection.path.route.peer)
    }

    pub(crate) fn connection(&self, peer: PeerId) -> Option<&Connection> {
        self.connections.get(peer)
    }

    /// Takes the time in; it never goes back.
    pub(crate) fn advance(&mut self, now: Now) -> Moment {
        self.wall = now.wall;
        self.now = self.now.max(now.monotonic);
        self.now
    }
}

impl Endpoint<Alone> {
    /// A client's endpoint. Everything random in it comes from `seed`: 32 bytes from a secure source.
    ///
    /// # Errors
    /// The first field of a configuration that is not what it must be.
    pub fn client(config: Config, client: ClientConfig, seed: Secret<32>) -> Result<Self, ConfigError> {
        let mut entropy = Entropy::from_seed(seed);
        let ids = ConnectionIds::new(IdKeys::derive(&entropy.secret(), b"client"), Shard::ONLY);
        Self::new(config, ids, client.ids(), Alone::default(), entropy)
    }
}

/// Gives a connection the memory of a message back; answers whether it has something to say now that no timer calls for.
fn release(
    connection: &mut Connection,
    together: &mut Together,
    peer: PeerId,
    payload_bytes: usize,
    active: &mut VecDeque<PeerId>,
) -> bool {
    let charge_bytes = charge(payload_bytes);
    connection.on_event_taken(charge_bytes);
    together.on_taken(charge_bytes);
    let has_news = connection.control.has_waiting() && !connection.is_queued;
    if has_news {
        connection.is_queued = true;
        active.push_back(peer);
    }
    has_news
}

/// What the wire can say of a duration.
fn whole_milliseconds(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
