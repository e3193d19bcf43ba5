//! The configuration of an endpoint. It is checked once, with an error that names the field, and never adjusted
//! silently.
//!
//! Addresses and sockets are not part of it, because the core sees neither.

use std::time::Duration;

use drumfire_crypto::{Secret, ServerKeyPair, Suite, replay};
use drumfire_wire::{ConnectionIdLength, limits as wire_limits};

use crate::access::Access;
use crate::congestion::Congestion;
use crate::convert::{saturated, to_usize};
use crate::error::ConfigError;
use crate::ids::Shard;
use crate::limits;
use crate::path::Path;

/// The configuration of clients and servers. [`Endpoint::server`](crate::Endpoint::server) and
/// [`Endpoint::client`](crate::Endpoint::client) check it.
///
/// The defaults let one connection use 100 Mbit/s at a round trip of 50 ms. Each connection that is busy then takes up to
/// 3 MiB for messages, so a server with many connections may prefer less memory per connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Identifies the game and its build. Both ends must use the same value. The default is 0.
    pub protocol_id: u64,
    /// Whether AES-128-GCM is offered, and chosen when the peer offers it. The default is true on machines with
    /// instructions for it.
    pub has_aes_gcm: bool,
    /// A connection that receives no packet from its peer ends after this time, or after the peer's value if that is
    /// shorter; 1 s to 49 days. The default is 30 s.
    pub idle_timeout: Duration,
    /// A connection with an unacknowledged packet ends after this time, or after the peer's value if that is shorter;
    /// 1 s to 49 days. The default is 10 s.
    pub unacknowledged_timeout: Duration,
    /// The send memory of a connection for messages, in bytes including a charge of 64 bytes for each message; at least
    /// 4 KiB. The default is 1 MiB. An idle connection uses none of it.
    pub send_memory_bytes: usize,
    /// The memory of a connection for messages that wait for the application, in bytes including charges; at least 4 KiB.
    /// The default is 2 MiB. The peer begins with credit for 128 KiB of reliable messages, or for two of the longest
    /// messages if that is more, but at most for half of this memory. The credit grows up to that half while the
    /// application takes what arrives.
    pub receive_memory_bytes: usize,
    /// The memory for messages of all connections together, in bytes including charges; at least 1 MiB. The default is
    /// 512 MiB. Beyond it, a server refuses Hellos. Existing connections are limited by their own memory only.
    pub worker_memory_bytes: usize,
    /// The longest reliable message that this end sends and accepts, in bytes: 1 KiB to 16 MiB, and at most a quarter of
    /// either memory. The default is 64 KiB.
    pub message_max_bytes: usize,
    /// The memory for events that wait for the application, in bytes over all connections; at least twice the receive
    /// memory. The default is 8 MiB.
    pub event_memory_bytes: usize,
    /// The maximum number of bytes in flight of a connection, whatever its congestion window allows; at least 2,400.
    /// The default is 4 MiB. A connection begins with 128 KiB at most, and raises its limit to twice the bytes that its
    /// path delivers in a round trip and 25 ms. With [`Congestion::Fixed`], all of it may be in flight from the start.
    /// `send_memory_bytes` limits the bytes in flight too.
    pub in_flight_bytes: usize,
    /// The UDP payload of the largest datagram that this end sends and accepts, in bytes: 1,200 to 1,472. The default is
    /// 1,472. A connection that fills its packets probes its path for sizes up to this limit.
    pub datagram_max_bytes: u16,
    /// The congestion control algorithm. The default is [`Congestion::Delay`].
    pub congestion: Congestion,
    /// The number of connections, including half-open ones; 1 to
    /// [`CONNECTIONS_MAX`](crate::limits::CONNECTIONS_MAX). The default is 65,536.
    pub connections: u32,
    /// The number of datagrams of one connection that are opened in one pass; at least 1. The default is 64. Further
    /// datagrams of the pass are dropped, so that one connection cannot delay the others.
    pub pass_share_datagrams: u16,
    /// The size of the replay window in packet numbers: a multiple of 64, 64 to 8,192. The default is 1,024. Packets with
    /// older numbers are dropped.
    pub replay_window: u32,
    /// The number of packets after which a key is replaced; 64 to 8,388,608, which is the default.
    pub rekey_packets: u64,
    /// The age at which a key is replaced; 1 s to 15 min, which is the default.
    pub rekey_interval: Duration,
    /// Whether busy connections keep a flight record of their last events, of 3 KiB each, which is reported when they
    /// end abnormally. The default is true. It costs 1.6 percent of the instructions of a packet's round trip.
    pub flight_recorder: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protocol_id: 0,
            has_aes_gcm: Suite::Aes128Gcm.is_offered(),
            idle_timeout: limits::IDLE_TIMEOUT,
            unacknowledged_timeout: limits::UNACKNOWLEDGED_TIMEOUT,
            send_memory_bytes: limits::SEND_MEMORY_BYTES,
            receive_memory_bytes: limits::RECEIVE_MEMORY_BYTES,
            worker_memory_bytes: limits::WORKER_MEMORY_BYTES,
            message_max_bytes: limits::RELIABLE_MESSAGE_MAX_BYTES,
            event_memory_bytes: limits::EVENT_MEMORY_BYTES,
            in_flight_bytes: limits::IN_FLIGHT_BYTES,
            datagram_max_bytes: DATAGRAM_FOUND_MAX_BYTES,
            congestion: Congestion::default(),
            connections: limits::CONNECTIONS,
            pass_share_datagrams: limits::PASS_SHARE_DATAGRAMS,
            replay_window: replay::DEFAULT_WINDOW,
            rekey_packets: limits::REKEY_PACKETS,
            rekey_interval: limits::REKEY_INTERVAL,
            flight_recorder: true,
        }
    }
}

