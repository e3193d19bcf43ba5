//! The common part of all servers: the workers with their sockets, and the control interface. The sinks of the workers determine which
//! interface the application has.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use drumfire_proto::{CloseCode, Moment, Shard as SteeredShard};
use drumfire_socket::{GroupConfig, ReuseportGroup, Socket, Wait};

use super::control::{Control, ControlState};
use super::port_monitor::PortMonitor;
use super::steering;
use super::threads::pool::Pool;
use super::threads::shard::{ServerParts, Shard};
use crate::admission::AdmissionControl;
use crate::admission::registry::{ConnectionRegistry, RegistryView};
use crate::base::clock::{self, Clock as _, SystemClock};
use crate::base::entropy;
use crate::base::error::Error;
use crate::base::sync::{Mutex, Notifier};
use crate::config::server::ServerConfig;
use crate::config::threads::ThreadCounts;
use crate::config::{DATAGRAM_START_BYTES, RECEIVE_BUFFER_LEAST_BYTES};
use crate::observe::trace;
use crate::worker::channel::WorkerChannel;
use crate::worker::forward::forward_queues;
use crate::worker::pass::Worker;
use crate::worker::send_edge::SendLimits;
use crate::worker::sink::Sink;

/// The sinks of all workers, by index.
pub(crate) type Sinks = Vec<Box<dyn Sink<RegistryView>>>;

/// The workers of a server, and what they share.
pub(crate) struct ServerCore {
    /// The workers of a server without threads: one, which the application's calls run. In a simulated world there can be several,
    /// which the world runs.
    pub(crate) workers: Vec<Worker<RegistryView>>,
    pub(crate) control: Control,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) links: Arc<[Arc<WorkerChannel>]>,
    pub(crate) address: SocketAddr,
}

impl ServerCore {
    /// Binds the sockets and starts a worker with one of these sinks for each. With `needs_thread` there is at least one thread, whatever
    /// the configuration says.
    pub(crate) fn bind(
        config: ServerConfig,
        needs_thread: bool,
        sinks: impl FnOnce(&Arc<[Arc<WorkerChannel>]>, ThreadCounts) -> Sinks,
    ) -> Result<Self, Error> {
        config.check()?;
        config.key.warn_if_dev();
        if config.needs_server_id() {
            trace::warn_of_empty_server_id(config.address);
        }
        // Sinks and threads follow from one reading, because the limits of the process may change between two.
        let mut counts = config.workers.counts();
        if needs_thread {
            counts.threads = counts.threads.or(Some(NonZeroU16::MIN));
        }
        let ThreadCounts { sockets: count, threads } = counts;
        let (mut core, steering) = (config.core(count.get()), steering::draw(count)?);
        let (address, sockets, monitor) = bind_sockets(&config, count, steering)?;
        let granted: Vec<_> = sockets.iter().map(Socket::granted).collect();
        // MTU discovery fails on a path that fragments datagrams, so the datagrams keep the initial size.
        if !granted.iter().all(|granted| granted.is_never_fragmented) {
            core.datagram_max_bytes = DATAGRAM_START_BYTES;
        }
        let (notifier, limits) = (Arc::new(Notifier::default()), SendLimits::from(&core));
        let link = |_| Arc::new(WorkerChannel::new(Arc::clone(&notifier), limits));
        let links: Arc<[_]> = (0..count.get()).map(link).collect();
        let sinks = sinks(&links, counts);
        let admission = AdmissionControl::new(&config.admission, WorkerChannel::loads(&links));
        let (config, connections) = (Arc::new(config), core.connections);
        let parts = Arc::new(ServerParts {
            registry: ConnectionRegistry::with_admission(
                Arc::clone(&admission),
                count.get(),
                connections,
                config.connections,
            ),
            core,
            access: config.access.core(clock::wall()),
            server_id: config.effective_server_id(address),
            config: Arc::clone(&config),
            process_key: entropy::secret()?,
            steering,
            clock: SystemClock::start(),
            wait: if threads.is_some() { config.wait } else { Wait::Notify },
        });
        let of_worker = sockets.into_iter().zip(forward_queues(&links)).zip(sinks).zip(links.iter());
        let workers = (0..).zip(of_worker).map(|(index, (((socket, ring), sink), link))| {
            parts.worker(index, socket, ring, sink, link).map(|worker| (link, worker))
        });
        let workers: Vec<(&Arc<WorkerChannel>, Worker<_>)> = workers.collect::<Result<_, Error>>()?;
        let (workers, pool) = match threads {
            None => (workers.into_iter().map(|(_, worker)| worker).collect(), None),
            Some(threads) => {
                let shard = |(index, (link, worker))| Shard::new(index, Arc::clone(link), worker);
                let shards = (0..).zip(workers).map(shard).collect();
                let pool = Pool::start(parts.wait, parts.clock, shards, threads.get(), monitor)?;
                (Vec::new(), Some(pool))
            }
        };
        let clock = parts.clock;
        let control_state = ControlState {
            links: Arc::clone(&links),
            admission,
            config,
            sockets: granted,
            pool,
            now: Box::new(move || {
                let mut clock = clock;
                clock.monotonic()
            }),
            seed_source: Mutex::new(Box::new(entropy::secret)),
            change_lock: Mutex::default(),
        };
        Ok(Self::new(workers, control_state, notifier, address))
    }

