//! The handle of a connection for tasks. The last clone closes the connection.

use std::sync::Arc;

use bytes::Bytes;
use drumfire_proto::{ChannelId, ChannelOptions, Message, PeerId, PeerStats, SendError};

use super::client_thread::ClientThread;
use super::inbox::InboxPoll;
use super::receipt::Receipt;
use super::shared::Shared;
use crate::base::error::Error;
use crate::credentials::connect_token::ConnectToken;
use crate::engine::invalidate;
use crate::message::event::{Closed, Event, PeerInfo};
use crate::worker::command::{Command, Query};

/// A connection of a server or a client. All methods take `&self` and can be called from any number of tasks. Clones are handles of
/// the same connection.
///
/// All asynchronous methods are cancel-safe: a future that is dropped before it is ready has done nothing. So they can be used in
/// `select!` and with timeouts.
///
/// The connection of a client with [`ClientConfig::reconnect`](crate::ClientConfig::reconnect) is over only when the client has given up.
/// Until then [`Connection::recv`] waits for messages of the next connection, and [`Connection::next_event`] returns `Reconnecting` and
/// `Connected` too. A send while there is no connection returns [`SendError::NotConnected`], and receipts of the last one are
/// [`Lost`](crate::Outcome::Lost): see [`Reconnect`](crate::Reconnect).
///
/// When the last handle is dropped, the connection is closed with code 0, as by [`Connection::close`]. Messages that still wait are sent
/// once, as far as congestion control allows, and are not retransmitted. To be sure that the peer has received a message, wait for a
/// [`Receipt`] first.
///
/// ```
/// # use drumfire::*;
/// # use drumfire::error::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let server = asynchronous::Server::bind(config)?;
/// # let client = asynchronous::Client::new(ClientConfig::default())?;
/// # let connection = client.connect((server.local_addr(), ServerKey::dev().public())).await?;
/// # let at_server = server.accept().await.ok_or("the server has ended")?;
/// // One task receives, another one sends.
/// let receiver = connection.clone();
/// let receiving = tokio::spawn(async move {
///     loop {
///         match receiver.recv().await {
///             Ok((_, payload)) => println!("{payload:?}"),
///             Err(closed) => break closed,
///         }
///     }
/// });
/// connection.send(Message::reliable_ordered(ChannelId(0), "hello")).await?;
/// connection.close(7, "good night");
/// let closed = receiving.await?;
/// assert_eq!(closed.reason, CloseReason::Local { code: CloseCode::Application, application_code: 7 });
///
/// // The peer receives the message, and then the end with its code.
/// assert_eq!(at_server.recv().await?, (ChannelId(0), "hello".into()));
/// let closed = at_server.recv().await.unwrap_err();
/// assert_eq!(closed.reason, CloseReason::Remote { code: CloseCode::Application, application_code: 7 });
/// assert_eq!(closed.text, "good night");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Connection {
    // The handle is dropped before the thread. The thread ends with its last connection, and has to send the close first.
    handle: Arc<Handle>,
    thread: Option<Arc<ClientThread>>,
}