/// The minimum memory with which a connection works: a few full packets of messages.
const MEMORY_MIN_BYTES: usize = 4_096;

/// The minimum worker memory, because connections are not counted to the byte.
const WORKER_MEMORY_MIN_BYTES: usize = 1_024 * 1_024;

#[expect(
    clippy::cast_possible_truncation,
    reason = "1472 fits, and a constant cannot be converted otherwise"
)]
const DATAGRAM_FOUND_MAX_BYTES: u16 = limits::DATAGRAM_FOUND_MAX_BYTES as u16;

/// Two full packets. With less, an ack that waits for a second packet would wait for its timer.
const IN_FLIGHT_MIN_BYTES: usize = 2 * limits::DATAGRAM_SENT_MAX_BYTES;

impl Config {
    /// Sets the protocol id.
    #[must_use]
    pub const fn protocol_id(mut self, protocol_id: u64) -> Self {
        self.protocol_id = protocol_id;
        self
    }

    /// Sets whether AES-128-GCM is offered.
    #[must_use]
    pub const fn has_aes_gcm(mut self, has_aes_gcm: bool) -> Self {
        self.has_aes_gcm = has_aes_gcm;
        self
    }

    /// Sets the timeouts, 1 s to 49 days each: how long the peer may be silent, and how long a packet may be
    /// unacknowledged.
    #[must_use]
    pub const fn timeouts(mut self, idle: Duration, unacknowledged: Duration) -> Self {
        self.idle_timeout = idle;
        self.unacknowledged_timeout = unacknowledged;
        self
    }

    /// Sets the memory per connection for sending and for receiving, and lowers the message limit to a quarter of it.
    #[must_use]
    pub const fn memory_bytes(mut self, send: usize, receive: usize) -> Self {
        self.send_memory_bytes = send;
        self.receive_memory_bytes = receive;
        let quarter = if send < receive { send / 4 } else { receive / 4 };
        if self.message_max_bytes > quarter {
            self.message_max_bytes = quarter;
        }
        self
    }

    /// Sets the memory for messages of all connections, beyond which a server refuses Hellos.
    #[must_use]
    pub const fn worker_memory_bytes(mut self, bytes: usize) -> Self {
        self.worker_memory_bytes = bytes;
        self
    }

