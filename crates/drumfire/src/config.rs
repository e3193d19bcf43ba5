//! What a server and a client are told when they are made: checked once, named when it cannot be used, never
//! changed silently.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use drumfire_proto::{Access as CoreAccess, Config, Congestion, Cookie, TokenAccess as CoreTokenAccess};
use drumfire_socket::Wait;

use crate::admission::{AcceptHook, AdmissionConfig, Applicant, Verdict};
use crate::entropy::EntropyError;
use crate::keys::ServerKey;
use crate::tokens::TokenAccess;
use crate::workers::Workers;

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
    /// Tells servers with the same key apart, so that none can end the connections of another. Empty by default.
    pub server_id: String,
    /// How many threads receive. [`Workers::Inline`] by default.
    pub workers: Workers,
    /// How the threads wait. The best this platform has by default.
    pub wait: Wait,
    /// The game and its build: clients must have the same. 0 by default.
    pub protocol_id: u64,
    /// Connections, half-open ones included, over all workers; at least 1, 65,536 by default.
    pub connections: u32,
    /// Bytes of messages a peer may have waiting for its worker, each charged 64 B more; at least 4 KiB,
    /// 256 KiB by default. Its connection keeps as much again until it is acknowledged.
    pub send_memory_bytes: usize,
    /// Bytes of messages a peer may have waiting for the application, charged alike; at least 4 KiB, 256 KiB by
    /// default.
    pub receive_memory_bytes: usize,
    /// Bytes of the longest reliable message, both ways; 1 KiB to 16 MiB and at most a quarter of either memory, 64 KiB by
    /// default. Clients should have the same: of two that differ the smaller holds.
    pub message_max_bytes: usize,
    /// How a connection finds out how fast it may send to a client. [`Congestion::Delay`] by default.
    pub congestion: Congestion,
    /// A connection ends when its peer was silent for this long; 1 s to 49 days, 30 s by default.
    pub silent_timeout: Duration,
    /// A connection ends when a packet was not acknowledged for this long; 1 s to 49 days, 10 s by default.
    pub unacknowledged_timeout: Duration,
    /// Receive buffer to ask the kernel for, per worker, in bytes; `None`, the default, leaves it as it is.
    pub receive_buffer_bytes: Option<usize>,
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
            message_max_bytes: core.message_max_bytes,
            congestion: core.congestion,
            silent_timeout: core.silent_timeout,
            unacknowledged_timeout: core.unacknowledged_timeout,
            receive_buffer_bytes: None,
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

    /// Sets both timeouts.
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

    /// Refuses what the core cannot know: who may see the development key.
    pub(crate) fn check(&self) -> Result<(), BindError> {
        let is_public = !is_loopback(self.address.ip()) || !matches!(self.access, Access::Open);
        if self.key.is_dev() && is_public {
            return Err(BindError::DevKey);
        }
        self.workers.check().map_err(|problem| BindError::Setting { field: "workers", problem })?;
        self.admission.check()
    }

    /// What the core is told; `workers` share the connections evenly.
    pub(crate) fn core(&self, workers: u16) -> Config {
        core(
            self.protocol_id,
            self.connections.div_ceil(u32::from(workers.max(1))),
            (self.send_memory_bytes, self.receive_memory_bytes, self.message_max_bytes),
            (self.silent_timeout, self.unacknowledged_timeout),
        )
        .congestion(self.congestion)
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Bytes of the largest datagram where no path can be asked what it carries.
pub(crate) const DATAGRAM_START_BYTES: u16 = 1_200;

/// Settings of a [`crate::Client`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The game and its build: the server must have the same. 0 by default.
    pub protocol_id: u64,
    /// Bytes of messages that may wait before the connection takes them, each charged 64 B more; at least
    /// 4 KiB, 256 KiB by default. The connection keeps as much again until it is acknowledged.
    pub send_memory_bytes: usize,
    /// Bytes of messages that may wait for the application, charged alike; at least 4 KiB, 256 KiB by default.
    pub receive_memory_bytes: usize,
    /// Bytes of the longest reliable message, both ways; 1 KiB to 16 MiB and at most a quarter of either memory, 64 KiB by
    /// default. The server should have the same: of two that differ the smaller holds.
    pub message_max_bytes: usize,
    /// How the connection finds out how fast it may send to the server. [`Congestion::Delay`] by default.
    pub congestion: Congestion,
    /// The connection ends when the server was silent for this long; 1 s to 49 days, 30 s by default.
    pub silent_timeout: Duration,
    /// The connection ends when a packet was not acknowledged for this long; 1 s to 49 days, 10 s by default.
    pub unacknowledged_timeout: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        let core = Config::default();
        Self {
            protocol_id: core.protocol_id,
            send_memory_bytes: core.send_memory_bytes,
            receive_memory_bytes: core.receive_memory_bytes,
            message_max_bytes: core.message_max_bytes,
            congestion: core.congestion,
            silent_timeout: core.silent_timeout,
            unacknowledged_timeout: core.unacknowledged_timeout,
        }
    }
}

