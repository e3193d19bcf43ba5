//! The common part of all servers: the workers with their sockets, and the control interface. The sinks of the workers determine which
//! interface the application has.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use drumfire_proto::Moment;

use super::control::{Control, ControlState};
use super::threads::{self, ServerThreads, ThreadPool};
use crate::admission::AdmissionControl;
use crate::admission::registry::RegistryView;
use crate::base::clock::Clock as _;
use crate::base::entropy;
use crate::base::error::Error;
use crate::base::sync::{Mutex, Notifier};
use crate::config::server::ServerConfig;
use crate::config::threads::ThreadCounts;
use crate::observe::trace;
use crate::worker::channel::WorkerChannel;
use crate::worker::sink::Sink;

/// The sinks of all workers, by index.
pub(crate) type Sinks = Vec<Box<dyn Sink<RegistryView>>>;

/// The workers of a server, and what they share.
pub(crate) struct ServerCore {
    pub(crate) pool: ThreadPool,
    control: Control,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) links: Arc<[Arc<WorkerChannel>]>,
    pub(crate) address: SocketAddr,
    /// The longest reliable message of this side, in bytes.
    pub(crate) message_max_bytes: usize,
}

impl ServerCore {
    /// Binds the sockets and starts the workers with these sinks. With `needs_thread` there is at least one thread, whatever the
    /// configuration says.
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
        let notifier = Arc::new(Notifier::default());
        let links: Arc<[_]> =
            (0..counts.sockets.get()).map(|_| Arc::new(WorkerChannel::new(Arc::clone(&notifier)))).collect();
        let admission = AdmissionControl::new(&config.admission, WorkerChannel::loads(&links));
        let message_max_bytes = config.core(1).message_max_bytes;
        let config = Arc::new(config);
        let sinks = sinks(&links, counts);
        let ServerThreads { pool, address, sockets, clock } =
            threads::start(&config, counts, &links, sinks, &admission)?;
        let control_state = ControlState {
            links: Arc::clone(&links),
            admission,
            config,
            sockets,
            pool: pool.threads().cloned(),
            now: Box::new(move || {
                let mut clock = clock;
                clock.monotonic()
            }),
            seed_source: Mutex::new(Box::new(entropy::secret)),
            change_lock: Mutex::default(),
        };
        Ok(Self::new(pool, control_state, notifier, address, message_max_bytes))
    }

    /// Creates a server from its workers.
    pub(crate) fn new(
        pool: ThreadPool,
        control_state: ControlState,
        notifier: Arc<Notifier>,
        address: SocketAddr,
        message_max_bytes: usize,
    ) -> Self {
        let links = Arc::clone(&control_state.links);
        if pool.inline_ref().is_none() {
            // The threads publish their statistics from the start, so that the first reader does not have to wait for a pass.
            links.iter().for_each(|link| link.observe());
        }
        Self { pool, control: Control::new(control_state), notifier, links, address, message_max_bytes }
    }

    /// Returns the operator's interface. From now on, a worker on the application's thread publishes its statistics.
    pub(crate) fn control(&self) -> Control {
        if let Some(worker) = self.pool.inline_ref() {
            worker.observe();
        }
        self.control.clone()
    }

    /// Returns the time of the server's clock.
    pub(crate) fn now(&self) -> Moment {
        self.control.now()
    }
}