    /// Sets the longest reliable message in bytes.
    #[must_use]
    pub const fn message_max_bytes(mut self, bytes: usize) -> Self {
        self.message_max_bytes = bytes;
        self
    }

    /// The largest credit for reliable messages that the application has not taken: half of the receive memory, and at
    /// most 4 GiB. The rest is for messages that need no credit.
    pub(crate) fn credit_max_bytes(&self) -> u32 {
        saturated(self.receive_memory_bytes / 2, u32::MAX)
    }

    /// The credit of a new connection. The longest message must fit, with room for others.
    pub(crate) fn credit_bytes(&self) -> u32 {
        let two_messages = saturated(self.message_max_bytes.saturating_mul(2), u32::MAX);
        self.credit_max_bytes().min(limits::CREDIT_START_BYTES.max(two_messages))
    }

    /// The maximum number of bytes that a connection has in flight. Each packet in flight takes memory, whatever it
    /// carries, so the send memory is a limit too.
    pub(crate) fn in_flight_limit_bytes(&self) -> usize {
        self.in_flight_bytes.min(self.send_memory_bytes.max(IN_FLIGHT_MIN_BYTES))
    }

    /// The bytes that a new connection may have in flight, at most half of its send memory.
    pub(crate) fn in_flight_start_bytes(&self) -> usize {
        let half = (self.send_memory_bytes / 2).max(IN_FLIGHT_MIN_BYTES);
        self.in_flight_limit_bytes().min(half).min(limits::IN_FLIGHT_START_BYTES)
    }

    /// Sets the number of connections.
    #[must_use]
    pub const fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// Sets the maximum number of bytes that a connection has in flight.
    #[must_use]
    pub const fn in_flight_bytes(mut self, bytes: usize) -> Self {
        self.in_flight_bytes = bytes;
        self
    }

    /// Sets the congestion control algorithm.
    #[must_use]
    pub const fn congestion(mut self, congestion: Congestion) -> Self {
        self.congestion = congestion;
        self
    }

    /// Sets the number of packets and the age after which a key is replaced.
    #[must_use]
    pub const fn rekey(mut self, packets: u64, interval: Duration) -> Self {
        self.rekey_packets = packets;
        self.rekey_interval = interval;
        self
    }

    /// Sets whether busy connections keep a flight record.
    #[must_use]
    pub const fn flight_recorder(mut self, is_on: bool) -> Self {
        self.flight_recorder = is_on;
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Returns the first field that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let timeouts =
            [("idle_timeout", self.idle_timeout), ("unacknowledged_timeout", self.unacknowledged_timeout)];
        for (field, timeout) in timeouts {
            let fits = timeout >= Duration::from_secs(1) && u32::try_from(timeout.as_millis()).is_ok();
            require(fits, field, "1 second to 49 days")?;
        }
        let is_available = !self.has_aes_gcm || Suite::Aes128Gcm.is_supported();
        require(is_available, "has_aes_gcm", "false in a build without feature accel")?;
        require(self.send_memory_bytes >= MEMORY_MIN_BYTES, "send_memory_bytes", "at least 4096")?;
        require(self.receive_memory_bytes >= MEMORY_MIN_BYTES, "receive_memory_bytes", "at least 4096")?;
        let is_enough = self.worker_memory_bytes >= WORKER_MEMORY_MIN_BYTES;
        require(is_enough, "worker_memory_bytes", "at least 1048576")?;
        let quarter = self.send_memory_bytes.min(self.receive_memory_bytes) / 4;
        let max_bytes = to_usize(wire_limits::MESSAGE_LIMIT_BYTES);
        let fits = (limits::VALUE_MAX_BYTES..=quarter.min(max_bytes)).contains(&self.message_max_bytes);
        require(fits, "message_max_bytes", "1024 to 16777216, and at most a quarter of either memory")?;
        let events_min = self.receive_memory_bytes.saturating_mul(2);
        require(
            self.event_memory_bytes >= events_min,
            "event_memory_bytes",
            "at least twice receive_memory_bytes",
        )?;
        require(self.in_flight_bytes >= IN_FLIGHT_MIN_BYTES, "in_flight_bytes", "at least 2400")?;
        let fits = (Path::START_BYTES..=DATAGRAM_FOUND_MAX_BYTES).contains(&self.datagram_max_bytes);
        require(fits, "datagram_max_bytes", "1200 to 1472")?;
        let is_rate = !matches!(self.congestion, Congestion::Fixed { bytes_per_second: 0..1_200 });
        require(is_rate, "congestion", "a fixed rate of at least 1200 bytes per second")?;
        let fits = (1..=limits::CONNECTIONS_MAX).contains(&self.connections);
        require(fits, "connections", "1 to 4194304 for each worker")?;
        require(self.pass_share_datagrams >= 1, "pass_share_datagrams", "at least 1")?;
        let fits = (replay::WINDOW_STEP..=replay::MAX_WINDOW).contains(&self.replay_window)
            && self.replay_window.is_multiple_of(replay::WINDOW_STEP);
        require(fits, "replay_window", "a multiple of 64 from 64 to 8192")?;
        let fits = (64..=limits::REKEY_PACKETS).contains(&self.rekey_packets);
        require(fits, "rekey_packets", "64 to 8388608")?;
        let fits = (Duration::from_secs(1)..=limits::REKEY_INTERVAL).contains(&self.rekey_interval);
        require(fits, "rekey_interval", "1 second to 15 minutes")
    }
}

