//! Many connections over one socket: bots that put load on a server, and gateways that speak for others.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{ChannelId, ChannelOptions, Message, PeerId, ReceiptId, SendError};

use crate::base::error::Error;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::credentials::connect_token::ConnectToken;
use crate::engine::client_socket::{ClientSocket, ReceiveBuffer};
use crate::engine::inline::Inline;
use crate::message::event::Event;
use crate::observe::grants::SocketGrants;
use crate::observe::stats::WorkerStats;
use crate::worker::actions::Actions as _;
use crate::worker::command::Command;

/// Many connections over one socket, to one or several servers, without a thread.
///
/// Packets to it carry a connection id of 8 bytes, which packets to a [`Client`](crate::Client) do not need. Dropping it closes all
/// connections and informs the servers once.
///
/// ```
/// # use std::time::Duration;
/// use drumfire::{Clients, ClientConfig, Event};
/// # use drumfire::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let mut server = Server::bind(config.workers(Workers::Inline))?;
/// # let (address, key) = (server.local_addr(), ServerKey::dev().public());
/// let mut bots = Clients::bind("127.0.0.1:0".parse()?, 50, &ClientConfig::default())?;
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
pub struct Clients {
    inline: Inline,
    address: SocketAddr,
    protocol_id: u64,
    receive_buffer: ReceiveBuffer,
}

impl Clients {
    /// Binds a socket to `address` for at most `connections` connections. Port 0 selects a free port. The servers must be reachable
    /// from the address: use `0.0.0.0:0` for servers with IPv4 addresses, and `[::]:0` for all where the system allows it. The size of
    /// the requested receive buffer depends on the number of connections: see [`ClientConfig::receive_buffer_bytes`].
    ///
    /// # Errors
    ///
    /// [`Error`], which names the setting that cannot be used, or has the error of the system.
    pub fn bind(address: SocketAddr, connections: u32, config: &ClientConfig) -> Result<Self, Error> {
        config.check()?;
        let receive_buffer = ReceiveBuffer::new(config, connections);
        let bound = ClientSocket::bind(address, receive_buffer);
        let (socket, address) = bound.map_err(|error| Error::of_address(error, address))?;
        let inline = Inline::new(socket, config, connections)?;
        Ok(Self { inline, address, protocol_id: config.protocol_id, receive_buffer })
    }

    /// Returns the bound address, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Starts to connect to a server with the next `flush` or `poll`: `(address, key)`, a [`ConnectToken`], or [`ConnectOptions`]. An
    /// event reports the result: `Connected`, or `ConnectFailed` after at most 5 s, unless [`ClientConfig::reconnect`] lets the
    /// client try again. Messages may be sent immediately, except with [`Reconnect::Within`](crate::Reconnect::Within).
    ///
    /// # Errors
    ///
    /// [`Error`]. Nothing was started then.
    ///
    /// - `Setting`: the address, the hello, or the protocol id of the token cannot be used here.
    /// - `DevelopmentServer`: the address of a server with the development key is not a loopback address.
    /// - `Connect`: `TooManyConnections` if the client has its maximum number of connections, `BadServerKey` if no server can have this
    ///   key.
    pub fn connect(&mut self, to: impl Into<ConnectOptions>) -> Result<PeerId, Error> {
        let options = to.into();
        options.check(self.protocol_id)?;
        Ok(self.inline.worker.connect(&options)?)
    }

    /// Sends what was not flushed, receives, and waits up to `timeout` while there is no event. Returns whether there is an event;
    /// [`Clients::next_event`] returns it. It does all the I/O: call it at least ten times per second. Otherwise nothing is received, and
    /// the server ends the connection after its `unacknowledged_timeout`, 10 s by default.
    ///
    /// Take all events before the next call. While events are left it does not wait. A message uses the receive memory of its
    /// connection until its event is taken. Without room for a message, its packet is not acknowledged.
    pub fn poll(&mut self, timeout: Duration) -> bool {
        self.inline.poll(timeout)
    }

    /// Returns the longest time that a foreign event loop may wait before it calls `poll`, or `None` if nothing is due: see
    /// [`Client::poll_timeout`](crate::Client::poll_timeout), which also has an example.
    #[must_use]
    pub fn poll_timeout(&mut self) -> Option<Duration> {
        self.inline.poll_timeout()
    }

    /// Returns the oldest event, or `None` until the next [`Clients::poll`]. It does no I/O.
    pub fn next_event(&mut self) -> Option<Event> {
        self.inline.worker.next_event()
    }

