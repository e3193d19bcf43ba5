//! The settings of a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire_proto::{Access as CoreAccess, Config, Congestion, Cookie, TokenAccess as CoreTokenAccess};
use drumfire_socket::{Wait, Waiter};

use super::threads::Workers;
use super::{check_receive_buffer, core};
use crate::admission::AdmissionConfig;
use crate::admission::hook::{AcceptHook, Applicant, Verdict};
use crate::base::address::is_loopback;
use crate::base::error::BindError;
use crate::credentials::keys::ServerKey;
use crate::credentials::tokens::TokenAccess;

/// Who may connect. It has no default: open access must be spelled out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Access {
    /// Everybody who knows the server's public key: for development, local networks and tests.
    Open,
    /// Players with a token of the game's backend: for production.
    Token(TokenAccess),
}

impl Access {
    /// What the core is told; `since` is when the server began.
    pub(crate) fn core(&self, since: Duration) -> CoreAccess {
        match self {
            Self::Open => CoreAccess::Open,
            Self::Token(access) => CoreAccess::Token(CoreTokenAccess {
                keys: access.keys.iter().map(|key| key.core().duplicate()).collect(),
                audience: access.audience,
                since,
            }),
        }
    }
}

/// Settings of a [`crate::Server`].
///
/// # While it serves
///
/// [`Server::reconfigure`](crate::Server::reconfigure) changes what is looked at when a connection begins; connections
/// there are keep what they began with. Nothing is asked for again with every packet.
///
/// | setting | changes | |
/// | --- | --- | --- |
/// | `connections` | yes | with more than that, none is closed and none begins |
/// | `silent_timeout`, `unacknowledged_timeout` | yes | agreed on with each client when it connects |
/// | `congestion` | yes | each connection makes its own |
/// | `cookie` | yes | asked for each Hello |
/// | `access` | its keys and audience | open access and access by token differ in what they allow each address |
/// | `admission` | by itself | its hook may answer as it likes, and bans come and go |
/// | threads | [`Server::set_threads`](crate::Server::set_threads) | |
/// | `workers` | no | connections stay with the worker whose socket their ids name |
/// | `address`, `receive_buffer_bytes` | no | belong to the sockets |
/// | `wait` | no | belongs to each thread from its start |
/// | `key`, `server_id`, `protocol_id` | no | clients know the server by them, and ids and tokens are made of them |
/// | `worker_memory_bytes` | yes | asked for each Hello |
/// | `send_memory_bytes`, `receive_memory_bytes`, `message_max_bytes` | no | the application and the workers count by them |
/// | `in_flight_bytes` | no | belongs to `send_memory_bytes` |
///
/// # From a file
///
/// With the feature `serde` they are read from any format that has serde, and whatever has a default may be left out:
///
/// ```
/// # #[cfg(feature = "serde")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use drumfire::*;
/// let config: ServerConfig = toml::from_str(r#"
///     address = "127.0.0.1:0"
///     key = "drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8"
///     access = "open"
/// "#)?;
/// let server = Server::bind(config.workers(Workers::Inline))?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "serde"))]
/// # fn main() {}
/// ```
///
/// A name that is not known is refused. Keys belong into files of their own: some formats show the line they do not
/// understand, and logs are read by many. When the settings are written, keys are left out. In TOML, all of them:
///
#[doc = "```toml"]
#[doc = include_str!("../../docs/server.toml")]
#[doc = "```"]
#[derive(Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Where to bind; port 0 takes a free one.
    pub address: SocketAddr,
    /// What the server proves itself with.
    pub key: ServerKey,
    /// Who may connect.
    pub access: Access,
    /// Who of those may come in now. Everybody for whom there is room by default.
    pub admission: AdmissionConfig,
    /// When a client must prove its address before the server does anything for it. [`Cookie::Always`] by default.
    pub cookie: Cookie,
    /// Tells servers with the same [`key`](ServerConfig::key) apart: without it, one of them could end the connections of another
    /// and accept its resume tokens. Keep it over a restart. Empty by default, which takes the address and port that the server
    /// is bound to. Servers with one key need names when they are bound to `0.0.0.0` or `[::]`, or when they have the same address
    /// in different networks.
    pub server_id: String,
    /// How many threads receive. [`Workers::Inline`] by default.
    pub workers: Workers,
    /// How the threads wait. The best this platform has by default.
    pub wait: Wait,
    /// The game and its build: clients must have the same. 0 by default.
    pub protocol_id: u64,
    /// The number of connections of all workers together, including half-open ones; 1 to 4,194,304 for each worker,
    /// 65,536 by default.
    pub connections: u32,
    /// Bytes of messages a peer may have waiting for its worker, each charged 64 B more; at least 4 KiB,
    /// 256 KiB by default. Its connection keeps as much again until it is acknowledged.
    pub send_memory_bytes: usize,
    /// Bytes of messages a peer may have waiting for the application, charged alike; at least 4 KiB, 256 KiB by
    /// default.
    pub receive_memory_bytes: usize,
    /// Bytes of messages that all connections of one worker keep, both ways and charged alike, beyond which that worker takes
    /// no more connections: clients hear that the server is full, and [`MemoryFull`](crate::DropReason::MemoryFull) counts. At
    /// least 1 MiB, 512 MiB by default. Peers that are there keep what each of them may.
    pub worker_memory_bytes: usize,
    /// Bytes of the longest reliable message, both ways; 1 KiB to 16 MiB and at most a quarter of either memory, 64 KiB by
    /// default. Clients should have the same: of two that differ the smaller holds.
    pub message_max_bytes: usize,
    /// Bytes of packets in flight to a peer, whatever the congestion controller allows; at least 2,400, 1 MiB by default. The
    /// memory limits the bytes in flight too: to half of `send_memory_bytes` here, and reliable messages to half of
    /// `receive_memory_bytes` at the peer. With the default memory a connection has 128 KiB in flight, enough for 20 Mbit/s at a
    /// round trip of 50 ms. For 100 Mbit/s set `send_memory_bytes` here and `receive_memory_bytes` at the peer to 2 MiB.
    pub in_flight_bytes: usize,
    /// How a connection finds out how fast it may send to a client. [`Congestion::Delay`] by default.
    pub congestion: Congestion,
    /// A connection ends when its peer was silent for this long; 1 s to 49 days, 30 s by default.
    pub silent_timeout: Duration,
    /// A connection ends when a packet was not acknowledged for this long; 1 s to 49 days, 10 s by default.
    pub unacknowledged_timeout: Duration,
    /// Receive buffer to ask the kernel for, per worker, in bytes, 4 KiB to 1 GiB. `None`, the default: 4 MiB or as much of it as
    /// the kernel gives, and never less than it gives to who asks for nothing.
    pub receive_buffer_bytes: Option<usize>,
    /// Whether busy connections keep a record of what happened to them last, 3 KiB each, which
    /// [`Event::FlightRecord`](crate::Event::FlightRecord) brings when one ends in another way than the applications wanted. On
    /// by default: it takes less than two percent of the processor time of a packet.
    pub flight_recorder: bool,
}