/// The rule for when a client must prove its address with a cookie before a server does work for it (PROTOCOL 5.3, "The
/// server's part").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Cookie {
    /// A cookie is always required. A Hello from an address that is not proved costs a server next to nothing.
    #[default]
    Always,
    /// A cookie is required only above 64 handshakes per second or 128 half-open connections of one endpoint, and for 1
    /// s after that. Otherwise a connect takes one round trip less.
    UnderLoad,
}

/// The additional configuration of a server. Not `Clone`, because it holds secrets.
#[derive(Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The server's long-lived key pair.
    pub keys: ServerKeyPair,
    /// The number by which clients refer to the key. The default is 0.
    pub key_id: u32,
    /// The clients that may connect. The default is all.
    pub access: Access,
    /// The secret from which connection ids and reset tokens are derived. It must survive a restart.
    pub persistent: Secret<32>,
    /// Distinguishes servers with the same persistent secret: their connection ids, reset tokens, and resume tokens then
    /// differ. The default is empty.
    pub server_id: Vec<u8>,
    /// The secret of cookies: one per process, the same for all shards, never stored.
    pub process_key: Secret<32>,
    /// The rule for when a client must prove its address. The default is [`Cookie::Always`].
    pub cookie: Cookie,
    /// The shard of the server that this endpoint serves. The default is [`Shard::ONLY`].
    pub shard: Shard,
    /// The maximum number of half-open connections of this endpoint; at least 1. The default is 4,096.
    pub half_open: u32,
    /// The maximum number of half-open connections of one source; at least 1. The default is 16 in open access, and 256
    /// with tokens.
    pub half_open_per_source: u16,
    /// The number of key agreements per second, which is also the burst; at least 1. The default is 2,000.
    pub handshakes_per_second: u32,
    /// The number of attempts of one source per second, whatever their outcome: Hellos that prove their address and
    /// were not answered before. Key agreements of one source have a separate limit of the same size. At least 1; the
    /// default is 20 in open access, and 500 with tokens.
    pub source_handshakes_per_second: u32,
    /// The burst of attempts, and of key agreements, of one source; at least 1. The default is 20 in open access, and 1,000
    /// with tokens.
    pub source_handshakes_burst: u32,
    /// The number of Retries and Refuses per second; at least 1. The burst is a tenth of it. The default is 10,000.
    pub retries_per_second: u32,
}

