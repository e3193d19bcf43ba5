//! The state of a receiver thread that other threads can read: a few counters, stored once per pass.
//!
//! Only its own thread writes it. A reader may be one pass late, but never sees a torn number.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use drumfire::worker::Wake;
use drumfire_socket::Waker;

use crate::datagram::RouteId;
use crate::host::{ThreadClock, ThreadSample};

/// The state of one thread, on its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct WorkerState {
    received: AtomicU64,
    /// The time of the last pass with datagrams of the sender, on the clock of the host.
    last_receive_ns: AtomicU64,
    is_gro_on: AtomicBool,
    has_session: AtomicBool,
    thread_id: AtomicU32,
    handler_thread_id: AtomicU32,
    /// Ends the wait of the thread. Set once it runs.
    waker: OnceLock<Waker>,
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
    pub(super) fn set_waker(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    pub(super) fn set_thread_id(&self, thread_id: u32) {
        self.thread_id.store(thread_id, Ordering::Release);
    }

    /// The kernel's number of the thread; 0 until it runs, or if it is not known.
    pub(super) fn thread_id(&self) -> u32 {
        self.thread_id.load(Ordering::Acquire)
    }

    pub(super) fn set_handler_thread_id(&self, thread_id: u32) {
        self.handler_thread_id.store(thread_id, Ordering::Release);
    }

    /// The kernel's number of the second thread; 0 if datagrams are not handed to one.
    pub(super) fn handler_thread_id(&self) -> u32 {
        self.handler_thread_id.load(Ordering::Acquire)
    }

    /// The CPU time of the thread so far, including its second thread.
    pub(super) fn cpu(&self) -> Option<ThreadSample> {
        let own = ThreadClock::sample(self.thread_id())?;
        match self.handler_thread_id() {
            0 => Some(own),
            handler => Some(own.with_helper(&ThreadClock::sample(handler)?)),
        }
    }

    /// Records that the thread knows the flows of the session and uses them from now on.
    pub(super) fn on_session(&self) {
        self.has_session.store(true, Ordering::Release);
    }

    pub(super) fn has_session(&self) -> bool {
        self.has_session.load(Ordering::Acquire)
    }

    pub(super) fn on_pass(&self, received: u64, is_gro_on: bool) {
        self.received.store(received, Ordering::Relaxed);
        self.is_gro_on.store(is_gro_on, Ordering::Relaxed);
    }

    /// Records the time at which the thread finished datagrams of the sender.
    pub(super) fn on_ours(&self, host_ns: u64) {
        self.last_receive_ns.store(host_ns, Ordering::Relaxed);
    }

    /// Datagrams received since the thread started, from any address.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(super) fn last_receive_ns(&self) -> u64 {
        self.last_receive_ns.load(Ordering::Relaxed)
    }

    pub(super) fn is_gro_on(&self) -> bool {
        self.is_gro_on.load(Ordering::Relaxed)
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
