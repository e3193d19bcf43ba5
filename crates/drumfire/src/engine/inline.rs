//! One socket and its connections on the application's own thread. All kinds of clients use it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drumfire_proto::{ClientConfig as CoreClient, CloseCode, ConnectError, Endpoint, PeerId, SingleWorker};
use drumfire_socket::{Poller, Receiver, ReceiverConfig, Socket, Wait, Waiter};

use super::app_side::Front;
use super::client_socket::ClientSocket;
use super::invalidate::SeedSource;
use crate::base::clock::{self, SystemClock};
use crate::base::entropy;
use crate::base::error::Error;
use crate::base::sync::Notifier;
use crate::config::DATAGRAM_START_BYTES;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::message::event::Event;
use crate::observe::grants::SocketGrants;
use crate::observe::stats::WorkerStats;
use crate::worker::channel::WorkerChannel;
use crate::worker::forward::{ForwardQueue, forward_queues};
use crate::worker::live_links::with_system_seeds;
use crate::worker::network_watch::ConnectedSockets;
use crate::worker::pass::{ClientParts, Parts, Worker};
use crate::worker::queue::Queue;
use crate::worker::reconnect::Jitter;
use crate::worker::sessions::Sessions;
use crate::worker::sink::Sink;
use crate::worker::transport::SocketTransport;

/// A worker that the application's thread drives, and the application's side of its link.
pub(crate) struct Inline {
    /// The application's side of the link to the worker.
    pub(crate) front: Front,
    pub(crate) worker: Box<Worker<SingleWorker>>,
    /// Events that the application has not taken.
    pub(crate) events: VecDeque<Event>,
    /// The options that the system granted to the socket. `None` in a simulated world, which has no sockets.
    pub(crate) granted: Option<SocketGrants>,
    /// The source of the new seeds after [`Inline::invalidate_keys`].
    seed_source: SeedSource,
}

impl Inline {
    /// Creates a client's worker for this socket, with at most this number of connections.
    pub(crate) fn new(socket: ClientSocket, config: &ClientConfig, connections: u32) -> Result<Self, Error> {
        let (front, link, ring) = front(config.message_max_bytes)?;
        let sink = Box::new(Queue::new(&link));
        let (worker, granted) = worker(socket, config, connections, sink, &link, ring)?;
        Ok(Self::of(front, worker, Some(granted), Box::new(entropy::secret)))
    }

    /// Combines a worker with the application's side of its link.
    pub(crate) fn of(
        front: Front,
        worker: Worker<SingleWorker>,
        granted: Option<SocketGrants>,
        seed_source: SeedSource,
    ) -> Self {
        Self { front, worker: Box::new(worker), events: VecDeque::new(), granted, seed_source }
    }

    /// Starts to connect. The first Hello is sent with the next pass.
    pub(crate) fn connect(&mut self, options: &ConnectOptions) -> Result<PeerId, ConnectError> {
        let (peer, credit) = self.worker.connect(options)?;
        self.front.add(peer, credit);
        Ok(peer)
    }

    /// Invalidates the keys of all sessions.
    pub(crate) fn invalidate_keys(&mut self) -> Result<(), Error> {
        let mut pending = self.front.invalidate_keys(&mut self.seed_source);
        self.worker.send();
        // The worker runs on this thread, so it has carried out the command.
        pending.try_take().unwrap_or(Ok(()))
    }

    /// Starts a poll that waits up to `timeout`. Hands the staged commands to the worker, and runs one pass without waiting.
    pub(crate) fn begin_poll(&mut self, timeout: Duration) -> Deadline {
        self.front.flush();
        // A foreign event loop watches the poll. Linux clears the readiness of the poll when the socket is drained, but kqueue only
        // in a call of its own, without which the loop would spin. Without datagrams this call also replaces the receive call.
        if timeout.is_zero() && self.worker.has_socket() {
            self.worker.wait(Some(Duration::ZERO));
        }
        self.worker.work();
        Deadline { start: clock::instant(), timeout }
    }

    /// Waits for datagrams and receives them while there is no event. Returns whether there is one, or `None` if the caller must
    /// look for events again.
    pub(crate) fn continue_poll(&mut self, until: &Deadline) -> Option<bool> {
        if !self.events.is_empty() {
            return Some(true);
        }
        let left = until.timeout.saturating_sub(clock::instant().saturating_duration_since(until.start));
        if left.is_zero() {
            return Some(false);
        }
        self.worker.wait(Some(left));
        self.worker.work();
        None
    }

    /// Hands the staged commands to the worker and sends the resulting datagrams.
    pub(crate) fn flush(&mut self) {
        self.front.flush();
        self.worker.send();
    }

