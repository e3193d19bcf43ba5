//! The client for a game loop. It has the methods of the server, and no thread.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{ChannelId, ChannelOptions, Message, Moment, PeerId, ReceiptId, SendError};

use crate::base::error::Error;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::credentials::connect_token::ConnectToken;
use crate::credentials::keys::ServerKey;
use crate::engine::client_socket::{ClientSocket, ReceiveBuffer};
use crate::engine::inline::Inline;
use crate::message::event::Event;
use crate::observe::grants::SocketGrants;
use crate::observe::stats::WorkerStats;
use crate::worker::actions::Actions as _;
use crate::worker::command::Command;
use crate::worker::sessions::SessionState;

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// The client waits for the server's answer. Messages may be sent already, except by a client that
    /// [reconnects](crate::Reconnect).
    Connecting,
    /// The connection is established.
    Connected,
    /// The connection ended or an attempt failed, and the client tries again: see [`Reconnect`](crate::Reconnect). `send` returns
    /// [`SendError::NotConnected`] until the client is connected.
    Reconnecting,
    /// The connection or the attempt has ended for good.
    Closed,
}

/// A connection to a server.
///
/// Dropping it closes the connection and tells the server once.
pub struct Client {
    pub(crate) inline: Inline,
    peer: PeerId,
}

impl Client {
    /// Starts to connect to a server: `(address, key)`, a [`ConnectToken`], or [`ConnectOptions`]. An event reports the result:
    /// `Connected`, or `ConnectFailed` after at most 5 s, unless [`ClientConfig::reconnect`] lets the client try again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nobody = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    /// let key = ServerKey::generate()?.public();
    /// let mut client = Client::connect((nobody, key), &ClientConfig::default())?;
    /// assert_eq!(client.state(), ClientState::Connecting);
    /// client.poll(Duration::from_secs(10));
    /// let event = client.next_event();
    /// assert!(matches!(event, Some(Event::ConnectFailed { error: ConnectError::Timeout, .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error`], which names the setting that cannot be used, or has the error of the system.
    pub fn connect(to: impl Into<ConnectOptions>, config: &ClientConfig) -> Result<Self, Error> {
        let options = to.into();
        options.check(config.protocol_id)?;
        config.check()?;
        let socket = ClientSocket::connect(options.server, ReceiveBuffer::new(config, 1))?;
        let mut client = Self::new(Inline::new(socket, config, 1)?, &options)?;
        client.inline.worker.flush();
        Ok(client)
    }

    pub(crate) fn new(mut inline: Inline, options: &ConnectOptions) -> Result<Self, Error> {
        // The other errors cannot happen to a new client.
        let bad_key = |_| Error::setting("key", "is not one that a server can have");
        let peer = inline.worker.connect(options).map_err(bad_key)?;
        Ok(Self { inline, peer })
    }

    /// Connects to a server with [`ServerKey::dev`] on this host, with the default settings, for first steps and tests.
    /// Any program on this host can impersonate that server.
    ///
    /// # Errors
    ///
    /// [`Error::DevelopmentServer`] for an address that is not a loopback address, else the errors of [`Client::connect`].
    pub fn connect_dev(server: SocketAddr) -> Result<Self, Error> {
        Self::connect((server, ServerKey::dev().public()), &ClientConfig::default())
    }

    /// Requests the statistics of the connection and its path. [`Event::Stats`] contains them, unless there is no connection.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use drumfire::{ChannelId, Event, Message, Moment, testing};
    ///
    /// let mut world = testing::pair(7);
    /// world.clients[0].send(Message::reliable_ordered(ChannelId(0), "first"))?;
    /// world.advance(Duration::from_secs(1));
    /// world.clients[0].request_stats();
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
    pub fn request_stats(&mut self) {
        self.inline.worker.command(self.peer, Command::Measure { peer: self.peer });
    }

    /// Requests the flight record of the open connection. [`Event::FlightRecord`] contains it, unless there is no connection or it was
    /// silent for five seconds, or [`ClientConfig::flight_recorder`] is off.
    pub fn request_flight_record(&mut self) {
        self.inline.worker.command(self.peer, Command::Record { peer: self.peer });
    }