impl ClientConfig {
    /// Sets the number that the server must have too.
    #[must_use]
    pub fn protocol_id(mut self, protocol_id: u64) -> Self {
        self.protocol_id = protocol_id;
        self
    }

    /// Sets the memory for sending and for receiving, in bytes; the longest message becomes at most a quarter of the smaller.
    #[must_use]
    pub fn memory_bytes(mut self, send: usize, receive: usize) -> Self {
        self.send_memory_bytes = send;
        self.receive_memory_bytes = receive;
        self.message_max_bytes = self.message_max_bytes.min(send.min(receive) / 4);
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

    /// Sets both timeouts.
    #[must_use]
    pub fn timeouts(mut self, silent: Duration, unacknowledged: Duration) -> Self {
        self.silent_timeout = silent;
        self.unacknowledged_timeout = unacknowledged;
        self
    }

    pub(crate) fn core(&self) -> Config {
        core(
            self.protocol_id,
            1,
            (self.send_memory_bytes, self.receive_memory_bytes, self.message_max_bytes),
            (self.silent_timeout, self.unacknowledged_timeout),
        )
        .congestion(self.congestion)
    }
}

fn core(
    protocol_id: u64,
    connections: u32,
    (send, receive, message_max): (usize, usize, usize),
    (silent, unacknowledged): (Duration, Duration),
) -> Config {
    let mut config = Config::default()
        .protocol_id(protocol_id)
        .connections(connections)
        .memory_bytes(send, receive)
        .message_max_bytes(message_max)
        .timeouts(silent, unacknowledged);
    // All peers together may hold what the core's default allows, or twice what one of them may.
    config.event_memory_bytes = config.event_memory_bytes.max(receive.saturating_mul(2));
    config
}

/// Why a server or a client could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// A setting cannot be used.
    Setting {
        /// Its field.
        field: &'static str,
        /// What is wrong with it, or what it must be.
        problem: &'static str,
    },
    /// Everybody knows the development key: use a key of your own, or bind to a loopback address with
    /// [`Access::Open`].
    DevKey,
    /// The system has no randomness to give.
    Entropy(EntropyError),
    /// What the system answered: the port is in use, the address is not this host's, no descriptors.
    Io(io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { field, problem } => write!(f, "{field}: {problem}"),
            Self::DevKey => f.write_str(
                "everybody knows the development key: use a key of your own, or bind to a loopback address in open access",
            ),
            Self::Entropy(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}

impl From<EntropyError> for BindError {
    fn from(error: EntropyError) -> Self {
        Self::Entropy(error)
    }
}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<drumfire_proto::ConfigError> for BindError {
    fn from(error: drumfire_proto::ConfigError) -> Self {
        Self::Setting { field: error.field, problem: error.must_be }
    }
}

impl From<drumfire_socket::ConfigError> for BindError {
    fn from(error: drumfire_socket::ConfigError) -> Self {
        Self::Setting { field: error.field(), problem: "cannot be used on this platform, or is out of range" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(address: &str, key: ServerKey) -> bool {
        let config = ServerConfig::new(address.parse().unwrap(), key, Access::Open);
        matches!(config.check(), Err(BindError::DevKey))
    }

    #[test]
    fn the_development_key_binds_to_loopback_alone() {
        for address in ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            assert!(!is_refused(address, ServerKey::dev()), "{address}");
        }
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
            assert!(is_refused(address, ServerKey::dev()), "{address}");
            assert!(!is_refused(address, ServerKey::from_bytes([9; 32])), "{address}");
        }
    }

    #[test]
    fn the_development_key_lets_nobody_in_by_token() {
        let key = crate::TokenMasterKey::generate().unwrap().token_key(1, "a").unwrap();
        let access = Access::Token(TokenAccess::new(key));
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), ServerKey::dev(), access);
        assert!(matches!(config.check(), Err(BindError::DevKey)));
    }

    #[test]
    fn bad_settings_are_named() {
        let field = |config: ClientConfig| config.core().check().err().map(|error| error.field);
        assert_eq!(field(ClientConfig::default()), None);
        assert_eq!(field(ClientConfig::default().memory_bytes(4_095, 4_096)), Some("send_memory_bytes"));
        assert_eq!(field(ClientConfig::default().memory_bytes(4_096, 16 << 20)), None);
        assert_eq!(field(ClientConfig::default().message_max_bytes(65_537)), Some("message_max_bytes"));
        let soon = Duration::from_millis(999);
        assert_eq!(field(ClientConfig::default().timeouts(soon, soon)), Some("silent_timeout"));
    }
}
