//! The client, as a game loop uses it: `poll`, `send`, `flush`, like the server, and no thread.

#[cfg(feature = "testing")]
mod in_memory;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    Alone, ChannelId, ClientConfig as CoreClient, CloseCode, CloseError, ConnectError, Endpoint, IssuedToken,
    SendError, SendOptions, ServerIdentity,
};
use drumfire_socket::{Poller, Receiver, ReceiverConfig, Socket, Wait, Waiter};

use crate::clock::{self, SystemClock};
use crate::config::{BindError, ClientConfig};
use crate::entropy;
use crate::event::{ClientEvent, Events, Home};
use crate::front::Front;
use crate::keys::{ServerKey, ServerPublicKey};
use crate::link::{Bell, Link, Report};
use crate::peer::PeerId;
use crate::stats::WorkerStats;
use crate::tokens::ConnectToken;
use crate::worker::{Parts, SocketWorker, rings};

/// How far a client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// It asked and waits for the answer. Messages may be sent already.
    Connecting,
    /// The server is there.
    Connected,
    /// There is no connection any more, or never was one.
    Closed,
}

/// A connection to a server.
///
/// Dropping it closes the connection and tells the server once.
pub struct Client {
    front: Front,
    worker: Box<SocketWorker<Alone>>,
    home: Home<ClientEvent>,
    peer: PeerId,
    state: ClientState,
    /// Where the server is, and what a token for it must say.
    server: SocketAddr,
    key: ServerPublicKey,
    protocol_id: u64,
    /// Kept here, because it is wanted when the connection is gone.
    resume: Option<ConnectToken>,
    /// A wait did the I/O, and no poll since.
    has_worked: bool,
}

impl Client {
    /// Begins to connect to the server at `server` that has this key. What comes of it is an event: `Connected`,
    /// or `ConnectFailed` after 5 s at most.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nobody = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    /// let key = ServerKey::generate()?.public();
    /// let mut client = Client::connect(nobody, key, &ClientConfig::default())?;
    /// assert_eq!(client.state(), ClientState::Connecting);
    /// client.wait(Duration::from_secs(10));
    /// let timeout = ClientEvent::ConnectFailed { error: ConnectError::Timeout };
    /// assert_eq!(client.poll().next(), Some(timeout));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BindError`] naming the setting that cannot be used, or what the system answered.
    pub fn connect(
        server: SocketAddr,
        key: ServerPublicKey,
        config: &ClientConfig,
    ) -> Result<Self, BindError> {
        Self::begin(&Whom { server, key, token: None }, config)
    }

    /// [`Client::connect`] to the server that the token names, as the player it names.
    ///
    /// # Errors
    ///
    /// [`BindError`] naming the setting that cannot be used (the protocol id must be the token's), or what the
    /// system answered.
    pub fn connect_with_token(token: &ConnectToken, config: &ClientConfig) -> Result<Self, BindError> {
        Self::begin(&Whom::of_token(token, config)?, config)
    }

    fn begin(whom: &Whom<'_>, config: &ClientConfig) -> Result<Self, BindError> {
        let core = config.core();
        core.check()?;
        let endpoint = Endpoint::client(core.clone(), CoreClient::default(), entropy::secret()?)?;
        let mut socket = Socket::connect(whom.server, None)?;
        let mut parker = Poller::new()?;
        parker.register(&mut socket, 0)?;
        let receiver = Receiver::new(&mut socket, &ReceiverConfig::default())?;
        let links = vec![Arc::new(Link::new(Arc::new(Bell::default())))];
        let (Some(link), Some(ring)) = (links.first().cloned(), rings(&links).pop()) else {
            return Err(BindError::Io(std::io::ErrorKind::Other.into()));
        };
        let mut worker = Box::new(SocketWorker::new(Parts {
            index: 0,
            has_gso: socket.granted().has_gso,
            is_connected: true,
            io: socket,
            parker,
            clock: SystemClock::start(),
            waiter: Waiter::new(Wait::Notify)?,
            receiver,
            endpoint,
            credit_bytes: core.send_memory_bytes,
            make: Box::new(move || {
                Endpoint::client(core.clone(), CoreClient::default(), entropy::secret().ok()?).ok()
            }),
            link,
            ring,
        }));
        let begun = worker.connect(whom.server, &whom.identity(), whom.token);
        let (peer, credit) = begun.map_err(bad_key)?;
        let mut front = Front::new(links);
        front.add(peer, credit);
        worker.send();
        Ok(Self::new(front, worker, peer, whom, config))
    }

    fn new(
        front: Front,
        worker: Box<SocketWorker<Alone>>,
        peer: PeerId,
        whom: &Whom<'_>,
        config: &ClientConfig,
    ) -> Self {
        Self {
            front,
            worker,
            home: Home::new(),
            peer,
            state: ClientState::Connecting,
            server: whom.server,
            key: whom.key,
            protocol_id: config.protocol_id,
            resume: None,
            has_worked: false,
        }
    }

    /// [`Client::connect`] to a server with [`ServerKey::dev`], with the default settings: for first steps and
    /// tests. Everybody can pose as that server.
    ///
    /// # Errors
    ///
    /// What the system answered.
    pub fn connect_dev(server: SocketAddr) -> Result<Self, BindError> {
        Self::connect(server, ServerKey::dev().public(), &ClientConfig::default())
    }

    /// How far it has come, as of the last `poll` or `wait`.
    #[must_use]
    pub fn state(&self) -> ClientState {
        self.state
    }

    /// Does the I/O without waiting and answers what happened since the last call. Call it often enough, at
    /// least some ten times per second.
    pub fn poll(&mut self) -> Events<ClientEvent> {
        let has_flushed = self.front.flush();
        // What a wait has just done need not be done again.
        if !std::mem::take(&mut self.has_worked) || has_flushed {
            self.worker.work();
        }
        self.gather();
        self.home.take()
    }

