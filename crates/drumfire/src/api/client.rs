//! The client for a game loop. It has the methods of the server, and no thread.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{
    ChannelId, ChannelOptions, CloseCode, Message, Moment, PeerId, ReceiptId, SendError, SingleWorker,
};
use drumfire_socket::SocketGrants;

use crate::base::entropy;
use crate::base::error::Error;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::credentials::connect_token::ConnectToken;
use crate::engine::client_worker;
use crate::engine::invalidate::SeedSource;
use crate::message::event::Event;
use crate::observe::stats::WorkerStats;
use crate::worker::actions::Actions as _;
use crate::worker::command::Command;
use crate::worker::direct::Direct;
use crate::worker::pass::Worker;

/// A client for game servers, with one connection or several.
///
/// By default it has one connection at a time, over a socket that is connected to the server. When the connection has ended, the
/// client can connect again, to another server too. With [`ClientConfig::connections`], it has many connections over one socket, to one
/// or several servers: for bots that put load on a server, and for gateways.
///
/// Dropping it closes all connections and informs the servers once.
///
/// ```
/// # use std::time::Duration;
/// use drumfire::{Client, ClientConfig, Event};
/// # use drumfire::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let mut server = Server::bind(config.workers(Workers::Inline))?;
/// # let (address, key) = (server.local_addr(), ServerKey::dev().public());
/// let mut bots = Client::new(ClientConfig::default().connections(50))?;
/// for _ in 0..50 {
///     bots.connect((address, key))?;
/// }
/// let mut playing = Vec::new();
/// while playing.len() < 50 {
///     bots.poll(Duration::from_millis(1));
/// #   server.poll(Duration::from_millis(1));
/// #   server.events().count();
///     while let Some(event) = bots.next_event() {
///         if let Event::Connected { peer, .. } = event {
///             playing.push(peer);
///         }
///     }
/// }
/// let one_more = bots.connect((address, key));
/// assert!(matches!(one_more, Err(Error::Connect(ConnectError::TooManyConnections))));
/// # Ok(())
/// # }
/// ```
pub struct Client {
    pub(crate) worker: Box<Worker<SingleWorker>>,
    /// The options that the system granted to the socket. `None` in a simulated world, which has no sockets.
    pub(crate) granted: Option<SocketGrants>,
    /// The source of the new seeds after [`Client::invalidate_keys`].
    pub(crate) seed_source: SeedSource,
}

impl Client {
    /// Creates a client and its socket. [`Client::connect`] starts a connection.
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting, or contains the error of the operating system.
    pub fn new(config: ClientConfig) -> Result<Self, Error> {
        let link = client_worker::channel(&config);
        let (worker, granted) = client_worker::worker(config, Box::new(Direct), &link)?;
        Ok(Self { worker, granted: Some(granted), seed_source: Box::new(entropy::secret) })
    }

    /// Starts to connect to a server with the next `flush` or `poll`: `(address, key)`, a [`ConnectToken`], or [`ConnectOptions`].
    /// Returns the id of the connection, which lasts through [reconnects](crate::Reconnect) until `ConnectFailed` or `Disconnected`.
    ///
    /// An event reports the result: `Connected`, or `ConnectFailed` after at most 5 s, unless [`ClientConfig::reconnect`] lets the client
    /// try again. [`Client::send`] accepts messages immediately, except with [`Reconnect::Within`](crate::Reconnect::Within). They are sent
    /// once the server has answered, and are dropped if the attempt fails.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nobody = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    /// let key = ServerKey::generate()?.public();
    /// let mut client = Client::new(ClientConfig::default())?;
    /// let server = client.connect((nobody, key))?;
    /// client.poll(Duration::from_secs(10));
    /// let event = client.next_event();
    /// assert_eq!(event, Some(Event::ConnectFailed { peer: server, error: ConnectError::Timeout }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error`]. No attempt was started.
    ///
    /// - `Setting`: the address, the hello, or the protocol id of the token cannot be used here.
    /// - `DevelopmentServer`: the address of a server with the development key is not a loopback address.
    /// - `Connect`: `TooManyConnections` if the client has its maximum number of connections, `BadServerKey` if no server can have this
    ///   key.
    /// - `Io`: the system has no route to the server, or no descriptors are left.
    pub fn connect(&mut self, to: impl Into<ConnectOptions>) -> Result<PeerId, Error> {
        self.worker.connect(&to.into())
    }