    /// Returns the time until the next poll is due if no datagram arrives. `None` if no poll is due.
    pub(crate) fn poll_timeout(&mut self) -> Option<Duration> {
        // A flush can cause events, such as the end of a closed connection. No datagram or timer reports these.
        if !self.events.is_empty() || self.front.has_work() {
            return Some(Duration::ZERO);
        }
        let now = self.worker.time();
        self.worker.due().map(|due| due.since(now))
    }

    /// Returns the descriptor that a foreign event loop watches.
    ///
    /// # Panics
    ///
    /// In a simulated world, which has no descriptors.
    #[cfg(unix)]
    pub(crate) fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.worker.descriptor().expect("a client of a simulated world has no descriptor")
    }

    /// Replaces the socket. Commands that are staged are sent from the old one.
    pub(crate) fn rebind(&mut self, socket: Socket) -> std::io::Result<()> {
        self.flush();
        self.worker.rebind(socket)
    }

    /// Replaces the socket with a new one that is connected to the server of the only connection. In a simulated world, which has no
    /// sockets, only the connection changes.
    pub(crate) fn rebind_connected(&mut self) -> std::io::Result<()> {
        self.flush();
        self.worker.rebind_connected()
    }

    /// Returns the statistics of the worker.
    pub(crate) fn stats(&self) -> WorkerStats {
        self.front.stats().workers.pop().unwrap_or_default()
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        self.front.flush();
        self.worker.finish(CloseCode::Application);
    }
}

/// Creates a client's worker for this socket, with at most this number of connections. Also returns the options that the system granted
/// to the socket.
pub(crate) fn worker(
    socket: ClientSocket,
    config: &ClientConfig,
    connections: u32,
    sink: Box<dyn Sink<SingleWorker>>,
    link: &Arc<WorkerChannel>,
    ring: ForwardQueue<WorkerChannel>,
) -> Result<(Worker<SingleWorker>, SocketGrants), Error> {
    let mut core = config.core().connections(connections);
    core.check()?;
    let ClientSocket { mut socket, is_connected, buffer } = socket;
    let granted = SocketGrants::of(&socket, buffer.asked_bytes);
    // A path that fragments datagrams hides its MTU, so the endpoint must not send larger ones to discover it. Later sockets get the
    // same options on the same platform.
    if !granted.is_never_fragmented {
        core.datagram_max_bytes = DATAGRAM_START_BYTES;
    }
    let kind = if is_connected { CoreClient::default() } else { CoreClient::many() };
    let connect = move |server| ClientSocket::connect(server, buffer).map(|connected| connected.socket);
    let local = if config.follow_network { socket.local_addr().ok() } else { None };
    let sockets = ConnectedSockets::new(Box::new(connect), local.map(|local| local.ip()));
    let jitter = Jitter::new(u64::from_le_bytes(entropy::bytes()?));
    let mut parker = Poller::new()?;
    parker.register(&mut socket, 0)?;
    // A worker on the application's thread waits only while that thread sends no commands, so it needs no waker. With a handler,
    // other threads can send commands.
    if sink.runs_before_flush() {
        link.set_waker(parker.waker());
    }
    let receiver = Receiver::new(&mut socket, &ReceiverConfig::default())?;
    let transport =
        SocketTransport::new(socket, parker, Waiter::new(Wait::Notify)?, receiver, granted.has_gso)
            .over(with_system_seeds(config.links())?);
    let worker = Worker::new(Parts {
        index: 0,
        transport: Box::new(if is_connected {
            transport.connected(config.follow_network)
        } else {
            transport
        }),
        clock: Box::new(SystemClock::start()),
        endpoint: Endpoint::client(core.clone(), kind, entropy::secret()?)?,
        credit_bytes: core.send_memory_bytes,
        message_max_bytes: core.message_max_bytes,
        make: Box::new(move || Endpoint::client(core.clone(), kind, entropy::secret().ok()?).ok()),
        sink,
        link: Arc::clone(link),
        ring,
        client: Some(ClientParts {
            sessions: Sessions::new(config, jitter),
            sockets: is_connected.then_some(sockets),
        }),
    });
    Ok((worker, granted))
}

/// The time at which a poll ends.
pub(crate) struct Deadline {
    start: Instant,
    timeout: Duration,
}

/// Creates the link to a single worker: the application's side, the link, and the worker's forward queue.
pub(crate) fn front(
    message_max_bytes: usize,
) -> Result<(Front, Arc<WorkerChannel>, ForwardQueue<WorkerChannel>), Error> {
    let links = vec![Arc::new(WorkerChannel::new(Arc::new(Notifier::default())))];
    match (links.first().cloned(), forward_queues(&links).pop()) {
        (Some(link), Some(ring)) => Ok((Front::new(Arc::from(links), message_max_bytes), link, ring)),
        // Never reached, because one link has one forward queue.
        _ => Err(Error::Io(std::io::ErrorKind::Other.into())),
    }
}