impl ServerConfig {
    /// Creates a configuration with one shard and the default limits.
    #[must_use]
    pub const fn new(keys: ServerKeyPair, persistent: Secret<32>, process_key: Secret<32>) -> Self {
        Self {
            keys,
            key_id: 0,
            access: Access::Open,
            persistent,
            server_id: Vec::new(),
            process_key,
            cookie: Cookie::Always,
            shard: Shard::ONLY,
            half_open: limits::HALF_OPEN,
            half_open_per_source: limits::HALF_OPEN_PER_SOURCE,
            handshakes_per_second: limits::HANDSHAKES_PER_SECOND,
            source_handshakes_per_second: limits::SOURCE_HANDSHAKES_PER_SECOND,
            source_handshakes_burst: limits::SOURCE_HANDSHAKES_PER_SECOND,
            retries_per_second: limits::RETRIES_PER_SECOND,
        }
    }

    /// Sets the clients that may connect, and the limits per source that suit them.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        let (half_open, per_second, burst) = match access {
            Access::Open => (
                limits::HALF_OPEN_PER_SOURCE,
                limits::SOURCE_HANDSHAKES_PER_SECOND,
                limits::SOURCE_HANDSHAKES_PER_SECOND,
            ),
            Access::Token(_) => (
                limits::TOKEN_HALF_OPEN_PER_SOURCE,
                limits::TOKEN_SOURCE_HANDSHAKES_PER_SECOND,
                limits::TOKEN_SOURCE_HANDSHAKES_BURST,
            ),
        };
        self.access = access;
        self.half_open_per_source = half_open;
        self.source_handshakes_per_second = per_second;
        self.source_handshakes_burst = burst;
        self
    }

    /// Sets the id that distinguishes servers with the same persistent secret.
    #[must_use]
    pub fn server_id(mut self, server_id: &[u8]) -> Self {
        self.server_id = server_id.to_vec();
        self
    }

    /// Sets when a client must prove its address.
    #[must_use]
    pub const fn cookie(mut self, cookie: Cookie) -> Self {
        self.cookie = cookie;
        self
    }

    /// Sets the shard that this endpoint serves.
    #[must_use]
    pub const fn shard(mut self, shard: Shard) -> Self {
        self.shard = shard;
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Returns the first field that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let count = self.shard.count.get();
        let is_known = self.shard.index < count && count <= drumfire_wire::limits::STEERING_SOCKETS_MAX;
        require(is_known, "shard", "an index below a count of at most 1024")?;
        require(self.half_open >= 1, "half_open", "at least 1")?;
        require(self.half_open_per_source >= 1, "half_open_per_source", "at least 1")?;
        require(self.handshakes_per_second >= 1, "handshakes_per_second", "at least 1")?;
        require(self.source_handshakes_per_second >= 1, "source_handshakes_per_second", "at least 1")?;
        require(self.source_handshakes_burst >= 1, "source_handshakes_burst", "at least 1")?;
        self.access.check()?;
        require(self.retries_per_second >= 1, "retries_per_second", "at least 1")
    }
}

/// The additional configuration of a client.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Whether the socket has many connections. Packets to it then carry connection ids. Otherwise it has one
    /// connection.
    pub has_many_connections: bool,
}

impl ClientConfig {
    /// Creates a configuration for a socket with many connections, for bots and gateways.
    #[must_use]
    pub const fn many() -> Self {
        Self { has_many_connections: true }
    }

    pub(crate) const fn ids(self) -> ConnectionIdLength {
        if self.has_many_connections { ConnectionIdLength::Eight } else { ConnectionIdLength::Zero }
    }
}

/// The server to which a client connects, identified by its public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The server's public key for X25519.
    pub public_key: [u8; 32],
    /// The number by which the server knows the key.
    pub key_id: u32,
}

