//! One connection as its tasks hold it: a handle that can be cloned, and closes the connection with its last clone.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use drumfire_proto::{ChannelId, ChannelOptions, Message, PeerId, PeerStats, SendError};
use tokio::sync::oneshot;

use super::inbox::InboxPoll;
use super::receipt::Receipt;
use super::shared::Shared;
use crate::base::error::Error;
use crate::credentials::connect_token::ConnectToken;
use crate::message::event::{Closed, Event, PeerInfo};

/// A connection, at a server or a client. It does everything by `&self`, from as many tasks as need be; clones are the same
/// connection.
///
/// All its methods that wait are cancel-safe: a future of theirs that is dropped before it is ready has done nothing, so they
/// can stand in `select!` and under timeouts.
///
/// When the last clone is dropped the connection is closed with code 0, as [`Connection::close`] does it: what was sent before
/// leaves once more as far as it may, and is not repeated when it is lost. Where that matters wait for a [`Receipt`] first.
///
/// ```
/// # use drumfire::*;
/// # use drumfire::error::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let server = asynchronous::Server::bind(config)?;
/// # let connection = asynchronous::Client::connect_dev(server.local_addr()).await?;
/// # let at_server = server.accept().await.ok_or("the server is over")?;
/// // One task hears, another speaks.
/// let ears = connection.clone();
/// let hearing = tokio::spawn(async move {
///     loop {
///         match ears.recv().await {
///             Ok((_, payload)) => println!("{payload:?}"),
///             Err(closed) => break closed,
///         }
///     }
/// });
/// connection.send(Message::reliable_ordered(ChannelId(0), "hello")).await?;
/// connection.close(7, "good night");
/// let closed = hearing.await?;
/// assert_eq!(closed.reason, CloseReason::Local { code: CloseCode::Application, application_code: 7 });
///
/// // The other side gets what was sent, and then the end with its code.
/// assert_eq!(at_server.recv().await?, (ChannelId(0), "hello".into()));
/// let closed = at_server.recv().await.unwrap_err();
/// assert_eq!(closed.reason, CloseReason::Remote { code: CloseCode::Application, application_code: 7 });
/// assert_eq!(closed.text, "good night");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Connection {
    // Dropped before the thread, which ends with its last connection and has to send the close first.
    handle: Arc<Handle>,
    thread: Option<Arc<dyn ClientThread>>,
}

/// The thread that does the I/O of a client's connection. The connection knows it by this trait, because the thread makes connections.
pub(super) trait ClientThread: Debug + Send + Sync {
    /// Asks for the newest resume token of a connection. Returns `None` when the thread has ended or has too many requests.
    fn request_resume_token(&self, peer: PeerId) -> Option<oneshot::Receiver<Option<ConnectToken>>>;
}

