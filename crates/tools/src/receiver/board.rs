//! What a receiver thread shows to the others while it runs: a few counters it stores once per pass.
//!
//! Each thread writes its own board alone; readers may see one pass late, never a torn number.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use drumfire::worker::Wake;
use drumfire_socket::Waker;

/// One thread's board, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Board {
    received: AtomicU64,
    /// Host clock of the last pass that brought datagrams of the sender through the stages.
    last_receive_ns: AtomicU64,
    is_gro_on: AtomicBool,
    has_session: AtomicBool,
    thread_id: AtomicU32,
    handler_thread_id: AtomicU32,
    /// Ends the thread's wait, once it runs.
    waker: OnceLock<Waker>,
}

impl Wake for Board {
    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            // A thread that cannot be woken looks at its orders with its next datagram.
            let _ = waker.wake();
        }
    }
}

impl Board {
    pub(super) fn set_waker(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    pub(super) fn set_thread_id(&self, thread_id: u32) {
        self.thread_id.store(thread_id, Ordering::Release);
    }

    /// The system's number of the thread; 0 until it runs or where it is not known.
    pub(super) fn thread_id(&self) -> u32 {
        self.thread_id.load(Ordering::Acquire)
    }

    pub(super) fn set_handler_thread_id(&self, thread_id: u32) {
        self.handler_thread_id.store(thread_id, Ordering::Release);
    }

    /// The system's number of the second thread, where datagrams are handed to one; else 0.
    pub(super) fn handler_thread_id(&self) -> u32 {
        self.handler_thread_id.load(Ordering::Acquire)
    }

    /// The thread knows the session's flows: whatever it takes from now on is judged by them.
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

    /// Datagrams of the sender were done with at this time of the host clock.
    pub(super) fn on_ours(&self, host_ns: u64) {
        self.last_receive_ns.store(host_ns, Ordering::Relaxed);
    }

    /// Datagrams received since the thread started, whoever sent them.
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