impl ServerConfig {
    /// A server at this address, with this key, for these clients.
    #[must_use]
    pub fn new(address: SocketAddr, key: ServerKey, access: Access) -> Self {
        let core = Config::default();
        Self {
            address,
            key,
            access,
            admission: AdmissionConfig::default(),
            cookie: Cookie::Always,
            server_id: String::new(),
            workers: Workers::Inline,
            wait: Wait::best(),
            protocol_id: core.protocol_id,
            connections: core.connections,
            send_memory_bytes: core.send_memory_bytes,
            receive_memory_bytes: core.receive_memory_bytes,
            worker_memory_bytes: core.worker_memory_bytes,
            message_max_bytes: core.message_max_bytes,
            in_flight_bytes: core.in_flight_bytes,
            congestion: core.congestion,
            silent_timeout: core.silent_timeout,
            unacknowledged_timeout: core.unacknowledged_timeout,
            receive_buffer_bytes: None,
            flight_recorder: core.flight_recorder,
        }
    }

    /// Sets who may come in now.
    #[must_use]
    pub fn admission(mut self, admission: AdmissionConfig) -> Self {
        self.admission = admission;
        self
    }

    /// Sets who decides about everybody who passed all other checks: once per handshake, before anything of it is computed.
    /// It is called by the workers, by several at once, and holds up all connections of its worker for as long as it takes.
    /// When it panics, that one applicant is told to come back later, and
    /// [`AcceptPanicked`](crate::DropReason::AcceptPanicked) counts.
    ///
    /// A Hello that is repeated because an answer was lost finds its connection, and asks nobody; one that was refused is
    /// asked about again when it comes again, and in open access a client believes the third refusal: answer the same.
    /// Who was accepted may still come to nothing: count players by [`Event::Connected`](crate::Event::Connected).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// let config = config.accept(|applicant| {
    ///     if applicant.address.is_ipv6() {
    ///         let retry_after = Some(Duration::from_secs(60));
    ///         return Verdict::Refuse { reason: RefuseReason::Full, retry_after };
    ///     }
    ///     // Everybody in one room, with one worker.
    ///     Verdict::AcceptAt(Placement::Key(7))
    /// });
    /// # let mut server = Server::bind(config)?;
    /// # let mut client = Client::connect_dev(server.local_addr())?;
    /// # loop {
    /// #     client.wait(Duration::from_millis(1));
    /// #     client.poll();
    /// #     if let Some(Event::Connected { .. }) = server.poll().next() { break }
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn accept(mut self, hook: impl Fn(&Applicant<'_>) -> Verdict + Send + Sync + 'static) -> Self {
        self.admission.accept = Some(AcceptHook::new(hook));
        self
    }

    /// Sets when a client must prove its address first.
    ///
    /// ```
    /// # use drumfire::*;
    /// # let address = "127.0.0.1:0".parse().unwrap();
    /// # let config = ServerConfig::new(address, ServerKey::dev(), Access::Open);
    /// // A connect takes one round trip less while the server is calm.
    /// let config = config.cookie(Cookie::UnderLoad);
    /// ```
    #[must_use]
    pub fn cookie(mut self, cookie: Cookie) -> Self {
        self.cookie = cookie;
        self
    }

    /// Sets what tells this server from others with the same key.
    #[must_use]
    pub fn server_id(mut self, server_id: impl Into<String>) -> Self {
        self.server_id = server_id.into();
        self
    }

    /// Sets how many threads receive.
    #[must_use]
    pub fn workers(mut self, workers: Workers) -> Self {
        self.workers = workers;
        self
    }

    /// Sets how the threads wait.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the number that clients must have too.
    #[must_use]
    pub fn protocol_id(mut self, protocol_id: u64) -> Self {
        self.protocol_id = protocol_id;
        self
    }

    /// Sets how many connections there may be.
    #[must_use]
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// Sets the memory of each peer for sending and for receiving, in bytes; the longest message becomes at most a quarter of
    /// the smaller.
    #[must_use]
    pub fn memory_bytes(mut self, send: usize, receive: usize) -> Self {
        self.send_memory_bytes = send;
        self.receive_memory_bytes = receive;
        self.message_max_bytes = self.message_max_bytes.min(send.min(receive) / 4);
        self
    }

    /// Sets how many bytes of messages a worker's connections may keep before it takes no more of them.
    #[must_use]
    pub fn worker_memory_bytes(mut self, bytes: usize) -> Self {
        self.worker_memory_bytes = bytes;
        self
    }

    /// Sets how many bytes a connection has in flight at most.
    #[must_use]
    pub fn in_flight_bytes(mut self, bytes: usize) -> Self {
        self.in_flight_bytes = bytes;
        self
    }

    /// Sets how to find out how fast to send.
    #[must_use]
    pub fn congestion(mut self, congestion: Congestion) -> Self {
        self.congestion = congestion;
        self
    }

    /// Sets how long a reliable message may be, in bytes.
    #[must_use]
    pub fn message_max_bytes(mut self, bytes: usize) -> Self {
        self.message_max_bytes = bytes;
        self
    }

    /// Sets both timeouts, 1 s to 49 days each: how long the peer may be silent, and how long a packet may go unacknowledged.
    #[must_use]
    pub fn timeouts(mut self, silent: Duration, unacknowledged: Duration) -> Self {
        self.silent_timeout = silent;
        self.unacknowledged_timeout = unacknowledged;
        self
    }

    /// Sets the receive buffer to ask for, per worker, in bytes.
    #[must_use]
    pub fn receive_buffer_bytes(mut self, bytes: usize) -> Self {
        self.receive_buffer_bytes = Some(bytes);
        self
    }

    /// Sets whether busy connections keep a flight record.
    #[must_use]
    pub fn flight_recorder(mut self, is_on: bool) -> Self {
        self.flight_recorder = is_on;
        self
    }

    /// Refuses what cannot be used, by the name of its field, before anything is made of it.
    pub(crate) fn check(&self) -> Result<(), BindError> {
        if self.key.is_dev() && self.is_public() {
            return Err(BindError::DevKey);
        }
        let ip = self.address.ip().to_canonical();
        if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
            let problem = "is for many hosts: take one that an interface has, or 0.0.0.0 or [::] for all";
            return Err(BindError::Setting { field: "address", problem });
        }
        self.workers.check().map_err(|problem| BindError::Setting { field: "workers", problem })?;
        // Inline it is not used, and still not what anybody meant.
        Waiter::new(self.wait)?;
        check_receive_buffer(self.receive_buffer_bytes)?;
        self.admission.check()?;
        Ok(self.core(1).check()?)
    }

