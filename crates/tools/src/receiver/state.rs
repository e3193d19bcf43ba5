//! The state that receiver threads publish, and the drop meters of their sockets.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use drumfire::worker::Wake;
use drumfire_socket::{DropMeter, QueueState, Waker};

use crate::datagram::RouteId;
use crate::host::{ThreadClock, ThreadSample};

/// The state of one thread that other threads can read, on its own cache lines. Only its own thread writes it, once per pass.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct WorkerState {
    /// Datagrams received since the thread started, from any address.
    pub(super) received: AtomicU64,
    /// The time of the last pass with datagrams of the sender, on the clock of the host.
    pub(super) last_receive_ns: AtomicU64,
    pub(super) is_gro_on: AtomicBool,
    /// Whether the thread knows the flows of the session and uses them.
    pub(super) has_session: AtomicBool,
    /// The kernel's number of the thread; 0 until it runs, or if it is not known.
    pub(super) thread_id: AtomicU32,
    /// Ends the wait of the thread. Set once it runs.
    pub(super) waker: OnceLock<Waker>,
}

impl Wake for WorkerState {
    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            // A thread that cannot be woken reads the flags with its next datagram.
            let _ = waker.wake();
        }
    }
}

impl WorkerState {
    /// The CPU time of the thread so far.
    pub(super) fn cpu(&self) -> Option<ThreadSample> {
        ThreadClock::sample(self.thread_id.load(Ordering::Acquire))
    }

    pub(super) fn on_pass(&self, received: u64, is_gro_on: bool) {
        self.received.store(received, Ordering::Relaxed);
        self.is_gro_on.store(is_gro_on, Ordering::Relaxed);
    }
}

/// The session of the sender that was accepted.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) ids: Arc<[RouteId]>,
    pub(super) is_one_host: bool,
}

/// The state that all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) states: Vec<Arc<WorkerState>>,
    pub(super) session: OnceLock<Session>,
    pub(super) is_stopping: AtomicBool,
}

/// The counters of all threads at one time.
#[derive(Clone, Debug)]
pub(super) struct GroupSample {
    pub(super) received: Vec<u64>,
    pub(super) queues: Vec<Option<QueueState>>,
    pub(super) cpu: Vec<Option<ThreadSample>>,
}

impl GroupSample {
    /// Kernel drops of all sockets; `None` if the system does not count them.
    pub(super) fn kernel_drops(&self) -> Option<u64> {
        self.queues.iter().map(|queue| queue.map(|queue| queue.drops)).sum()
    }

    /// Returns whether every receive queue is empty, as far as the system shows them.
    pub(super) fn is_drained(&self) -> bool {
        self.queues.iter().all(|queue| queue.is_none_or(|queue| queue.queued_bytes == 0))
    }
}

/// The drop meters of all sockets, shared by all readers.
#[derive(Clone, Debug)]
pub(super) struct Meters(Arc<Mutex<Vec<Option<DropMeter>>>>);

impl Meters {
    pub(super) fn new(meters: Vec<Option<DropMeter>>) -> Self {
        Self(Arc::new(Mutex::new(meters)))
    }

    /// Reads the state of each queue; `None` if the system does not show it.
    pub(super) fn read(&self) -> Vec<Option<QueueState>> {
        let mut meters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meters.iter_mut().map(|meter| meter.as_mut()?.read().ok()).collect()
    }

    /// Returns whether all sockets have a meter.
    pub(super) fn are_all(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().all(Option::is_some)
    }
}