/// The shared part of all clones.
#[derive(Debug)]
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.act(Command::close(self.0.peer, 0, ""));
    }
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { handle: Arc::new(Handle(shared)), thread: None }
    }

    /// Keeps this thread running for as long as the connection has handles.
    pub(super) fn with_thread(self, thread: Arc<ClientThread>) -> Self {
        Self { thread: Some(thread), ..self }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.handle.0
    }

    /// Returns the id of the peer. Groups and [`Control`](crate::Control) use the same id.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.shared().peer
    }

    /// Returns the address of the peer when the connection began, and the identity of the peer.
    #[must_use]
    pub fn info(&self) -> &PeerInfo {
        &self.shared().info
    }

    /// Waits for the next message, and returns its channel and payload. Messages that arrived before the end of the connection come
    /// first. Other events are dropped: call [`Connection::next_event`] to receive them too.
    ///
    /// Messages stay in the connection's receive memory until a task takes them. When it is full, the peer cannot send more reliable
    /// messages, and unreliable ones are dropped and counted as `unreliable_overflows` of
    /// [`WorkerStats::protocol`](crate::stats::WorkerStats::protocol). Other connections are not affected. Several tasks can wait at the
    /// same time; each message goes to one of them. A task that always finds a message yields to the executor after 128 messages.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a future that is dropped before it is ready has taken no message.
    ///
    /// # Errors
    ///
    /// [`Closed`] when the connection is over and all messages were taken; the same for every later call.
    pub async fn recv(&self) -> Result<(ChannelId, Bytes), Closed> {
        loop {
            if let Event::Message { channel, payload, .. } = self.next_event().await? {
                return Ok((channel, payload));
            }
        }
    }

    /// Returns the next message as [`Connection::recv`] does, or `None` where it would wait.
    ///
    /// # Errors
    ///
    /// [`Closed`] when the connection is over and all messages were taken.
    pub fn try_recv(&self) -> Result<Option<(ChannelId, Bytes)>, Closed> {
        loop {
            match self.shared().take(false) {
                InboxPoll::Event(Event::Message { channel, payload, .. }) => {
                    return Ok(Some((channel, payload)));
                }
                InboxPoll::Event(_) => {}
                InboxPoll::Empty | InboxPoll::Yield => return Ok(None),
                InboxPoll::Closed(closed) => return Err(closed),
            }
        }
    }

    /// Waits for the next event: [`Message`](Event::Message), [`Skipped`](Event::Skipped), [`Missed`](Event::Missed),
    /// [`PathChanged`](Event::PathChanged), or the [`FlightRecord`](Event::FlightRecord) of a connection that broke, which is the last one.
    /// A client that reconnects also has [`Reconnecting`](Event::Reconnecting) and [`Connected`](Event::Connected). At most 256 events
    /// other than messages wait. Further ones are dropped and counted as
    /// [`WorkerStats::notices_dropped`](crate::stats::WorkerStats::notices_dropped).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a future that is dropped before it is ready has taken no event.
    ///
    /// # Errors
    ///
    /// [`Closed`] when the connection is over and all events were taken; the same for every later call.
    pub async fn next_event(&self) -> Result<Event, Closed> {
        self.shared().next_event().await
    }

    /// Sends a message, and waits while there is no room for it. The message is sent immediately, together with messages of other
    /// tasks.
    ///
    /// Waiting tasks are served in turn, by priority. Tasks do not wait on channels whose [`when_full`](ChannelOptions::when_full)
    /// drops a message, unless the worker itself is far behind. For a receipt, use [`Connection::send_with_receipt`].
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let client = asynchronous::Client::new(ClientConfig::default())?;
    /// # let connection = client.connect((server.local_addr(), ServerKey::dev().public())).await?;
    /// # let at_server = server.accept().await.ok_or("the server has ended")?;
    /// // 10 MB are more than all memory between the tasks.
    /// let sending = async {
    ///     for _ in 0..10_000 {
    ///         connection.send(Message::reliable_ordered(ChannelId(0), vec![7; 1_000])).await?;
    ///     }
    ///     Ok::<(), SendError>(())
    /// };
    /// let receiving = async {
    ///     for _ in 0..10_000 {
    ///         at_server.recv().await?;
    ///     }
    ///     Ok::<(), Closed>(())
    /// };
    /// let (sent, received) = tokio::join!(sending, receiving);
    /// sent?;
    /// received?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a future that is dropped before it is ready has sent nothing. The task loses its place in the queue.
    ///
    /// # Errors
    ///
    /// [`SendError`], except `Full` and `UnknownPeer`. The message was not accepted. `Closed`: the connection has ended or is closing.
    /// `NotConnected`: the client is reconnecting.
    pub async fn send(&self, message: Message) -> Result<(), SendError> {
        self.shared().send(message, false).await.map(drop)
    }

    /// Sends a message as [`Connection::send`] does, and returns a receipt that resolves to its outcome.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let client = asynchronous::Client::new(ClientConfig::default())?;
    /// # let connection = client.connect((server.local_addr(), ServerKey::dev().public())).await?;
    /// let bang = Message::reliable_unordered(ChannelId(2), "bang");
    /// let receipt = connection.send_with_receipt(bang).await?;
    /// assert_eq!(receipt.await, Outcome::Acknowledged);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe, as [`Connection::send`] is. Dropping the receipt does not take the message back.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Connection::send`].
    pub async fn send_with_receipt(&self, message: Message) -> Result<Receipt, SendError> {
        self.shared().send(message, true).await?.ok_or(SendError::Closed)
    }

    /// Sends a message if there is room for it, and no task with the same priority waits for room.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let client = asynchronous::Client::new(ClientConfig::default())?;
    /// # let connection = client.connect((server.local_addr(), ServerKey::dev().public())).await?;
    /// # let at_server = server.accept().await.ok_or("the server has ended")?;
    /// // The server receives none of these.
    /// let message = Message::reliable_ordered(ChannelId(0), vec![7; 1_000]);
    /// let full = loop {
    ///     if let Err(error) = connection.try_send(message.clone()) {
    ///         break error;
    ///     }
    /// };
    /// assert_eq!(full, SendError::Full);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SendError`]. The message was not accepted. `Full`: [`Connection::send`] would wait.
    pub fn try_send(&self, message: Message) -> Result<(), SendError> {
        self.shared().try_send(message)
    }

    /// Sets how the messages of a channel are sent from now on. Does nothing once the connection is over.
    pub fn set_channel_options(&self, channel: ChannelId, options: ChannelOptions) {
        self.shared().act(Command::Options { peer: self.peer(), channel, options });
    }

    /// Forgets a key of a [`ReliableLatest`](crate::Mode::ReliableLatest) channel, as
    /// [`Server::forget_key`](crate::Server::forget_key) does.
    pub fn forget_key(&self, channel: ChannelId, key: u64) {
        self.shared().act(Command::Forget { peer: self.peer(), channel, key });
    }

    /// Returns the statistics of the connection and its path.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let client = asynchronous::Client::new(ClientConfig::default())?;
    /// # let connection = client.connect((server.local_addr(), ServerKey::dev().public())).await?;
    /// let stats = connection.stats().await?;
    /// println!("round trip {:?}, {} of {} packets lost", stats.round_trip, stats.packets_lost, stats.packets_sent);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the result of a dropped future is discarded.
    ///
    /// # Errors
    ///
    /// [`Closed`] when the connection is over.
    pub async fn stats(&self) -> Result<Box<PeerStats>, Closed> {
        self.shared().stats().await
    }

    /// Returns the newest token with which this player can connect to this server again: see
    /// [`Client::resume_token`](crate::Client::resume_token). `None` at a server, and before the server has sent a token.
    ///
    /// After the end of the connection, the token is known until another connection of the client ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe.
    pub async fn resume_token(&self) -> Option<ConnectToken> {
        let query = |part| Query::ResumeToken { peer: self.peer(), part };
        self.shared().queues.link.request(None, |part| Command::Query(Box::new(query(part)))).await
    }

    /// Ends all sessions over the socket of this connection, because a copy of this process may exist: see
    /// [`Client::invalidate_keys`](crate::asynchronous::Client::invalidate_keys). At a server, call
    /// [`Control::invalidate_keys`](crate::Control::invalidate_keys) instead, because this method ends only the sessions of one worker.
    ///
    /// It blocks until the worker has finished its present pass. Then tasks receive the end of their connections, `KeysInvalidated`.
    /// A [`Waker`](std::task::Waker) must not call it.
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`] if the system has no randomness. Nothing has changed, and this copy must not continue.
    pub fn invalidate_keys(&self) -> Result<(), Error> {
        invalidate::request_and_wait(&self.shared().queues.link)
    }

    /// Changes the simulated links of the socket of this connection in both directions, for datagrams that are sent from now on.
    /// All connections of a client have the same socket. At a server, call
    /// [`Control::set_conditioner`](crate::Control::set_conditioner) instead.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a configuration that cannot be used, without [`ClientConfig::conditioner`](crate::ClientConfig::conditioner),
    /// or at a server. Nothing has changed.
    pub fn set_conditioner(&self, link: &crate::conditioner::LinkConfig) -> Result<(), Error> {
        let at_server =
            || Error::setting("conditioner", "is changed by `Control::set_conditioner` at a server");
        self.thread.as_ref().ok_or_else(at_server)?.set_conditioner(link)
    }

    /// Closes the connection with an application code and a text for the log of the peer, which is cut to 128 bytes. Messages that still
    /// wait are sent once, as far as congestion control allows, and are not retransmitted. [`Connection::recv`] returns [`Closed`] after
    /// the messages that arrived. Does nothing once the connection is over.
    pub fn close(&self, code: u32, text: &str) {
        self.shared().act(Command::close(self.peer(), code, text));
    }

    /// Waits for the end of the connection, and returns its reason. Messages that were not taken stay available.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: later calls return the end too.
    pub async fn closed(&self) -> Closed {
        self.shared().closed().await
    }
}