    /// Returns what tells this server, bound to `address`, from others with the same key.
    pub(crate) fn effective_server_id(&self, address: SocketAddr) -> Vec<u8> {
        if !self.server_id.is_empty() {
            return self.server_id.as_bytes().to_vec();
        }
        let ip = match address.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        // No id in UTF-8 begins with this byte.
        [&[0xFF], ip.octets().as_slice(), &address.port().to_be_bytes()].concat()
    }

    /// Whether other servers may have the same key and, because `server_id` is empty, the same id. An address of one host alone
    /// is still the address of other hosts in other networks.
    pub(crate) fn needs_server_id(&self) -> bool {
        self.server_id.is_empty() && self.is_public()
    }

    /// Whether players of other hosts may connect, or a backend sends players.
    fn is_public(&self) -> bool {
        !is_loopback(self.address.ip()) || !matches!(self.access, Access::Open)
    }

    /// What the core is told; `workers` share the connections evenly.
    pub(crate) fn core(&self, workers: u16) -> Config {
        core(
            self.protocol_id,
            self.connections.div_ceil(u32::from(workers.max(1))),
            (self.send_memory_bytes, self.receive_memory_bytes, self.message_max_bytes),
            (self.silent_timeout, self.unacknowledged_timeout),
        )
        .worker_memory_bytes(self.worker_memory_bytes)
        .in_flight_bytes(self.in_flight_bytes)
        .congestion(self.congestion)
        .flight_recorder(self.flight_recorder)
    }
}
