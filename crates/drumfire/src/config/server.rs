//! The settings of a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire_proto::{
    Access as CoreAccess, Config, Congestion, Cookie, LiveConfig, TokenAccess as CoreTokenAccess,
};
use drumfire_socket::{Wait, Waiter};

use super::check_receive_buffer;
use super::threads::Workers;
use crate::admission::AdmissionConfig;
use crate::admission::hook::{AcceptHook, Applicant, Verdict};
use crate::base::address::is_loopback;
use crate::base::error::Error;
use crate::base::setters::setters;
use crate::credentials::keys::ServerKey;
use crate::credentials::tokens::TokenAccess;

/// The rule for clients that connect. There is no default, so open access has to be requested explicitly.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(rename_all = "snake_case", try_from = "crate::config::text::secrets::AccessForm")
)]
#[non_exhaustive]
pub enum Access {
    /// Every client that knows the server's public key: for development, local networks, and tests.
    Open,
    /// Players with a token from the game's backend: for production.
    Token(TokenAccess),
}

impl Access {
    /// Returns the setting of the core. `since` is when the server started.
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
/// # Changes while the server runs
///
/// [`Control::reconfigure`](crate::Control::reconfigure) changes settings that are read when a connection begins. Existing
/// connections keep the settings with which they began.
///
/// | setting | changes | reason |
/// | --- | --- | --- |
/// | `connections` | yes | if more connections exist, none is closed, and none begins |
/// | `idle_timeout`, `unacknowledged_timeout` | yes | negotiated with each client when it connects |
/// | `congestion` | yes | each connection has its own controller |
/// | `cookie`, `worker_memory_bytes` | yes | read for each Hello |
/// | `access` | keys and audience | open access and access by token have different limits per address |
/// | `admission` | no | the hook can decide differently each time, and bans are added and removed on their own |
/// | number of threads | [`Control::set_threads`](crate::Control::set_threads) | |
/// | `workers` | no | the id of a connection names the socket of its worker |
/// | `address`, `receive_buffer_bytes` | no | properties of the sockets |
/// | `wait` | no | fixed when a thread starts |
/// | `key`, `server_id`, `protocol_id` | no | clients identify the server by them, and ids and tokens are derived from them |
/// | `send_memory_bytes`, `receive_memory_bytes`, `message_max_bytes` | no | the application and the workers share these limits |
/// | `in_flight_bytes` | no | depends on `send_memory_bytes` |
/// | `flight_recorder` | no | allocated with a connection |
/// | `conditioner` | [`Control::set_conditioner`](crate::Control::set_conditioner) | |
///
/// # From a file
///
/// With the feature `serde`, the settings are read from any format that serde supports. A setting with a default can be left out:
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
/// An unknown name is an error. Keep keys in files of their own: the errors of some formats quote the line that they cannot
/// parse, and the quote may end up in a log. Keys are left out when the settings are serialized. All settings in TOML:
///
#[doc = "```toml"]
#[doc = include_str!("../../docs/server.toml")]
#[doc = "```"]
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "crate::config::text::ServerForm")
)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The address to bind. Port 0 selects a free port.
    pub address: SocketAddr,
    /// The secret key by which the server proves its identity.
    #[cfg_attr(feature = "serde", serde(skip_serializing))]
    pub key: ServerKey,
    /// The rule for clients that connect.
    pub access: Access,
    /// The limits and the hook that decide which of these clients are admitted. By default, every client for which there is room.
    pub admission: AdmissionConfig,
    /// The rule for when a client has to prove its address before the server does any work for it. The default is [`Cookie::Always`].
    pub cookie: Cookie,
    /// Distinguishes servers with the same [`key`](ServerConfig::key). Without it, one of them could end the connections of another and
    /// accept its resume tokens. Keep it across restarts. Empty by default, which means the bound address and port. Servers with one key
    /// need different ids when they are bound to `0.0.0.0` or `[::]`, or when they have the same address in different networks.
    pub server_id: String,
    /// The number of sockets and threads. The default is [`Workers::Inline`].
    pub workers: Workers,
    /// The way in which the threads wait for datagrams. The default is the best way that the platform supports.
    pub wait: Wait,
    /// Identifies the game and its build. Clients need the same value. The default is 0.
    #[cfg_attr(feature = "serde", serde(with = "crate::config::text::number"))]
    pub protocol_id: u64,
    /// The number of connections of all workers together, including half-open ones; 1 to 4,194,304 for each worker,
    /// 65,536 by default.
    pub connections: u32,
    /// The memory in bytes for messages to a peer that wait to be sent or are not acknowledged, with a charge of 64 bytes for each
    /// message. The minimum is 4 KiB, and the default is 1 MiB.
    pub send_memory_bytes: usize,
    /// The memory in bytes for messages from a peer that wait for the application, with the same charge. The minimum is 4 KiB, and
    /// the default is 2 MiB. The peer begins with credit for 128 KiB of reliable messages, or for two of the longest messages if
    /// that is more, but at most for half of this memory. The credit grows up to that half while the application takes them.
    pub receive_memory_bytes: usize,
    /// The memory in bytes for messages of all connections of one worker, in both directions and with the same charge. When it is
    /// exceeded, the worker accepts no new connections: clients are refused because the server is full, and
    /// [`MemoryFull`](crate::stats::DropReason::MemoryFull) counts them. Existing connections keep their own limits. The minimum is
    /// 1 MiB, and the default is 512 MiB.
    pub worker_memory_bytes: usize,
    /// The longest reliable message in bytes, in both directions: 1 KiB to 16 MiB, and at most a quarter of the memory for sending
    /// and of that for receiving. `None`, the default, is 64 KiB, or a quarter of the smaller memory if that is less. If a client has
    /// another limit, the smaller one applies.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub message_max_bytes: Option<usize>,
    /// The limit of bytes in flight to a peer, in addition to that of the congestion controller. At least 2,400, 4 MiB by default. A
    /// connection begins with 128 KiB, or half of `send_memory_bytes` if that is less. It raises its limit up to this one while its path
    /// delivers more. `send_memory_bytes` here and half of `receive_memory_bytes` at the peer limit it too. The defaults are enough for 100
    /// Mbit/s at a round trip of 50 ms. For 100 ms, set both memories to 4 MiB.
    pub in_flight_bytes: usize,
    /// The congestion controller. The default is [`Congestion::Delay`].
    pub congestion: Congestion,
    /// A connection ends when nothing arrives from its peer for this time. The range is 1 s to 49 days, and the default is 30 s.
    #[cfg_attr(feature = "serde", serde(with = "drumfire_socket::duration_text"))]
    pub idle_timeout: Duration,
    /// A connection ends when a packet is not acknowledged for this time. The range is 1 s to 49 days, and the default is 10 s.
    #[cfg_attr(feature = "serde", serde(with = "drumfire_socket::duration_text"))]
    pub unacknowledged_timeout: Duration,
    /// The receive buffer that is requested from the kernel for each worker: 4 KiB to 1 GiB. `None`, the default, requests 4 MiB,
    /// accepts less, and never gets less than the kernel's default.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub receive_buffer_bytes: Option<usize>,
    /// Whether busy connections record their last events, in 3 KiB each. [`Event::FlightRecord`](crate::Event::FlightRecord)
    /// reports the record of a connection that ends abnormally. The default is on. It costs less than 2 % of the processor time of
    /// a packet.
    pub flight_recorder: bool,
    /// Simulates a bad network at the socket, to test a game. Each direction is a [`Link`](crate::conditioner::Link) with this
    /// configuration, so the delay applies twice to a round trip, and four times if both ends simulate.
    ///
    /// `None`, the default, is no simulation. [`LinkConfig::default()`](crate::conditioner::LinkConfig) is a perfect link, which
    /// [`Control::set_conditioner`](crate::Control::set_conditioner) can change later. See [`conditioner`](crate::conditioner).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub conditioner: Option<crate::conditioner::LinkConfig>,
}