    /// Creates a server from its workers, if it has no threads.
    pub(crate) fn new(
        workers: Vec<Worker<RegistryView>>,
        control_state: ControlState,
        notifier: Arc<Notifier>,
        address: SocketAddr,
    ) -> Self {
        let links = Arc::clone(&control_state.links);
        let core = Self { workers, control: Control::new(control_state), notifier, links, address };
        if core.inline_ref().is_none() {
            // The threads publish their statistics from the start, so that the first reader does not have to wait for a pass.
            core.links.iter().for_each(|link| link.observe());
        }
        core
    }

    /// Returns the worker that runs in the calls of the application.
    pub(crate) fn inline(&mut self) -> Option<&mut Worker<RegistryView>> {
        if let [only] = self.workers.as_mut_slice() { Some(only) } else { None }
    }

    /// Returns the worker that runs in the calls of the application.
    pub(crate) fn inline_ref(&self) -> Option<&Worker<RegistryView>> {
        if let [only] = self.workers.as_slice() { Some(only) } else { None }
    }

    /// Closes all connections and ends the threads.
    pub(crate) fn stop(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.finish(CloseCode::Shutdown));
        self.control.stop_threads();
    }

    /// Returns the operator's interface. From now on, a worker on the application's thread publishes its statistics.
    pub(crate) fn control(&self) -> Control {
        if let Some(worker) = self.inline_ref() {
            worker.observe();
        }
        self.control.clone()
    }

    /// Returns the time of the server's clock.
    pub(crate) fn now(&self) -> Moment {
        self.control.now()
    }
}

/// Binds the sockets of a server, and starts the monitor of their port. Returns their address, with its port.
fn bind_sockets(
    config: &ServerConfig,
    count: NonZeroU16,
    steering: SteeredShard,
) -> Result<(SocketAddr, Vec<Socket>, Option<PortMonitor>), Error> {
    let mut group = GroupConfig::new(config.address).sockets(usize::from(count.get()));
    (group.steering, group.receive_buffer_bytes) = (steering::filter(steering)?, config.receive_buffer_bytes);
    let group = ReuseportGroup::bind(&group).map_err(|error| Error::from_bind(error, config.address))?;
    let address = group.local_addr();
    // A single socket does not share its port.
    let monitor = if count.get() > 1 { Some(PortMonitor::start(group.watch()?)?) } else { None };
    let mut sockets = group.into_sockets();
    for socket in &mut sockets {
        socket.never_fragment();
        if config.receive_buffer_bytes.is_none() {
            socket.raise_receive_buffer(RECEIVE_BUFFER_LEAST_BYTES).map_err(Error::Io)?;
        }
    }
    Ok((address, sockets, monitor))
}