    /// Returns the local address of the socket. `None` before the first [`Client::connect`] of a client with one connection and
    /// without [`ClientConfig::address`], and in a simulated world.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.worker.local_addr()
    }

    /// Sends what was not flushed, receives, and waits up to `timeout` while there is no event. Returns whether there is an event;
    /// [`Client::next_event`] returns it. It does all the I/O: call it at least ten times per second. Otherwise nothing is received, and
    /// the server ends the connection after its `unacknowledged_timeout`, 10 s by default.
    ///
    /// Take all events before the next call. While events are left it does not wait. A message uses the receive memory of its
    /// connection until its event is taken. Without room for a message, its packet is not acknowledged.
    pub fn poll(&mut self, timeout: Duration) -> bool {
        // A foreign event loop watches the descriptor of the poll. Linux clears the readiness of the poll when the socket is drained, but
        // kqueue only in a call of its own, without which the loop would spin. Without datagrams this call also replaces the receive call.
        if timeout.is_zero() && self.worker.poller().is_some() {
            self.worker.wait(Some(Duration::ZERO));
        }
        self.worker.poll(timeout)
    }

    /// Returns the longest time that a foreign event loop may wait before it calls `poll`, or `None` if nothing is due. The time is zero
    /// while there are events, or messages and other calls that were not flushed. It can change with each call to the client.
    ///
    /// On Unix the loop watches the descriptor of the client (`AsFd`). Call `poll` with a timeout of zero when the descriptor is
    /// readable or the time has passed. Watch the descriptor level-triggered, because `poll` may return before it has received
    /// everything. The descriptor does not change when the socket is replaced.
    ///
    /// ```
    /// # #[cfg(unix)]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use drumfire::{Client, ClientConfig};
    /// use rustix::event::{PollFd, PollFlags, Timespec, poll};
    ///
    /// # use drumfire::{Access, Server, ServerConfig, ServerKey, Workers};
    /// # let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.workers(Workers::Inline))?;
    /// let mut client = Client::new(ClientConfig::default())?;
    /// let peer = client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// while !client.is_connected(peer) {
    /// #   server.poll(Duration::ZERO);
    ///     let longest = client.poll_timeout().map(Timespec::try_from).transpose()?;
    ///     // A real loop watches more descriptors here.
    ///     poll(&mut [PollFd::new(&client, PollFlags::IN)], longest.as_ref())?;
    ///     client.poll(Duration::ZERO);
    ///     client.events().for_each(drop);
    /// }
    /// # Ok(())
    /// # }
    /// # #[cfg(not(unix))]
    /// # fn main() {}
    /// ```
    #[must_use]
    pub fn poll_timeout(&mut self) -> Option<Duration> {
        // No datagram or timer reports a message that was queued, or an event that a call caused.
        if self.worker.is_due() {
            return Some(Duration::ZERO);
        }
        let now = self.worker.time();
        self.worker.due().map(|due| due.since(now))
    }

    /// Returns the oldest event, or `None` until the next [`Client::poll`]. It does no I/O.
    pub fn next_event(&mut self) -> Option<Event> {
        self.worker.next_event()
    }

    /// Returns an iterator that calls [`Client::next_event`] until there is no event, for loops that do not send.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        std::iter::from_fn(|| self.next_event())
    }

    /// Queues a message for a server. It is sent with the next `flush` or `poll`.
    ///
    /// # Errors
    ///
    /// [`SendError`]. The message was not accepted.
    ///
    /// - `Full`: there is no room. [`Event::Writable`] reports when there is room again.
    /// - `NotConnected`: the client [reconnects](crate::Reconnect), and the connection is not established at the moment.
    /// - `Closed`: the `Disconnected` event of the connection follows.
    /// - `TooLarge`: the message is longer than its mode and the configurations of both ends allow.
    /// - `UnknownPeer`: the connection has ended.
    pub fn send(&mut self, peer: PeerId, message: Message) -> Result<(), SendError> {
        self.worker.send(peer, message)
    }

    /// Queues a message as [`Client::send`] does, and returns an id for its receipt. [`Event::Receipt`] reports the
    /// outcome once, before `Disconnected` or `Reconnecting`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Client::send`]. No event follows.
    pub fn send_with_receipt(&mut self, peer: PeerId, message: Message) -> Result<ReceiptId, SendError> {
        self.worker.send_with_receipt(peer, message)
    }

    /// Returns the connections, including attempts to connect, as of the last event that was taken.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = PeerId> {
        self.worker.peers()
    }

    /// Returns whether a connection is open: established, and not closed by either end.
    #[must_use]
    pub fn is_connected(&self, peer: PeerId) -> bool {
        self.worker.is_open(peer)
    }

    /// Sets how the messages of a channel are sent, from the next `flush` or `poll` on. A client that reconnects keeps the options for
    /// later connections. Does nothing for a connection that is over.
    pub fn set_channel_options(&mut self, peer: PeerId, channel: ChannelId, options: ChannelOptions) {
        self.worker.command(peer, Command::Options { peer, channel, options });
    }

    /// Requests the statistics of the connection and its path. [`Event::Stats`] contains them, unless the connection is over.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use drumfire::{ChannelId, Event, Message, Moment, testing};
    ///
    /// let mut world = testing::pair(7);
    /// let server = world.clients[0].peers().next().ok_or("connecting")?;
    /// world.clients[0].send(server, Message::reliable_ordered(ChannelId(0), "first"))?;
    /// world.advance(Duration::from_secs(1));
    /// world.clients[0].request_stats(server);
    /// world.advance(Duration::from_millis(1));
    /// world.clients[0].poll(Duration::ZERO);
    /// let stats = world.clients[0].events().find_map(|event| match event {
    ///     Event::Stats { stats, .. } => Some(stats),
    ///     _ => None,
    /// });
    /// // The time at the server, to report when the player shot.
    /// let offset = stats.and_then(|stats| stats.clock_offset).ok_or("no ack came yet")?;
    /// let here = world.clients[0].now().as_nanos();
    /// let there = Moment::from_nanos(here.saturating_add_signed(offset.nanos));
    /// assert!(there.since(world.server.now()).max(world.server.now().since(there)) <= offset.error);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "testing"))]
    /// # fn main() {}
    /// ```
    pub fn request_stats(&mut self, peer: PeerId) {
        self.worker.command(peer, Command::Measure { peer });
    }

    /// Requests the flight record of an open connection. [`Event::FlightRecord`] contains it, unless the connection is over or was
    /// silent for five seconds, or [`ClientConfig::flight_recorder`] is off.
    pub fn request_flight_record(&mut self, peer: PeerId) {
        self.worker.command(peer, Command::Record { peer });
    }

    /// Returns the time of the client's clock. The server knows its offset.
    pub fn now(&mut self) -> Moment {
        self.worker.time()
    }

    /// Forgets a key of a [`ReliableLatest`](crate::Mode::ReliableLatest) channel, when the object of the key no longer exists. A busy
    /// connection remembers 2,048 keys. Beyond that it forgets all of them, and the newest value of each may arrive twice.
    pub fn forget_key(&mut self, peer: PeerId, channel: ChannelId, key: u64) {
        self.worker.command(peer, Command::Forget { peer, channel, key });
    }

    /// Sends all queued messages. It does not receive: `poll` does.
    pub fn flush(&mut self) {
        self.worker.flush();
    }

    /// Closes a connection with the next `flush` or `poll`. The server receives the application code, and the text for its log, which is
    /// cut to 128 bytes. Messages that still wait are sent once, as far as congestion control allows, and are not retransmitted.
    /// [`Event::Disconnected`] is the last event, and the connection is not established again. Does nothing for a connection that is over.
    pub fn close(&mut self, peer: PeerId, code: u32, text: &str) {
        self.worker.close(peer, code, text);
    }

    /// Returns the newest token with which the player of a connection can connect to its server again, also after the connection is lost or
    /// the server was restarted. A server with access by token sends one when it has accepted the player, and another one from time to
    /// time. Each is valid once, for ten minutes, and never longer than the session. A restarted server does not know which tokens
    /// were used before, and accepts each once more. A client with [`ClientConfig::reconnect`] uses the newest token by itself.
    ///
    /// The token opens a new connection: messages in flight are not carried over. After the end of the connection, the token is available
    /// until another connection ends.
    #[must_use]
    pub fn resume_token(&self, peer: PeerId) -> Option<ConnectToken> {
        self.worker.resume_token(peer)
    }

    /// Replaces the socket with one that has another port, because the device changed its network or woke up. A client with
    /// [`ClientConfig::follow_network`] does so by itself, but only after a second of silence or when the system refuses to send. The
    /// servers follow, no reliable message is lost, and packets carry another connection id from then on, if the server has issued one. If
    /// a NAT changes the public address of the client, no call is needed.
    ///
    /// A socket that is connected to its server gets the IP address that the system selects now. Any other socket keeps its IP address.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.workers(Workers::Inline))?;
    /// # let mut client = Client::new(ClientConfig::default())?;
    /// # let peer = client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// # while !client.is_connected(peer) {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::from_millis(1));
    /// # }
    /// client.send(peer, Message::reliable_ordered(ChannelId(0), "from here"))?;
    /// client.rebind()?;
    /// client.send(peer, Message::reliable_ordered(ChannelId(0), "and from there"))?;
    /// # let mut messages = 0;
    /// # while messages < 2 {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::from_millis(1));
    /// #     messages += server.events().filter(|event| matches!(event, Event::Message { .. })).count();
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. The client continues with its present socket.
    pub fn rebind(&mut self) -> Result<(), Error> {
        Ok(self.worker.rebind()?)
    }

    /// Ends all sessions, because a copy of this process may exist: see [`Control::invalidate_keys`](crate::Control::invalidate_keys).
    /// Connections and attempts end with `KeysInvalidated`, and the servers are not informed. A client with
    /// [`Reconnect::Within`](crate::Reconnect::Within) connects again by itself. If two copies connect as the same player, the later
    /// connection replaces the earlier one.
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`] if the system has no randomness. Nothing has changed, and this copy must not continue.
    pub fn invalidate_keys(&mut self) -> Result<(), Error> {
        let seed = (self.seed_source)()?;
        self.worker.invalidate_keys(seed);
        Ok(())
    }

    /// Changes the simulated links of the socket in both directions, for datagrams that are sent from now on. Datagrams in flight keep
    /// their times, and only reordered ones overtake them. [`WorkerStats::outbound_link`] and [`WorkerStats::inbound_link`] count
    /// what the links do.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use drumfire::conditioner::{LinkConfig, Loss};
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.workers(Workers::Inline))?;
    /// # let (address, key) = (server.local_addr(), ServerKey::dev().public());
    /// let config = ClientConfig::default().conditioner(LinkConfig::default());
    /// let mut client = Client::new(config)?;
    /// let peer = client.connect((address, key))?;
    /// # while !client.is_connected(peer) {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::from_millis(1));
    /// # }
    /// client.set_conditioner(&LinkConfig::default().loss(Loss::Random(1.0)))?;
    /// client.send(peer, Message::reliable_ordered(ChannelId(0), "does not arrive yet"))?;
    /// client.flush();
    /// assert!(client.stats().outbound_link.lost > 0);
    ///
    /// client.set_conditioner(&LinkConfig::bad_wifi())?;
    /// # loop {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::from_millis(1));
    /// #     if server.events().any(|event| matches!(event, Event::Message { .. })) { break }
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a configuration that cannot be used, or without [`ClientConfig::conditioner`]. Nothing has changed.
    pub fn set_conditioner(&mut self, link: &crate::conditioner::LinkConfig) -> Result<(), Error> {
        self.worker.set_conditioner(link)
    }

    /// Returns the options that the system granted the socket, or `None` in a simulated world.
    ///
    /// ```
    /// # use drumfire::*;
    /// # use drumfire::stats::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ClientConfig::default().connections(50).receive_buffer_bytes(1 << 20);
    /// let bots = Client::new(config)?;
    /// if let Some(granted) = bots.granted().filter(SocketGrants::is_receive_buffer_short) {
    ///     eprintln!("raise net.core.rmem_max: {granted}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn granted(&self) -> Option<SocketGrants> {
        self.granted
    }

    /// Returns the counters of all connections together.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.worker.stats()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.worker.finish(CloseCode::Application);
    }
}

/// The descriptor for a foreign event loop: see [`Client::poll_timeout`].
///
/// # Panics
///
/// Panics in a simulated world, which has no descriptors.
#[cfg(unix)]
impl std::os::fd::AsFd for Client {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        let poller = self.worker.poller();
        std::os::fd::AsFd::as_fd(poller.expect("a client of a simulated world has no descriptor"))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("address", &self.local_addr()).finish_non_exhaustive()
    }
}
