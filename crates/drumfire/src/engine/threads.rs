//! Creates the workers of a server from its configuration. Threads of the server run them, or the calls of the application.
//!
//! [`plan`] decides which thread runs which worker.

pub(crate) mod plan;
pub(crate) mod pool;
mod shard;
#[cfg(test)]
mod tests;
mod thread;

use std::net::SocketAddr;
use std::sync::Arc;

use drumfire_proto::{Access, CloseCode, Config, Endpoint, Secret, ServerConfig as CoreServer};
use drumfire_socket::{GroupConfig, ReuseportGroup, Socket, SocketGrants, Wait};

use super::port_monitor::PortMonitor;
use super::steering::Steering;
use crate::admission::AdmissionControl;
use crate::admission::registry::{ConnectionRegistry, RegistryView};
use crate::base::clock::{self, SystemClock};
use crate::base::entropy;
use crate::base::error::Error;
use crate::config::server::ServerConfig;
use crate::config::threads::ThreadCounts;
use crate::config::{DATAGRAM_START_BYTES, RECEIVE_BUFFER_LEAST_BYTES};
use crate::worker::channel::WorkerChannel;
use crate::worker::forward::forward_queues;
use crate::worker::pass::Worker;
use crate::worker::sink::Sink;
use pool::Pool;
use shard::{Shard, worker};

/// The workers of a server.
pub(crate) enum ThreadPool {
    /// A server without threads. The application's calls run the only worker. In a simulated world there can be several, which the
    /// world runs.
    Inline(Vec<Worker<RegistryView>>),
    /// The threads that run the workers.
    Threads(Arc<Pool>),
}

impl ThreadPool {
    /// Returns the worker that runs in the calls of the application.
    pub(crate) fn inline(&mut self) -> Option<&mut Worker<RegistryView>> {
        match self {
            Self::Inline(workers) if workers.len() == 1 => workers.first_mut(),
            _ => None,
        }
    }

    /// Returns the worker that runs in the calls of the application.
    pub(crate) fn inline_ref(&self) -> Option<&Worker<RegistryView>> {
        match self {
            Self::Inline(workers) if workers.len() == 1 => workers.first(),
            _ => None,
        }
    }

    /// Closes all connections and ends the threads.
    pub(crate) fn stop(&mut self) {
        match self {
            Self::Inline(workers) => {
                workers.iter_mut().for_each(|worker| worker.finish(CloseCode::Shutdown));
            }
            Self::Threads(pool) => pool.stop(),
        }
    }

    /// Returns the threads, or `None` for a server without threads.
    pub(crate) const fn threads(&self) -> Option<&Arc<Pool>> {
        match self {
            Self::Inline(_) => None,
            Self::Threads(pool) => Some(pool),
        }
    }
}

/// The workers of a server that [`start`] started.
pub(crate) struct ServerThreads {
    pub(crate) pool: ThreadPool,
    /// The bound address, with its port.
    pub(crate) address: SocketAddr,
    /// The options that the system granted each socket, by index.
    pub(crate) sockets: Vec<SocketGrants>,
    /// The clock of all workers.
    pub(crate) clock: SystemClock,
}

/// Binds the sockets and starts a worker for each.
pub(crate) fn start(
    config: &Arc<ServerConfig>,
    ThreadCounts { sockets: workers, threads }: ThreadCounts,
    links: &[Arc<WorkerChannel>],
    sinks: Vec<Box<dyn Sink<RegistryView>>>,
    admission: &Arc<AdmissionControl>,
) -> Result<ServerThreads, Error> {
    let steering = Steering::draw(workers)?;
    let mut core = config.core(workers.get());
    let mut group = GroupConfig::new(config.address).sockets(usize::from(workers.get()));
    (group.steering, group.receive_buffer_bytes) = (steering.filter()?, config.receive_buffer_bytes);
    let group = ReuseportGroup::bind(&group).map_err(|error| Error::from_bind(error, config.address))?;
    let address = group.local_addr();
    // A single socket does not share its port.
    let monitor = if workers.get() > 1 { Some(PortMonitor::start(group.watch()?)?) } else { None };
    let mut sockets = group.into_sockets();
    for socket in &mut sockets {
        socket.never_fragment();
        if config.receive_buffer_bytes.is_none() {
            socket.raise_receive_buffer(RECEIVE_BUFFER_LEAST_BYTES).map_err(Error::Io)?;
        }
    }
    let granted: Vec<_> = sockets.iter().map(Socket::granted).collect();
    // MTU discovery fails on a path that fragments datagrams, so the datagrams keep the initial size.
    if !granted.iter().all(|granted| granted.is_never_fragmented) {
        core.datagram_max_bytes = DATAGRAM_START_BYTES;
    }
    let server_id = config.effective_server_id(address);
    let shared = Arc::new(ServerParts {
        registry: ConnectionRegistry::with_admission(
            Arc::clone(admission),
            workers.get(),
            core.connections,
            config.connections,
        ),
        core,
        access: config.access.core(clock::wall()),
        config: Arc::clone(config),
        server_id,
        process_key: entropy::secret()?,
        steering,
        clock: SystemClock::start(),
        wait: if threads.is_some() { config.wait } else { Wait::Notify },
        has_threads: threads.is_some(),
    });
    let parts = sockets.into_iter().zip(forward_queues(links)).zip(sinks).zip(links);
    let workers = (0..)
        .zip(parts)
        .map(|(index, (((socket, ring), sink), link))| worker(index, socket, ring, sink, link, &shared));
    let pool = match threads {
        None => ThreadPool::Inline(workers.collect::<Result<_, _>>()?),
        Some(threads) => {
            let shard = |(index, (worker, link)): (u16, (Result<_, Error>, _))| {
                Ok(Shard::new(index, Arc::clone(link), worker?))
            };
            let shards = (0..).zip(workers.zip(links)).map(shard).collect::<Result<_, Error>>()?;
            ThreadPool::Threads(Pool::start(shared.wait, shared.clock, shards, threads.get(), monitor)?)
        }
    };
    Ok(ServerThreads { pool, address, sockets: granted, clock: shared.clock })
}

/// The parts of a server from which each worker creates its endpoint, initially and after each restart.
struct ServerParts {
    core: Config,
    config: Arc<ServerConfig>,
    registry: Arc<ConnectionRegistry>,
    access: Access,
    server_id: Vec<u8>,
    process_key: Secret<32>,
    steering: Steering,
    clock: SystemClock,
    wait: Wait,
    has_threads: bool,
}

impl ServerParts {
    /// Creates an endpoint without connections for the worker with this index.
    fn endpoint(&self, index: u16) -> Result<Endpoint<RegistryView>, Error> {
        let keys = self.config.key.pair();
        let persistent = keys.persistent();
        let server = CoreServer::new(keys, persistent, self.process_key.duplicate())
            .access(self.access.duplicate())
            .cookie(self.config.cookie)
            .server_id(&self.server_id)
            .shard(self.steering.shard(index));
        let placement = self.registry.of_worker(index);
        Ok(Endpoint::server(self.core.clone(), server, placement, entropy::secret()?)?)
    }
}