common_settings!(ServerConfig);

impl ServerConfig {
    /// Creates settings with this address, key, and access, and defaults for the others.
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
            message_max_bytes: None,
            in_flight_bytes: core.in_flight_bytes,
            congestion: core.congestion,
            idle_timeout: core.idle_timeout,
            unacknowledged_timeout: core.unacknowledged_timeout,
            receive_buffer_bytes: None,
            flight_recorder: core.flight_recorder,
            conditioner: None,
        }
    }

    /// Sets the hook that decides about each client that passed all other checks. It is called once per handshake, before any key
    /// is computed. Workers can call it at the same time. All connections of the calling worker wait until it returns.
    /// If it panics, this client is refused with a time to try again, and [`AcceptPanicked`](crate::stats::DropReason::AcceptPanicked)
    /// counts it.
    ///
    /// A Hello that is repeated after it was accepted leads to its connection, and the hook is not called again. After a refusal it is
    /// called for each repetition. Decide in the same way each time: in open access, refusals are not authenticated, and a client accepts
    /// only the third one. An accepted client can still fail to connect, so count players by [`Event::Connected`](crate::Event::Connected).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # use drumfire::admission::*;
    /// # use drumfire::error::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// let config = config.accept(|applicant| {
    ///     if applicant.address.is_ipv6() {
    ///         let retry_after = Some(Duration::from_secs(60));
    ///         return Verdict::Refuse { reason: RefuseReason::Full, retry_after };
    ///     }
    ///     // All clients are in one room, so one worker serves them.
    ///     Verdict::AcceptAt(Placement::Key(7))
    /// });
    /// # let mut server = Server::bind(config)?;
    /// # let mut client = Client::new(ClientConfig::default())?;
    /// # client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// # loop {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::ZERO);
    /// #     if let Some(Event::Connected { .. }) = server.next_event() { break }
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn accept(mut self, hook: impl Fn(&Applicant<'_>) -> Verdict + Send + Sync + 'static) -> Self {
        self.admission.accept = Some(AcceptHook::new(hook));
        self
    }

    /// Checks all settings before a socket is opened. The error names the field.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.key.is_dev() && self.is_public() {
            return Err(Error::DevelopmentKey);
        }
        let ip = self.address.ip().to_canonical();
        if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
            let problem = "is a multicast or broadcast address: use an address of an interface, or 0.0.0.0 or [::] for all";
            return Err(Error::setting("address", problem));
        }
        self.workers.check().map_err(|problem| Error::setting("workers", problem))?;
        // An inline server does not use it, but an invalid value is still a mistake.
        Waiter::new(self.wait)?;
        check_receive_buffer(self.receive_buffer_bytes)?;
        super::check_conditioner(self.conditioner.as_ref())?;
        self.admission.check()?;
        Ok(self.core(self.workers.counts().sockets.get()).check()?)
    }

    /// Returns the id of this server, which is bound to `address`.
    pub(crate) fn effective_server_id(&self, address: SocketAddr) -> Vec<u8> {
        if !self.server_id.is_empty() {
            return self.server_id.as_bytes().to_vec();
        }
        let ip = match address.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        // No configured id begins with this byte, because it is not valid in UTF-8.
        [&[0xFF], ip.octets().as_slice(), &address.port().to_be_bytes()].concat()
    }

    /// Returns whether another server can have the same key and, because `server_id` is empty, the same id. A host in another network can
    /// have the same address.
    pub(crate) fn needs_server_id(&self) -> bool {
        self.server_id.is_empty() && self.is_public()
    }

    /// Returns whether players on other hosts can connect, or players come from a backend.
    fn is_public(&self) -> bool {
        !is_loopback(self.address.ip()) || !matches!(self.access, Access::Open)
    }

    /// Checks that this configuration differs from that of a running server only in settings that can change.
    pub(crate) fn check_live(&self, running: &Self) -> Result<(), Error> {
        let Self { admission, .. } = self;
        let fixed = [
            ("address", self.address == running.address),
            ("key", self.key.public() == running.key.public()),
            ("access", matches!(self.access, Access::Open) == matches!(running.access, Access::Open)),
            (
                "admission.connections_per_source",
                admission.connections_per_source == running.admission.connections_per_source,
            ),
            ("admission.busy_max_percent", admission.busy_max_percent == running.admission.busy_max_percent),
            ("admission.retry_after", admission.retry_after == running.admission.retry_after),
            ("server_id", self.server_id == running.server_id),
            ("workers", self.workers == running.workers),
            ("wait", self.wait == running.wait),
            ("protocol_id", self.protocol_id == running.protocol_id),
            ("send_memory_bytes", self.send_memory_bytes == running.send_memory_bytes),
            ("receive_memory_bytes", self.receive_memory_bytes == running.receive_memory_bytes),
            ("message_max_bytes", self.core(1).message_max_bytes == running.core(1).message_max_bytes),
            ("in_flight_bytes", self.in_flight_bytes == running.in_flight_bytes),
            ("receive_buffer_bytes", self.receive_buffer_bytes == running.receive_buffer_bytes),
            ("flight_recorder", self.flight_recorder == running.flight_recorder),
            ("conditioner", self.conditioner == running.conditioner),
        ];
        match fixed.iter().find(|(_, is_same)| !is_same) {
            Some(("access", _)) => Err(Error::setting(
                "access",
                "stays open or by token while the server runs: bind another server",
            )),
            Some((field, _)) => Err(Error::setting(field, "cannot change while the server runs")),
            None => Ok(()),
        }
    }

    /// Returns the settings of the core that can change, for each of these workers, which share the connections evenly.
    pub(crate) fn live(&self, workers: usize) -> LiveConfig {
        let mut live = LiveConfig::new(&self.core(u16::try_from(workers).unwrap_or(u16::MAX)));
        live.connections_total = self.connections;
        live.cookie = self.cookie;
        // A running server does not change the time from which tokens are accepted.
        live.access = self.access.core(Duration::ZERO);
        live
    }

    /// Returns the settings of the core for each of these workers, which share the connections evenly.
    pub(crate) fn core(&self, workers: u16) -> Config {
        let connections = self.connections.div_ceil(u32::from(workers.max(1)));
        self.shared_core(connections).worker_memory_bytes(self.worker_memory_bytes)
    }
}

setters! {
    ServerConfig:
    /// Sets the limits and the hook for new clients.
    admission(admission: AdmissionConfig) = admission;

    /// Sets when a client has to prove its address first.
    ///
    /// ```
    /// use drumfire::config::Cookie;
    /// # use drumfire::*;
    /// # let address = "127.0.0.1:0".parse().unwrap();
    /// # let config = ServerConfig::new(address, ServerKey::dev(), Access::Open);
    /// // A handshake takes one round trip less while the server is not under load.
    /// let config = config.cookie(Cookie::UnderLoad);
    /// ```
    cookie(cookie: Cookie) = cookie;

    /// Sets the id that distinguishes this server from others with the same key.
    server_id(server_id: impl Into<String>) = server_id.into();

    /// Sets the number of sockets and threads.
    workers(workers: Workers) = workers;

    /// Sets how the threads wait for datagrams.
    wait(wait: Wait) = wait;

    /// Sets the bytes of messages beyond which a worker accepts no new connections.
    worker_memory_bytes(bytes: usize) = bytes;
}
