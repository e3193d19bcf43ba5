//! A shard: one socket and its worker. One thread drives it, and other threads can take it over.

use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{
    Access, Config, Endpoint, Moment, Secret, ServerConfig as CoreServer, Shard as SteeredShard,
};
use drumfire_socket::{MultiPoller, Socket, Wait};

use super::plan::ThreadShard;
use crate::admission::registry::{ConnectionRegistry, RegistryView};
use crate::base::clock::SystemClock;
use crate::base::entropy;
use crate::base::error::Error;
use crate::config::server::ServerConfig;
use crate::worker::channel::WorkerChannel;
use crate::worker::forward::ForwardQueue;
use crate::worker::pass::{Worker, WorkerParts};
use crate::worker::sink::Sink;
use crate::worker::transport::{RETRY_AFTER, Transport};

/// The parts of a server from which each worker is created, and its endpoint again after each restart.
pub(in crate::engine) struct ServerParts {
    pub(in crate::engine) core: Config,
    pub(in crate::engine) config: Arc<ServerConfig>,
    pub(in crate::engine) registry: Arc<ConnectionRegistry>,
    pub(in crate::engine) access: Access,
    pub(in crate::engine) server_id: Vec<u8>,
    pub(in crate::engine) process_key: Secret<32>,
    /// The parameters of all workers, with the index 0.
    pub(in crate::engine) steering: SteeredShard,
    pub(in crate::engine) clock: SystemClock,
    pub(in crate::engine) wait: Wait,
}

impl ServerParts {
    /// Creates the worker of one socket.
    pub(in crate::engine) fn worker(
        self: &Arc<Self>,
        index: u16,
        socket: Socket,
        ring: ForwardQueue<WorkerChannel>,
        sink: Box<dyn Sink<RegistryView>>,
        link: &Arc<WorkerChannel>,
    ) -> Result<Worker<RegistryView>, Error> {
        let shared = Arc::clone(self);
        Ok(Worker::new(WorkerParts {
            index,
            transport: Transport::of_socket(socket, self.wait, self.config.conditioner.as_ref(), link)?,
            clock: Box::new(self.clock),
            endpoint: self.endpoint(index)?,
            make: Box::new(move || {
                shared.registry.forget(index);
                shared.endpoint(index).ok()
            }),
            sink,
            link: Arc::clone(link),
            ring: Some(ring),
            sessions: None,
            sockets: None,
        }))
    }

    /// Creates an endpoint without connections for the worker with this index.
    fn endpoint(&self, index: u16) -> Result<Endpoint<RegistryView>, Error> {
        let keys = self.config.key.pair();
        let persistent = keys.persistent();
        let server = CoreServer::new(keys, persistent, self.process_key.duplicate())
            .access(self.access.duplicate())
            .cookie(self.config.cookie)
            .server_id(&self.server_id)
            .shard(SteeredShard { index, ..self.steering });
        let placement = self.registry.of_worker(index);
        Ok(Endpoint::server(self.core.clone(), server, placement, entropy::secret()?)?)
    }
}

/// A due time in the past: no clock reading is earlier.
const IMMEDIATELY: Option<Moment> = Some(Moment::ORIGIN);

/// A worker, and its state on the thread that drives it.
pub(in crate::engine) struct Shard {
    pub(super) index: u16,
    pub(super) link: Arc<WorkerChannel>,
    pub(super) worker: Box<Worker<RegistryView>>,
    /// The time of the next pass if the multi-poller reports nothing before. `None` if no pass is due.
    due: Option<Moment>,
    /// Whether the multi-poller of the thread watches the worker.
    is_watched: bool,
    /// Whether the multi-poller has reported the worker as ready since its last pass.
    pub(super) is_ready: bool,
    /// Whether a panic may have left the worker in an inconsistent state, so that it must restart.
    pub(super) is_broken: bool,
}

impl ThreadShard for Shard {
    type Waker = WorkerChannel;

    fn index(&self) -> usize {
        self.index.into()
    }

    fn is_over(&self) -> bool {
        // A worker ends when its socket has no descriptor left. The worker has reported this already.
        self.worker.is_over()
    }

    fn waker(&self) -> Arc<WorkerChannel> {
        Arc::clone(&self.link)
    }
}

impl Shard {
    pub(in crate::engine) fn new(index: u16, link: Arc<WorkerChannel>, worker: Worker<RegistryView>) -> Self {
        Self {
            index,
            link,
            worker: Box::new(worker),
            due: IMMEDIATELY,
            is_watched: false,
            is_ready: false,
            is_broken: false,
        }
    }

    /// Registers the worker with `multi_poller`. If this fails, [`Shard::pass`] polls the worker every millisecond and tries again.
    pub(super) fn attach(&mut self, multi_poller: &MultiPoller) {
        if !self.is_watched {
            self.is_watched = self.worker.attach(multi_poller).is_ok();
            self.due = IMMEDIATELY;
        }
    }

    /// Removes the worker from `multi_poller`. The worker then waits on its own, or is registered with another multi-poller.
    pub(super) fn detach(&mut self, multi_poller: &MultiPoller) {
        if std::mem::take(&mut self.is_watched) {
            // If this fails, the multi-poller still reports the worker, and the thread ignores the report.
            let _ = self.worker.detach(multi_poller);
        }
        // The worker's own poll reports the same readiness again, so no event is lost.
        self.is_ready = false;
    }

    /// Returns the time of the next pass if the multi-poller reports nothing before. `None` if no pass is due.
    pub(super) fn next(&self) -> Option<Moment> {
        if self.is_ready { IMMEDIATELY } else { self.due }
    }

    /// Whether the worker needs a pass now.
    pub(super) fn has_work(&self, now: Moment) -> bool {
        self.next().is_some_and(|next| next <= now)
    }

    /// Runs one pass without waiting. Returns the number of datagrams that arrived, including unusable ones.
    pub(super) fn pass(&mut self, now: Moment, multi_poller: &MultiPoller) -> u64 {
        let before = self.worker.arrivals();
        let is_ready = std::mem::take(&mut self.is_ready);
        if self.is_watched {
            self.worker.set_ready(is_ready);
        } else {
            self.worker.wait(Some(Duration::ZERO));
        }
        self.worker.work();
        self.due = self.worker.due();
        if !self.is_watched {
            self.is_watched = self.worker.attach(multi_poller).is_ok();
            let retry_at = now.after(RETRY_AFTER);
            self.due = Some(self.due.map_or(retry_at, |due| due.min(retry_at)));
        }
        self.worker.arrivals().saturating_sub(before)
    }

    /// Restarts the worker without connections, on the same socket.
    pub(super) fn restart_after_panic(&mut self) {
        self.worker.restart_after_panic();
        self.is_broken = false;
        self.due = IMMEDIATELY;
    }
}