    /// Returns an iterator that calls [`Clients::next_event`] until there is no event, for loops that do not send.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        std::iter::from_fn(|| self.next_event())
    }

    /// Queues a message for the server of this connection. It is sent with the next `flush` or `poll`.
    ///
    /// # Errors
    ///
    /// [`SendError`]. The message was not accepted then.
    ///
    /// - `Full`: there is no room. [`Event::Writable`] reports when there is room again.
    /// - `NotConnected`: the connection [reconnects](crate::Reconnect) at the moment.
    /// - `UnknownPeer`: the connection has ended.
    pub fn send(&mut self, peer: PeerId, message: Message) -> Result<(), SendError> {
        self.inline.worker.send(peer, message)
    }

    /// Queues a message as [`Clients::send`] does, and returns an id for its receipt. [`Event::Receipt`] reports
    /// the outcome once, before `Disconnected`.
    ///
    /// # Errors
    ///
    /// As [`Clients::send`]. No event follows then.
    pub fn send_with_receipt(&mut self, peer: PeerId, message: Message) -> Result<ReceiptId, SendError> {
        self.inline.worker.send_with_receipt(peer, message)
    }

    /// Returns the connections and the attempts to connect.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = PeerId> {
        self.inline.worker.peers()
    }

    /// Sets how the messages of a channel are sent, from the next `flush` or `poll` on.
    /// The options hold for later connections of a client that reconnects too. Does nothing for a connection that is over.
    pub fn set_channel_options(&mut self, peer: PeerId, channel: ChannelId, options: ChannelOptions) {
        self.inline.worker.command(peer, Command::Options { peer, channel, options });
    }

    /// Requests the statistics of a connection and its path. [`Event::Stats`] contains them, unless the connection is over.
    pub fn request_stats(&mut self, peer: PeerId) {
        self.inline.worker.command(peer, Command::Measure { peer });
    }

    /// Requests the flight record of an open connection. [`Event::FlightRecord`] contains it, unless the connection is over or was
    /// silent for five seconds, or [`ClientConfig::flight_recorder`] is off.
    pub fn request_flight_record(&mut self, peer: PeerId) {
        self.inline.worker.command(peer, Command::Record { peer });
    }

    /// Forgets a key of a [`ReliableLatest`](crate::Mode::ReliableLatest) channel, because the object that it stands for is gone. A
    /// busy connection remembers 2,048 keys. Beyond that it forgets all of them, and the newest value of each may arrive twice.
    pub fn forget_key(&mut self, peer: PeerId, channel: ChannelId, key: u64) {
        self.inline.worker.command(peer, Command::Forget { peer, channel, key });
    }

    /// Sends all queued messages.
    pub fn flush(&mut self) {
        self.inline.worker.flush();
    }

    /// Closes a connection with the next `flush` or `poll`, with an application code and a text for the log of the server, which is cut
    /// to 128 bytes. `Disconnected` is the last event, and the connection is not established again. Does nothing for a connection that
    /// is over.
    pub fn close(&mut self, peer: PeerId, code: u32, text: &str) {
        self.inline.worker.close(peer, code, text);
    }

    /// Returns the newest token with which this player can connect to its server again: see
    /// [`Client::resume_token`](crate::Client::resume_token). After the end of the connection, it is known until another connection
    /// ends.
    #[must_use]
    pub fn resume_token(&self, peer: PeerId) -> Option<ConnectToken> {
        self.inline.worker.resume_token(peer)
    }

    /// Replaces the socket of all connections with a new one at `address`, as [`Client::rebind`](crate::Client::rebind) does.
    ///
    /// # Errors
    ///
    /// The error of the system. The connections then continue with the present socket.
    pub fn rebind(&mut self, address: SocketAddr) -> std::io::Result<()> {
        let (bound, address) = ClientSocket::bind(address, self.receive_buffer)?;
        self.inline.rebind(bound.socket)?;
        self.address = address;
        Ok(())
    }

    /// Ends all sessions, because a copy of this process may exist: see
    /// [`Client::invalidate_keys`](crate::Client::invalidate_keys).
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`] if the system has no randomness. Nothing has changed then, and this copy must not continue.
    pub fn invalidate_keys(&mut self) -> Result<(), Error> {
        self.inline.invalidate_keys()
    }

    /// Changes the simulated links of the socket in both directions, as
    /// [`Client::set_conditioner`](crate::Client::set_conditioner) does.
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

    /// Returns the counters of all connections together.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.inline.worker.stats().clone()
    }
}

/// The descriptor for a foreign event loop: see [`Clients::poll_timeout`].
///
/// # Panics
///
/// In a simulated world, which has no descriptors.
#[cfg(unix)]
impl std::os::fd::AsFd for Clients {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.inline.descriptor()
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").field("address", &self.address).finish_non_exhaustive()
    }
}