const fn require(fits: bool, field: &'static str, must_be: &'static str) -> Result<(), ConfigError> {
    if fits { Ok(()) } else { Err(ConfigError { field, must_be }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(config: &Config) -> Option<&'static str> {
        config.check().err().map(|error| error.field)
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(field(&Config::default()), None);
        let server = ServerConfig::new(
            ServerKeyPair::from_secret(Secret::new([1; 32])),
            Secret::new([2; 32]),
            Secret::new([3; 32]),
        );
        assert_eq!(server.check(), Ok(()));
    }

    #[test]
    fn every_bound_is_named_and_exact() {
        let second = Duration::from_secs(1);
        let short = second - Duration::from_nanos(1);
        let ok = Config::default;
        assert_eq!(field(&ok().timeouts(second, second)), None);
        assert_eq!(field(&ok().timeouts(short, second)), Some("idle_timeout"));
        assert_eq!(field(&ok().timeouts(second, short)), Some("unacknowledged_timeout"));
        assert_eq!(field(&ok().timeouts(Duration::MAX, second)), Some("idle_timeout"));
        assert_eq!(field(&ok().memory_bytes(4_095, 4_096)), Some("send_memory_bytes"));
        assert_eq!(field(&ok().memory_bytes(4_096, 4_095)), Some("receive_memory_bytes"));
        assert_eq!(field(&ok().worker_memory_bytes(1_048_575)), Some("worker_memory_bytes"));
        assert_eq!(field(&ok().worker_memory_bytes(1_048_576)), None);
        assert_eq!(field(&ok().memory_bytes(4_096, 4_096)), None);
        assert_eq!(field(&ok().memory_bytes(4_096, 4 << 20)), None);
        assert_eq!(field(&ok().memory_bytes(4_096, (4 << 20) + 1)), Some("event_memory_bytes"));
        for (bytes, fits) in [(1_023, false), (1_024, true), (262_144, true), (262_145, false)] {
            let wrong = (!fits).then_some("message_max_bytes");
            assert_eq!(field(&ok().message_max_bytes(bytes)), wrong, "{bytes}");
        }
        let large = ok().memory_bytes(1 << 27, 1 << 27).message_max_bytes(1 << 24);
        assert_eq!(field(&large), Some("event_memory_bytes"));
        assert_eq!(field(&ok().in_flight_bytes(2_399)), Some("in_flight_bytes"));
        assert_eq!(field(&ok().in_flight_bytes(2_400)), None);
        assert_eq!(field(&ok().connections(0)), Some("connections"));
        assert_eq!(field(&ok().connections(limits::CONNECTIONS_MAX)), None);
        assert_eq!(field(&ok().connections(limits::CONNECTIONS_MAX + 1)), Some("connections"));
        for (bytes, fits) in [(1_199, false), (1_200, true), (1_472, true), (1_473, false)] {
            let mut config = ok();
            config.datagram_max_bytes = bytes;
            assert_eq!(field(&config), (!fits).then_some("datagram_max_bytes"));
        }
        for (bytes_per_second, wrong) in [(1_199, Some("congestion")), (1_200, None)] {
            assert_eq!(field(&ok().congestion(Congestion::Fixed { bytes_per_second })), wrong);
        }
        let minutes = Duration::from_secs(15 * 60);
        for (packets, interval, wrong) in [
            (63, minutes, Some("rekey_packets")),
            (64, minutes, None),
            (1 << 23, second, None),
            ((1 << 23) + 1, second, Some("rekey_packets")),
            (64, short, Some("rekey_interval")),
            (64, minutes + Duration::from_nanos(1), Some("rekey_interval")),
        ] {
            assert_eq!(field(&ok().rekey(packets, interval)), wrong);
        }
        for (window, fits) in
            [(0, false), (63, false), (64, true), (65, false), (8_192, true), (8_256, false)]
        {
            assert_eq!(field(&Config { replay_window: window, ..ok() }).is_none(), fits, "{window}");
        }
    }

    #[test]
    fn a_shard_beyond_its_count_is_refused() {
        let server = ServerConfig::new(
            ServerKeyPair::from_secret(Secret::new([1; 32])),
            Secret::new([2; 32]),
            Secret::new([3; 32]),
        );
        let beyond = Shard { index: 1, ..Shard::ONLY };
        assert_eq!(server.shard(beyond).check().map_err(|error| error.field), Err("shard"));
    }
}
