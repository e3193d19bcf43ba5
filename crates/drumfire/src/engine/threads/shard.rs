//! A shard: one socket and its worker, made on the thread that drives it first, and passed on whole.

use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::Moment;
use drumfire_socket::{MultiPoller, Poller, Receiver, ReceiverConfig, Socket, Waiter};

use super::Shared;
use super::plan::Movable;
use crate::admission::registry::RegistryView;
use crate::base::error::Error;
use crate::worker::channel::WorkerChannel;
use crate::worker::forward::ForwardQueue;
use crate::worker::pass::Parts;
use crate::worker::pass::Worker;
use crate::worker::sink::Sink;
use crate::worker::transport::{RETRY_AFTER, SocketTransport};

/// One worker's place.
pub(super) struct ShardSeed {
    pub(super) index: u16,
    pub(super) socket: Socket,
    pub(super) ring: ForwardQueue<WorkerChannel>,
    pub(super) sink: Box<dyn Sink<RegistryView>>,
    pub(super) link: Arc<WorkerChannel>,
    pub(super) shared: Arc<Shared>,
}

impl ShardSeed {
    /// Makes the worker, on the thread that is to run it.
    pub(super) fn take(mut self) -> Result<Worker<RegistryView>, Error> {
        let mut parker = Poller::new()?;
        parker.register(&mut self.socket, 0)?;
        // On the application's own thread it waits only when nobody is there to wake it, unless other threads reach a handler.
        if self.shared.has_threads || self.sink.runs_before_flush() {
            self.link.set_waker(parker.waker());
        }
        let receiver = Receiver::new(&mut self.socket, &ReceiverConfig::default())?;
        let (shared, index) = (self.shared, self.index);
        let has_gso = self.socket.granted().has_gso;
        let transport =
            SocketTransport::new(self.socket, parker, Waiter::new(shared.wait)?, receiver, has_gso);
        Ok(Worker::new(Parts {
            index,
            transport: Box::new(transport),
            clock: Box::new(shared.clock),
            endpoint: shared.endpoint(index)?,
            credit_bytes: shared.core.send_memory_bytes,
            message_max_bytes: shared.core.message_max_bytes,
            make: Box::new(move || {
                shared.owners.forget(index);
                shared.endpoint(index).ok()
            }),
            sink: self.sink,
            link: self.link,
            ring: self.ring,
        }))
    }

    /// The same, for a thread that may get others beside it.
    pub(super) fn into_shard(self) -> Result<Shard, Error> {
        let (index, link) = (self.index, Arc::clone(&self.link));
        Ok(Shard {
            index,
            link,
            worker: Box::new(self.take()?),
            due: AT_ONCE,
            is_watched: false,
            is_ready: false,
            is_broken: false,
        })
    }
}

/// Before every clock reading.
const AT_ONCE: Option<Moment> = Some(Moment::ORIGIN);

/// A worker, and what its thread knows of it.
pub(super) struct Shard {
    pub(super) index: u16,
    pub(super) link: Arc<WorkerChannel>,
    pub(super) worker: Box<Worker<RegistryView>>,
    /// When its next pass is due though nobody tells of anything.
    due: Option<Moment>,
    /// The thread's hub tells of it.
    is_watched: bool,
    /// The hub told of it, and it had no pass since.
    pub(super) is_ready: bool,
    /// A panic may have left anything behind: it has to begin anew.
    pub(super) is_broken: bool,
}

impl Movable for Shard {
    type Waker = WorkerChannel;

    fn index(&self) -> usize {
        self.index.into()
    }

    fn is_over(&self) -> bool {
        // What lost its descriptor has said so.
        self.worker.is_over()
    }

    fn waker(&self) -> Arc<WorkerChannel> {
        Arc::clone(&self.link)
    }
}

impl Shard {
    /// From now on this hub tells of it. Where it cannot, the shard is looked at every millisecond.
    pub(super) fn enter(&mut self, hub: &MultiPoller) {
        if !self.is_watched {
            self.is_watched = self.worker.enter(hub).is_ok();
            self.due = AT_ONCE;
        }
    }

    /// From now on it waits by itself, or for another hub.
    pub(super) fn leave(&mut self, hub: &MultiPoller) {
        if std::mem::take(&mut self.is_watched) {
            // At worst it is told of though nobody here has it.
            let _ = self.worker.leave(hub);
        }
        // Its own poll knows of what the hub told.
        self.is_ready = false;
    }

    /// When it needs a pass, if nothing is told before.
    pub(super) fn next(&self) -> Option<Moment> {
        if self.is_ready { AT_ONCE } else { self.due }
    }

    /// Whether it needs a pass now.
    pub(super) fn has_work(&self, now: Moment) -> bool {
        self.next().is_some_and(|next| next <= now)
    }

    /// One pass without waiting; answers how much came.
    pub(super) fn pass(&mut self, now: Moment, hub: &MultiPoller) -> u64 {
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
            self.is_watched = self.worker.enter(hub).is_ok();
            let look = now.after(RETRY_AFTER);
            self.due = Some(self.due.map_or(look, |due| due.min(look)));
        }
        self.worker.arrivals().saturating_sub(before)
    }

    /// Begins anew, with no connections.
    pub(super) fn start_over(&mut self) {
        self.worker.start_over();
        self.is_broken = false;
        self.due = AT_ONCE;
    }
}