    /// Does the I/O until there are events to poll, at most for `timeout`; answers whether there are.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        self.front.flush();
        let start = clock::instant();
        loop {
            self.gather();
            if !self.home.is_empty() {
                return true;
            }
            let left = timeout.saturating_sub(clock::instant().saturating_duration_since(start));
            if left.is_zero() {
                return false;
            }
            self.worker.wait(Some(left));
            self.worker.work();
            self.has_worked = true;
        }
    }

    /// Takes a message for the server; it leaves with the next `flush` or `poll`.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing of the message was taken then. `UnknownPeer` once the connection is over.
    pub fn send(
        &mut self,
        channel: ChannelId,
        bytes: impl Into<Bytes>,
        options: SendOptions,
    ) -> Result<(), SendError> {
        self.front.send(self.peer, channel, bytes.into(), options)
    }

    /// Sends everything that was taken since the last call.
    pub fn flush(&mut self) {
        self.front.flush();
        self.worker.send();
    }

    /// Closes the connection, with the next `flush` or `poll`, with a code of the application's own and a line
    /// for the server's log. `Disconnected` comes last, here too.
    ///
    /// # Errors
    ///
    /// [`CloseError`]: the text is longer than [`CLOSE_TEXT_MAX_BYTES`](crate::CLOSE_TEXT_MAX_BYTES), or the
    /// connection is over.
    pub fn close(&mut self, code: u32, text: &str) -> Result<(), CloseError> {
        self.front.close(self.peer, code, text)
    }

    /// What lets this player come back to this server with [`Client::connect_with_token`], also after the connection is
    /// lost or the server was restarted. A server with access by token sends one when it has let the player in, and
    /// another from time to time; each is good for ten minutes, once, but never longer than the session.
    ///
    /// It opens a new connection: what was under way is not carried over.
    #[must_use]
    pub fn resume_token(&self) -> Option<&ConnectToken> {
        self.resume.as_ref()
    }

    /// Goes on from a new socket, for a device that changed its network or woke up: the server follows, nothing reliable
    /// is lost, and packets carry another connection id from then on, if the server has given one. An address that changes on its way
    /// through the network, as a NAT does it, needs no call.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.workers(Workers::Inline))?;
    /// # let mut client = Client::connect_dev(server.local_addr())?;
    /// # while client.state() != ClientState::Connected {
    /// #     client.wait(Duration::from_millis(1));
    /// #     server.wait(Duration::from_millis(1));
    /// #     (client.poll(), server.poll());
    /// # }
    /// client.send(ChannelId(0), "from here", SendOptions::reliable_ordered())?;
    /// client.rebind()?;
    /// client.send(ChannelId(0), "and from there", SendOptions::reliable_ordered())?;
    /// # let mut messages = 0;
    /// # while messages < 2 {
    /// #     client.wait(Duration::from_millis(1));
    /// #     server.wait(Duration::from_millis(1));
    /// #     client.poll();
    /// #     messages += server.poll().filter(|event| matches!(event, Event::Message { .. })).count();
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What the system answered; then the client goes on from the socket it has.
    pub fn rebind(&mut self) -> std::io::Result<()> {
        self.flush();
        self.worker.rebind(self.peer, Socket::connect(self.server, None)?)
    }

    /// What the client counted.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.front.stats().workers.pop().unwrap_or_default()
    }

    /// Keeps the newest resume token.
    fn keep_resume_token(&mut self) {
        let Some((issued, expires_at)) = self.worker.resume_token(self.peer) else { return };
        if self.resume.as_ref().is_none_or(|kept| kept.issued() != issued) {
            let (server, protocol_id) = (self.key, self.protocol_id);
            let issued = issued.duplicate();
            self.resume =
                Some(ConnectToken { address: self.server, server, protocol_id, expires_at, issued });
        }
    }

    fn gather(&mut self) {
        self.keep_resume_token();
        let state = &mut self.state;
        self.home.add(self.front.gather().map(|report| match report {
            Report::Connected { .. } => {
                *state = ClientState::Connected;
                ClientEvent::Connected
            }
            Report::ConnectFailed { error, .. } => {
                *state = ClientState::Closed;
                ClientEvent::ConnectFailed { error }
            }
            Report::Message { channel, bytes, .. } => ClientEvent::Message { channel, bytes },
            Report::Disconnected { reason, text, .. } => {
                *state = ClientState::Closed;
                ClientEvent::Disconnected { reason, text }
            }
        }));
    }
}

/// To which server a client goes, and as whom.
pub(crate) struct Whom<'a> {
    pub(crate) server: SocketAddr,
    pub(crate) key: ServerPublicKey,
    pub(crate) token: Option<&'a IssuedToken>,
}

impl<'a> Whom<'a> {
    pub(crate) fn of_token(token: &'a ConnectToken, config: &ClientConfig) -> Result<Self, BindError> {
        if token.protocol_id() != config.protocol_id {
            let problem = "must be the token's: backend, server and client of one build have the same";
            return Err(BindError::Setting { field: "protocol_id", problem });
        }
        Ok(Self { server: token.address(), key: token.server(), token: Some(token.issued()) })
    }

    fn identity(&self) -> ServerIdentity {
        ServerIdentity { public_key: self.key.to_bytes(), key_id: 0 }
    }
}

/// Everything else a connect can fail with cannot happen to a client that begins.
fn bad_key(_: ConnectError) -> BindError {
    BindError::Setting { field: "key", problem: "is not one that a server can have" }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.front.flush();
        self.worker.finish(CloseCode::Application);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("state", &self.state).finish_non_exhaustive()
    }
}
