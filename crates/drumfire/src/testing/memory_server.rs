//! A server on the simulated network of a world, with polled events or with handlers.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{Config, ConfigError, Endpoint, Secret, ServerConfig as CoreServer, Shard};
use drumfire_socket::Wait;

use super::memory::NetworkPort;
use super::secret;
use crate::admission::AdmissionControl;
use crate::admission::registry::{ConnectionRegistry, RegistryView};
use crate::base::error::Error;
use crate::base::sync::{Mutex, Notifier};
use crate::conditioner::Random;
use crate::config::server::ServerConfig;
use crate::config::threads::Workers;
use crate::engine::control::ControlState;
use crate::engine::server_core::{ServerCore, Sinks};
use crate::engine::steering;
use crate::worker::channel::WorkerChannel;
use crate::worker::forward::{ForwardQueue, forward_queues};
use crate::worker::live_links::LiveLinks;
use crate::worker::pass::{Worker, WorkerParts};
use crate::worker::sink::Sink;
use crate::worker::transport::Transport;

impl ServerCore {
    /// Creates a server with one worker and one sink for each of these ports of the simulated network. `since` is the start of
    /// the server as time since 1970, and connect tokens that were issued before are refused. All secrets come from `random`.
    pub(crate) fn in_memory(
        config: &Arc<ServerConfig>,
        since: Duration,
        ports: Vec<NetworkPort>,
        random: &mut Random,
        sinks: impl FnOnce(&Arc<[Arc<WorkerChannel>]>) -> Sinks,
    ) -> Result<Self, Error> {
        config.check()?;
        let count = u16::try_from(ports.len()).ok().and_then(NonZeroU16::new);
        let count = count.ok_or_else(|| Error::Io(std::io::ErrorKind::Other.into()))?;
        let core = config.core(count.get());
        core.check()?;
        let notifier = Arc::new(Notifier::default());
        let links: Arc<[_]> = ports
            .iter()
            .map(|_| Arc::new(WorkerChannel::new(Arc::clone(&notifier), (&core).into())))
            .collect();
        let process_key = secret(random);
        let admission = AdmissionControl::new(&config.admission, WorkerChannel::loads(&links));
        let shared = Arc::new(WorldServerParts {
            registry: ConnectionRegistry::with_admission(
                Arc::clone(&admission),
                count.get(),
                core.connections,
                config.connections,
            ),
            config: Arc::clone(config),
            core,
            since,
            process_key,
            steering: steering::draw_from(count, || u32::try_from(random.bits() >> 32).unwrap_or(0))?,
        });
        let first = ports.first().ok_or_else(|| Error::Io(std::io::ErrorKind::Other.into()))?;
        first.set_filter(steering::filter(shared.steering)?);
        let now = first.now();
        let parts = ports.into_iter().zip(forward_queues(&links)).zip(links.iter()).zip(sinks(&links));
        let workers = (0..).zip(parts).map(|(index, (((port, ring), link), sink))| {
            shared.worker(index, port, ring, Arc::clone(link), sink, random)
        });
        let workers = workers.collect::<Result<_, _>>()?;
        let mut later_seeds = Random::new(random.bits());
        let control_state = ControlState {
            links: Arc::clone(&links),
            admission,
            config: Arc::clone(config),
            sockets: Vec::new(),
            pool: None,
            now,
            seed_source: Mutex::new(Box::new(move || Ok(secret(&mut later_seeds)))),
            change_lock: Mutex::default(),
        };
        Ok(Self::new(workers, control_state, notifier, config.address))
    }

    /// Runs one pass of this worker, and registers when the next pass is due.
    pub(crate) fn run(&mut self, worker: usize) {
        self.worker(worker, |worker| {
            worker.work();
            worker.wait(None);
        });
    }

    /// Calls `work` with the worker at `index`, if there is one.
    pub(crate) fn worker(&mut self, index: usize, work: impl FnOnce(&mut Worker<RegistryView>)) {
        if let Some(worker) = self.workers.get_mut(index) {
            work(worker);
        }
    }
}

/// The configuration and the state that all workers of a server share.
struct WorldServerParts {
    config: Arc<ServerConfig>,
    core: Config,
    since: Duration,
    process_key: Secret<32>,
    registry: Arc<ConnectionRegistry>,
    steering: Shard,
}

impl WorldServerParts {
    fn worker(
        self: &Arc<Self>,
        index: u16,
        port: NetworkPort,
        ring: ForwardQueue<WorkerChannel>,
        link: Arc<WorkerChannel>,
        sink: Box<dyn Sink<RegistryView>>,
        random: &mut Random,
    ) -> Result<Worker<RegistryView>, Error> {
        let (shared, mut seeds) = (Arc::clone(self), Random::new(random.bits()));
        let mut endpoint = move || {
            // A new endpoint has no connections, so the registry must drop the entries of the endpoint before it.
            shared.registry.forget(index);
            shared.endpoint(index, secret(&mut seeds))
        };
        let has_threads = self.config.workers != Workers::Inline;
        let port_parts = port.take(if has_threads { self.config.wait } else { Wait::Notify })?;
        if has_threads {
            link.set_waker(port_parts.waker);
        }
        let transport =
            Transport::new(port_parts.socket, port_parts.waiter, port_parts.receiver, port_parts.has_gso)
                .over(LiveLinks::new(self.config.conditioner.as_ref(), || Ok(random.bits()))?);
        Ok(Worker::new(WorkerParts {
            index,
            transport,
            clock: Box::new(port_parts.clock),
            endpoint: endpoint()?,
            make: Box::new(move || endpoint().ok()),
            sink,
            link,
            ring: Some(ring),
            sessions: None,
            sockets: None,
        }))
    }

    fn endpoint(&self, index: u16, seed: Secret<32>) -> Result<Endpoint<RegistryView>, ConfigError> {
        let keys = self.config.key.pair();
        let persistent = keys.persistent();
        let server = CoreServer::new(keys, persistent, self.process_key.duplicate())
            .access(self.config.access.core(self.since))
            .cookie(self.config.cookie)
            .server_id(&self.config.effective_server_id(self.config.address))
            .shard(Shard { index, ..self.steering });
        Endpoint::server(self.core.clone(), server, self.registry.of_worker(index), seed)
    }
}