/// What all clones hold.
#[derive(Debug)]
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        // One that is over needs no closing.
        self.0.close(0, "");
    }
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { handle: Arc::new(Handle(shared)), thread: None }
    }

    /// Keeps this thread running for as long as the connection has handles.
    pub(super) fn with_thread(self, thread: Arc<dyn ClientThread>) -> Self {
        Self { thread: Some(thread), ..self }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.handle.0
    }

    /// The name of the other end, by which a server's events and groups know it too.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.shared().peer
    }

    /// Returns the address of the peer when the connection began, and who it is.
    #[must_use]
    pub fn info(&self) -> &PeerInfo {
        &self.shared().info
    }

    /// Waits for the next message, and returns its channel and payload. Messages that arrived before the end of the connection come
    /// first. Other events are dropped: call [`Connection::next_event`] to receive them too.
    ///
    /// Messages stay in the connection's receive memory until a task takes them. When it is full, the peer cannot send more reliable
    /// messages, and unreliable ones are dropped and counted as `unreliable_overflows` of
    /// [`WorkerStats::protocol`](crate::stats::WorkerStats::protocol). Other connections are not affected. Several tasks can wait
    /// at the same time; each message goes to one of them. A task that always finds a message yields after 128 of them.
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
                InboxPoll::Something(Event::Message { channel, payload, .. }) => {
                    return Ok(Some((channel, payload)));
                }
                InboxPoll::Something(_) => {}
                InboxPoll::Nothing | InboxPoll::Enough => return Ok(None),
                InboxPoll::Over(closed) => return Err(closed),
            }
        }
    }

    /// Waits for the next event: [`Message`](Event::Message), [`Skipped`](Event::Skipped), [`Missed`](Event::Missed), or the
    /// [`FlightRecord`](Event::FlightRecord) of a connection that broke, which is the last one. At most 256 `Skipped` and `Missed`
    /// events wait; more are dropped and counted as
    /// [`WorkerStats::notices_left_out`](crate::stats::WorkerStats::notices_left_out).
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

    /// Sends a message; while there is no room for it, waits. It leaves at once, together with what other tasks send at the same
    /// time.
    ///
    /// Tasks that wait are served in turn, by priority. On channels whose [`when_full`](ChannelOptions::when_full) drops
    /// something instead nobody waits, unless the worker itself is far behind. For a receipt take
    /// [`Connection::send_with_receipt`].
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let connection = asynchronous::Client::connect_dev(server.local_addr()).await?;
    /// # let at_server = server.accept().await.ok_or("the server is over")?;
    /// // 10 MB, which is more than any memory on the way has room for.
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
    /// Cancel-safe: a future that is dropped before it is ready has sent nothing. It loses its turn.
    ///
    /// # Errors
    ///
    /// [`SendError`], all but `Full` and `UnknownPeer`; nothing of the message was taken then. `Closed` once the connection is
    /// over, or closing.
    pub async fn send(&self, message: Message) -> Result<(), SendError> {
        self.shared().send(message).await
    }

    /// [`Connection::send`], that tells what becomes of the message.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let connection = asynchronous::Client::connect_dev(server.local_addr()).await?;
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
    /// As [`Connection::send`].
    pub async fn send_with_receipt(&self, message: Message) -> Result<Receipt, SendError> {
        self.shared().send_with_receipt(message).await
    }

    /// Sends a message if there is room for it now, and nobody waits for that with the same priority.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let connection = asynchronous::Client::connect_dev(server.local_addr()).await?;
    /// # let at_server = server.accept().await.ok_or("the server is over")?;
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
    /// [`SendError`]; nothing of the message was taken then. `Full` where [`Connection::send`] would wait.
    pub fn try_send(&self, message: Message) -> Result<(), SendError> {
        self.shared().try_send(message)
    }

    /// Sets how the messages of a channel are sent from now on. Does nothing once the connection is over.
    pub fn set_channel_options(&self, channel: ChannelId, options: ChannelOptions) {
        self.shared().set_channel_options(channel, options);
    }

    /// Forgets what came last of a key of a [`ReliableLatest`](crate::Mode::ReliableLatest) channel, for a thing that is gone, as
    /// [`Server::forget_key`](crate::Server::forget_key) does.
    pub fn forget_key(&self, channel: ChannelId, key: u64) {
        self.shared().forget_key(channel, key);
    }

    /// Asks what the connection and its path are like.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let connection = asynchronous::Client::connect_dev(server.local_addr()).await?;
    /// let stats = connection.stats().await?;
    /// println!("{:?} there and back, {} of {} packets lost", stats.round_trip, stats.packets_lost, stats.packets_sent);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the answer to a question that was dropped is heard by nobody.
    ///
    /// # Errors
    ///
    /// [`Closed`] when the connection is over.
    pub async fn stats(&self) -> Result<Box<PeerStats>, Closed> {
        self.shared().stats().await
    }

    /// What lets this player come back to this server with [`Client::connect_with_token`](crate::asynchronous::Client), as
    /// [`Client::resume_token`](crate::Client::resume_token) says. `None` at a server, and while there is none.
    ///
    /// With [`Client`](crate::asynchronous::Client) the newest is known also when the connection is over; with
    /// [`Clients`](crate::asynchronous::Clients) while it is there, so ask for it from time to time.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe.
    pub async fn resume_token(&self) -> Option<ConnectToken> {
        let answered = self.thread.as_ref()?.request_resume_token(self.peer())?;
        answered.await.ok().flatten()
    }

    /// Ends all sessions over the socket of this connection because there may be a copy of this process, as
    /// [`Client::invalidate_keys`](crate::Client::invalidate_keys) does: with [`Client`](crate::asynchronous::Client) that is
    /// this one alone, with [`Clients`](crate::asynchronous::Clients) all of them. At a server it is those of the same worker: call
    /// [`Control::invalidate_keys`](crate::Control::invalidate_keys) there.
    ///
    /// It blocks for the pass that the worker is in; tasks hear of the end, `KeysInvalidated`, behind that. Not to be called by a
    /// [`Waker`](std::task::Waker).
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`] if the system has no randomness. Nothing has changed then, and this copy must not continue.
    pub fn invalidate_keys(&self) -> Result<(), Error> {
        self.shared().invalidate_keys()
    }

    /// Closes the connection with an application code and a text for the log of the peer, which is cut to 128 bytes. Messages that were
    /// sent before are sent once more as far as congestion control allows. [`Connection::recv`] returns [`Closed`] after the messages
    /// that arrived. Does nothing once the connection is over.
    pub fn close(&self, code: u32, text: &str) {
        self.shared().close(code, text);
    }

    /// Waits for the end of the connection, whatever still waits to be taken.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the end stays.
    pub async fn closed(&self) -> Closed {
        self.shared().closed().await
    }
}
