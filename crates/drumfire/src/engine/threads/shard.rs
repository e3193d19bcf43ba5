//! A shard: one socket and its worker. One thread drives it, and other threads can take it over.

use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::Moment;
use drumfire_socket::{MultiPoller, Poller, Receiver, ReceiverConfig, Socket, Waiter};

use super::ServerParts;
use super::plan::ThreadShard;
use crate::admission::registry::RegistryView;
use crate::base::error::Error;
use crate::worker::channel::WorkerChannel;
use crate::worker::forward::ForwardQueue;
use crate::worker::live_links::with_system_seeds;
use crate::worker::pass::Worker;
use crate::worker::pass::WorkerParts;
use crate::worker::sink::Sink;
use crate::worker::transport::{RETRY_AFTER, SocketTransport};

/// Creates the worker of one socket.
pub(super) fn worker(
    index: u16,
    mut socket: Socket,
    ring: ForwardQueue<WorkerChannel>,
    sink: Box<dyn Sink<RegistryView>>,
    link: &Arc<WorkerChannel>,
    shared: &Arc<ServerParts>,
) -> Result<Worker<RegistryView>, Error> {
    let mut parker = Poller::new()?;
    parker.register(&mut socket, 0)?;
    // A worker on the application's thread waits only while that thread sends no commands, so it needs no waker. With a
    // handler, other threads can send commands.
    if shared.has_threads || sink.runs_before_flush() {
        link.set_waker(parker.waker());
    }
    let receiver = Receiver::new(&mut socket, &ReceiverConfig::default())?;
    let (shared, has_gso) = (Arc::clone(shared), socket.granted().has_gso);
    let transport = SocketTransport::new(socket, parker, Waiter::new(shared.wait)?, receiver, has_gso)
        .over(with_system_seeds(shared.config.conditioner.as_ref())?);
    Ok(Worker::new(WorkerParts {
        index,
        transport: Box::new(transport),
        clock: Box::new(shared.clock),
        endpoint: shared.endpoint(index)?,
        send_memory_bytes: shared.core.send_memory_bytes,
        message_max_bytes: shared.core.message_max_bytes,
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

/// A due time in the past: no clock reading is earlier.
const IMMEDIATELY: Option<Moment> = Some(Moment::ORIGIN);

/// A worker, and its state on the thread that drives it.
pub(super) struct Shard {
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
    pub(super) fn new(index: u16, link: Arc<WorkerChannel>, worker: Worker<RegistryView>) -> Self {
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
