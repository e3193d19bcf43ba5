//! One socket and its connections on the application's own thread. All kinds of clients use it.

use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{CloseCode, Endpoint, PeerId, SingleWorker};
use drumfire_socket::{Poller, Receiver, ReceiverConfig, SocketGrants, Wait, Waiter};

use super::invalidate::SeedSource;
use crate::base::clock::SystemClock;
use crate::base::entropy;
use crate::base::error::Error;
use crate::conditioner::Random;
use crate::config::DATAGRAM_START_BYTES;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::worker::channel::WorkerChannel;
use crate::worker::client_sockets::ClientSockets;
use crate::worker::live_links::with_system_seeds;
use crate::worker::pass::{Worker, WorkerParts};
use crate::worker::sessions::Sessions;
use crate::worker::sink::Sink;
use crate::worker::transport::SocketTransport;

/// The worker of a client, which the application's thread drives.
pub(crate) struct Inline {
    pub(crate) worker: Box<Worker<SingleWorker>>,
    /// The options that the system granted to the socket. `None` in a simulated world, which has no sockets.
    pub(crate) granted: Option<SocketGrants>,
    protocol_id: u64,
    /// The source of the new seeds after [`Inline::invalidate_keys`].
    seed_source: SeedSource,
}

impl Inline {
    /// Creates a client whose events this sink receives.
    pub(crate) fn new(
        config: ClientConfig,
        sink: Box<dyn Sink<SingleWorker>>,
        link: &Arc<WorkerChannel>,
    ) -> Result<Self, Error> {
        let protocol_id = config.protocol_id;
        let (worker, granted) = worker(config, sink, link)?;
        Ok(Self::from_worker(worker, protocol_id, Some(granted), Box::new(entropy::secret)))
    }

    /// Creates a client from its worker.
    pub(crate) fn from_worker(
        worker: Worker<SingleWorker>,
        protocol_id: u64,
        granted: Option<SocketGrants>,
        seed_source: SeedSource,
    ) -> Self {
        Self { worker: Box::new(worker), granted, protocol_id, seed_source }
    }

    /// Starts to connect to a server.
    pub(crate) fn connect(&mut self, options: &ConnectOptions) -> Result<PeerId, Error> {
        options.check(self.protocol_id)?;
        self.worker.connect(options)
    }

    /// Invalidates the keys of all sessions.
    pub(crate) fn invalidate_keys(&mut self) -> Result<(), Error> {
        let seed = (self.seed_source)()?;
        self.worker.invalidate_keys(seed);
        Ok(())
    }

    /// Sends and receives, and waits up to `timeout` while there is no event. Returns whether there is one.
    pub(crate) fn poll(&mut self, timeout: Duration) -> bool {
        // A foreign event loop watches the descriptor of the poll. Linux clears the readiness of the poll when the socket is drained, but
        // kqueue only in a call of its own, without which the loop would spin. Without datagrams this call also replaces the receive call.
        if timeout.is_zero() && self.worker.has_socket() {
            self.worker.wait(Some(Duration::ZERO));
        }
        self.worker.poll(timeout)
    }

    /// Returns the time until the next poll is due if no datagram arrives. `None` if no poll is due.
    pub(crate) fn poll_timeout(&mut self) -> Option<Duration> {
        // No datagram or timer reports a message that was queued, or an event that a call caused.
        if self.worker.is_due() {
            return Some(Duration::ZERO);
        }
        let now = self.worker.time();
        self.worker.due().map(|due| due.since(now))
    }

    /// Returns the descriptor that a foreign event loop watches.
    ///
    /// # Panics
    ///
    /// Panics in a simulated world, which has no descriptors.
    #[cfg(unix)]
    pub(crate) fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.worker.descriptor().expect("a client of a simulated world has no descriptor")
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        self.worker.finish(CloseCode::Application);
    }
}

/// Creates a client's worker and its socket. Also returns the options that the system granted to the socket.
pub(crate) fn worker(
    config: ClientConfig,
    sink: Box<dyn Sink<SingleWorker>>,
    link: &Arc<WorkerChannel>,
) -> Result<(Worker<SingleWorker>, SocketGrants), Error> {
    config.check()?;
    let (mut core, kind) = (config.core(), config.core_client());
    core.check()?;
    let (sockets, mut socket) = ClientSockets::new(config)?;
    let config = &sockets.config;
    let granted = socket.granted();
    // A path that fragments datagrams hides its MTU, so the endpoint must not send larger ones to discover it. Later sockets get the
    // same options on the same platform.
    if !granted.is_never_fragmented {
        core.datagram_max_bytes = DATAGRAM_START_BYTES;
    }
    let random = Random::new(u64::from_le_bytes(entropy::bytes()?));
    let mut parker = Poller::new()?;
    parker.register(&mut socket, 0)?;
    // A worker on the application's thread waits only while that thread calls nothing, so it needs no waker. With a handler, other
    // threads can send commands.
    if sink.runs_before_flush() {
        link.set_waker(parker.waker());
    }
    let receiver = Receiver::new(&mut socket, &ReceiverConfig::default())?;
    let transport =
        SocketTransport::new(socket, parker, Waiter::new(Wait::Notify)?, receiver, granted.has_gso)
            .over(with_system_seeds(config.conditioner.as_ref())?);
    let worker = Worker::new(WorkerParts {
        index: 0,
        transport: Box::new(if config.has_connected_socket() {
            transport.connected(config.follow_network)
        } else {
            transport
        }),
        clock: Box::new(SystemClock::start()),
        endpoint: Endpoint::client(core.clone(), kind, entropy::secret()?)?,
        send_memory_bytes: core.send_memory_bytes,
        message_max_bytes: core.message_max_bytes,
        make: Box::new(move || Endpoint::client(core.clone(), kind, entropy::secret().ok()?).ok()),
        sink,
        link: Arc::clone(link),
        ring: None,
        sessions: Some(Sessions::new(config, sockets.are_ipv6(), random)),
        sockets: Some(sockets),
    });
    Ok((worker, granted))
}
