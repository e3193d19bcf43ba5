//! The client for tasks. It creates connections, which have all other methods.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::ConnectError;
use drumfire_socket::SocketGrants;
use tokio::sync::oneshot;

use super::attempts::Attempts;
use super::client_thread::ClientThread;
use super::connection::Connection;
use super::driver::Driver;
use super::sink::{AcceptTarget, TaskSink};
use super::task_queues::TaskQueues;
use crate::base::error::Error;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::engine::{client_worker, invalidate};
use crate::observe::stats::WorkerStats;
use crate::worker::command::Command;

/// A client for tasks, with one connection or several: see [`ClientConfig::connections`]. One thread does the I/O of all connections.
///
/// Connections stay open when the client is dropped. The thread ends when the client and all connections are dropped. With
/// [`ClientConfig::reconnect`], a connection outlives the loss of its path or a restart of the server: see [`Connection`].
///
/// ```
/// # use drumfire::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let server = asynchronous::Server::bind(config)?;
/// # let (address, key) = (server.local_addr(), ServerKey::dev().public());
/// let client = asynchronous::Client::new(ClientConfig::default().connections(50))?;
/// let mut bots = Vec::new();
/// for _ in 0..50 {
///     bots.push(client.connect((address, key)).await?);
/// }
/// let one_more = client.connect((address, key)).await;
/// assert!(matches!(one_more, Err(Error::Connect(ConnectError::TooManyConnections))));
/// # Ok(())
/// # }
/// ```
pub struct Client {
    thread: Arc<ClientThread>,
    attempts: Arc<Attempts>,
    granted: SocketGrants,
}

impl Client {
    /// Creates a client, its socket, and its thread.
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting, or contains the error of the operating system.
    pub fn new(config: ClientConfig) -> Result<Self, Error> {
        let link = client_worker::channel(&config);
        link.observe();
        let (attempts, has_links) = (Arc::new(Attempts::default()), config.conditioner.is_some());
        let queues = Arc::new(TaskQueues::new(&link, config.receive_memory_bytes));
        let sink = TaskSink::new(queues, AcceptTarget::Client(Arc::clone(&attempts)));
        let (worker, granted) = client_worker::worker(config, Box::new(sink), &link)?;
        let driver = Driver { worker, attempts: Arc::clone(&attempts) };
        let thread = ClientThread::start(link, has_links, |end| driver.run(end))?;
        Ok(Self { thread, attempts, granted })
    }

    /// Connects to a server: `(address, key)`, a [`ConnectToken`](crate::ConnectToken), or [`ConnectOptions`]. Returns when the server
    /// has proved that it has the key.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config.protocol_id(2))?;
    /// let client = asynchronous::Client::new(ClientConfig::default().protocol_id(1))?;
    /// let failed = client.connect((server.local_addr(), ServerKey::dev().public())).await;
    /// let error = failed.err().ok_or("it is of another build")?;
    /// assert!(matches!(error, Error::Connect(ConnectError::Refused(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: if the future is dropped, the attempt ends, and no longer counts against [`ClientConfig::connections`]. The server may
    /// have accepted the attempt before. Then the token is used up, and the server closes the connection when the client stays silent.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Client::connect`](crate::Client::connect), or after at most 5 s [`Error::Connect`] with the reason
    /// why there is no connection. A client that reconnects returns only the error of its last attempt.
    pub async fn connect(&self, to: impl Into<ConnectOptions>) -> Result<Connection, Error> {
        let (answer, receiver) = oneshot::channel();
        self.attempts.push_request(to.into(), answer)?;
        self.thread.link.notify_worker();
        match (PendingConnect { client: self, receiver }).result().await {
            Ok(answer) => answer.map(|connection| connection.with_thread(Arc::clone(&self.thread))),
            Err(_) => Err(ConnectError::Closed.into()),
        }
    }

    /// Replaces the socket, as [`Client::rebind`](crate::Client::rebind) does. It blocks until the thread has ended its present pass. A
    /// [`Waker`](std::task::Waker) must not call it, because the thread may be the one that wakes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. The client continues with its present socket.
    pub fn rebind(&self) -> Result<(), Error> {
        // A worker that has ended drops the command. The first result then remains.
        let ended = || Err(ConnectError::Closed.into());
        self.thread.link.request(ended(), Command::Rebind).wait(Duration::MAX).unwrap_or_else(ended)
    }

    /// Ends all sessions over this socket, because a copy of this process may exist: see
    /// [`Control::invalidate_keys`](crate::Control::invalidate_keys). Connections and attempts end with `KeysInvalidated`, and the
    /// servers are not informed. Later connections have new keys.
    ///
    /// It blocks until the thread has ended its present pass. Tasks are notified of the end of their connections after that. A
    /// [`Waker`](std::task::Waker) must not call it, because the thread may be the one that wakes.
    ///
    /// ```
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let (address, key) = (server.local_addr(), ServerKey::dev().public());
    /// let client = asynchronous::Client::new(ClientConfig::default())?;
    /// let connection = client.connect((address, key)).await?;
    /// // The orchestrator reports that this machine is about to be copied.
    /// client.invalidate_keys()?;
    /// assert_eq!(connection.closed().await.reason, CloseReason::KeysInvalidated);
    /// let connection = client.connect((address, key)).await?;
    /// # drop(connection);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`] if the system has no randomness. Nothing has changed, and this copy must not continue.
    pub fn invalidate_keys(&self) -> Result<(), Error> {
        invalidate::request_and_wait(&self.thread.link)
    }

    /// Changes the simulated links of the socket in both directions, as [`Client::set_conditioner`](crate::Client::set_conditioner) does.
    /// The thread does so before its next pass.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a configuration that cannot be used, or without [`ClientConfig::conditioner`]. Nothing has changed.
    pub fn set_conditioner(&self, link: &crate::conditioner::LinkConfig) -> Result<(), Error> {
        self.thread.set_conditioner(link)
    }

    /// Returns the options that the system granted the socket.
    #[must_use]
    pub fn granted(&self) -> SocketGrants {
        self.granted
    }

    /// Returns the counters of all connections together.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.thread.link.stats()
    }
}

/// A connect that has been requested. Dropping it ends its attempt, which then no longer counts against the maximum number of connections.
struct PendingConnect<'a> {
    client: &'a Client,
    receiver: oneshot::Receiver<Result<Connection, Error>>,
}

impl PendingConnect<'_> {
    async fn result(mut self) -> Result<Result<Connection, Error>, oneshot::error::RecvError> {
        (&mut self.receiver).await
    }
}

impl Drop for PendingConnect<'_> {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        // The thread looks for senders whose receiver is closed, so the close comes first.
        self.receiver.close();
        self.client.attempts.cancel();
        self.client.thread.link.notify_worker();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("asynchronous::Client").finish_non_exhaustive()
    }
}