    /// Returns the time of the client's clock. The server knows its offset.
    pub fn now(&mut self) -> Moment {
        self.inline.worker.time()
    }

    /// Returns the state of the connection, as of the last `poll`.
    #[must_use]
    pub fn state(&self) -> ClientState {
        match self.inline.worker.session_state(self.peer) {
            SessionState::Connected => ClientState::Connected,
            SessionState::Connecting => ClientState::Connecting,
            SessionState::Reconnecting => ClientState::Reconnecting,
            SessionState::Ended => ClientState::Closed,
        }
    }

    /// Sends what was not flushed, receives, and waits up to `timeout` while there is no event. Returns whether there is an event;
    /// [`Client::next_event`] returns it. It does all the I/O: call it at least ten times per second. Otherwise nothing is received, and
    /// the server ends the connection after its `unacknowledged_timeout`, 10 s by default.
    ///
    /// Take all events before the next call. While events are left it does not wait. A message uses the receive memory of its
    /// connection until its event is taken. Without room for a message, its packet is not acknowledged.
    pub fn poll(&mut self, timeout: Duration) -> bool {
        self.inline.poll(timeout)
    }

    /// Returns the longest time that a foreign event loop may wait before it calls `poll`, or `None` if nothing is due. The time is
    /// zero while there are events, or messages and other calls that were not flushed. Ask again after each call to the client.
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
    /// use drumfire::{Client, ClientState};
    /// use rustix::event::{PollFd, PollFlags, Timespec, poll};
    ///
    /// # use drumfire::{Access, Server, ServerConfig, ServerKey, Workers};
    /// # let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.workers(Workers::Inline))?;
    /// let mut client = Client::connect_dev(server.local_addr())?;
    /// while client.state() != ClientState::Connected {
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
        self.inline.poll_timeout()
    }

    /// Returns the oldest event, or `None` until the next [`Client::poll`]. It does no I/O.
    pub fn next_event(&mut self) -> Option<Event> {
        self.inline.worker.next_event()
    }

    /// Returns an iterator that calls [`Client::next_event`] until there is no event, for loops that do not send.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        std::iter::from_fn(|| self.next_event())
    }

    /// Queues a message for the server. It is sent with the next `flush` or `poll`.
    ///
    /// A client that does not reconnect may send while it is [connecting](ClientState::Connecting). The messages are
    /// sent once the server has answered. If the attempt fails, they are dropped.
    ///
    /// # Errors
    ///
    /// [`SendError`]. The message was not accepted then.
    ///
    /// - `Full`: there is no room. [`Event::Writable`] reports when there is room again.
    /// - `NotConnected`: the client [reconnects](crate::Reconnect) and has no connection at the moment.
    /// - `UnknownPeer`: the connection has ended.
    pub fn send(&mut self, message: Message) -> Result<(), SendError> {
        self.inline.worker.send(self.peer, message)
    }

    /// Queues a message as [`Client::send`] does, and returns an id for its receipt. [`Event::Receipt`] reports
    /// the outcome once, before `Disconnected`.
    ///
    /// # Errors
    ///
    /// As [`Client::send`]. No event follows then.
    pub fn send_with_receipt(&mut self, message: Message) -> Result<ReceiptId, SendError> {
        self.inline.worker.send_with_receipt(self.peer, message)
    }

    /// Sets how the messages of a channel are sent, from the next `flush` or `poll` on. The options hold for later connections of a
    /// client that reconnects too. Does nothing once the connection is over.
    pub fn set_channel_options(&mut self, channel: ChannelId, options: ChannelOptions) {
        let peer = self.peer;
        self.inline.worker.command(peer, Command::Options { peer, channel, options });
    }

    /// Forgets a key of a [`ReliableLatest`](crate::Mode::ReliableLatest) channel, because the object that it stands for is gone. A
    /// busy connection remembers 2,048 keys. Beyond that it forgets all of them, and the newest value of each may arrive twice.
    pub fn forget_key(&mut self, channel: ChannelId, key: u64) {
        let peer = self.peer;
        self.inline.worker.command(peer, Command::Forget { peer, channel, key });
    }

    /// Sends all queued messages. It does not receive: `poll` does.
    pub fn flush(&mut self) {
        self.inline.worker.flush();
    }

    /// Closes the connection with the next `flush` or `poll`, with an application code and a text for the log of the server, which is
    /// cut to 128 bytes. `Disconnected` is the last event, and the client does not reconnect. Does nothing once the connection is over.
    pub fn close(&mut self, code: u32, text: &str) {
        self.inline.worker.close(self.peer, code, text);
    }

    /// Returns the newest token with which this player can connect to this server again, also after the connection is lost or the
    /// server was restarted. A server with access by token sends one when it has accepted the player, and another one from time to
    /// time. Each is valid once, for ten minutes, and never longer than the session. A restarted server does not know which tokens
    /// were used before, and accepts each once more. A client with [`ClientConfig::reconnect`] uses the newest token by itself.
    ///
    /// The token opens a new connection: messages in flight are not carried over.
    #[must_use]
    pub fn resume_token(&self) -> Option<ConnectToken> {
        self.inline.worker.resume_token(self.peer)
    }

    /// Replaces the socket, because the device changed its network or woke up. A client with
    /// [`ClientConfig::follow_network`] does so by itself, but only after a second of silence or when the system refuses to send. The
    /// server follows, no reliable message is lost, and
    /// packets carry another connection id from then on, if the server has issued one. An address that changes on its way, for example
    /// at a NAT, needs no call.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.workers(Workers::Inline))?;
    /// # let mut client = Client::connect_dev(server.local_addr())?;
    /// # while client.state() != ClientState::Connected {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::from_millis(1));
    /// # }
    /// client.send(Message::reliable_ordered(ChannelId(0), "from here"))?;
    /// client.rebind()?;
    /// client.send(Message::reliable_ordered(ChannelId(0), "and from there"))?;
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
    /// The error of the system. The client then continues with its present socket.
    pub fn rebind(&mut self) -> std::io::Result<()> {
        self.inline.rebind_connected()
    }

    /// Ends the session, because a copy of this process may exist: see [`Control::invalidate_keys`](crate::Control::invalidate_keys).
    /// The connection or the attempt ends with `KeysInvalidated`, and the server is not informed. A client with
    /// [`Reconnect::Within`](crate::Reconnect::Within) connects again by itself. If two copies do as one player, the later one replaces
    /// the earlier one.
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`] if the system has no randomness. Nothing has changed then, and this copy must not continue.
    pub fn invalidate_keys(&mut self) -> Result<(), Error> {
        self.inline.invalidate_keys()
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
    /// let mut client = Client::connect((address, key), &config)?;
    /// # while client.state() != ClientState::Connected {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::from_millis(1));
    /// # }
    /// client.set_conditioner(&LinkConfig::default().loss(Loss::Even(1.0)))?;
    /// client.send(Message::reliable_ordered(ChannelId(0), "does not arrive yet"))?;
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
    /// [`Error::Setting`] for a configuration that cannot be used, or without [`ClientConfig::conditioner`]. Nothing has changed then.
    #[cfg(feature = "conditioner")]
    pub fn set_conditioner(&mut self, link: &crate::conditioner::LinkConfig) -> Result<(), Error> {
        self.inline.worker.set_conditioner(link)
    }

    /// Returns the options that the system granted the socket, or `None` in a simulated world.
    #[must_use]
    pub fn granted(&self) -> Option<SocketGrants> {
        self.inline.granted
    }

    /// Returns the counters of the client.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.inline.worker.stats().clone()
    }
}

/// The descriptor for a foreign event loop: see [`Client::poll_timeout`].
///
/// # Panics
///
/// In a simulated world, which has no descriptors.
#[cfg(unix)]
impl std::os::fd::AsFd for Client {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.inline.descriptor()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("state", &self.state()).finish_non_exhaustive()
    }
}
