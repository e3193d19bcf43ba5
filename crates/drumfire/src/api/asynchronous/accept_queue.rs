//! Connections that nobody accepted yet, in the order in which they came.
//!
//! Those that are there are as many as the server takes; of those that are over already the newest are kept, with what they
//! brought.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::connection::Connection;
use super::shared::Shared;
use crate::base::sync::{AsyncNotify, Mutex, lock};

/// Connections that were over before they were accepted, at most: each may hold as much as its receive memory.
pub(super) const LATE_MAX: usize = 256;

/// Where connections wait to be accepted.
#[derive(Debug, Default)]
pub(super) struct AcceptQueue {
    state: Mutex<State>,
    /// Rung when somebody came, for one task, and at the end for all.
    arrivals: AsyncNotify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Connection>,
    late_count: usize,
    worker_count: usize,
}

impl AcceptQueue {
    /// One more worker will bring connections, until [`AcceptQueue::end`].
    pub(super) fn begin(&self) {
        lock(&self.state).worker_count += 1;
    }

    /// The next connection; `None` when there will be no more.
    pub(super) async fn accept(&self) -> Option<Connection> {
        self.arrivals.until(|| self.take()).await
    }

    /// `Some(None)` when there will be no more.
    fn take(&self) -> Option<Option<Connection>> {
        let mut state = lock(&self.state);
        let Some(connection) = state.waiting.pop_front() else {
            return if state.worker_count == 0 { Some(None) } else { None };
        };
        let shared = connection.shared();
        shared.is_accepted.store(true, Ordering::Relaxed);
        state.late_count -= usize::from(shared.is_late.load(Ordering::Relaxed));
        let has_more = !state.waiting.is_empty();
        drop(state);
        // Each turn of a worker wakes one task; where several wait, one wakes the next.
        if has_more {
            self.arrivals.ring_one();
        }
        Some(Some(connection))
    }

    /// Queues a connection. Call [`AcceptQueue::wake`] afterward.
    pub(super) fn enter(&self, connection: Connection) {
        lock(&self.state).waiting.push_back(connection);
    }

    /// A connection is over. Answers whether one that nobody accepted had to go.
    pub(super) fn leave(&self, shared: &Shared) -> bool {
        let mut state = lock(&self.state);
        if shared.is_accepted.load(Ordering::Relaxed) || shared.is_late.swap(true, Ordering::Relaxed) {
            return false;
        }
        state.late_count += 1;
        if state.late_count <= LATE_MAX {
            return false;
        }
        let is_late = |connection: &Connection| connection.shared().is_late.load(Ordering::Relaxed);
        let oldest = state.waiting.iter().position(is_late);
        let gone = oldest.and_then(|oldest| state.waiting.remove(oldest));
        state.late_count -= 1;
        drop(state);
        // Its last handle, and so not within the lock.
        gone.is_some()
    }

    /// Wakes a task for who came.
    pub(super) fn wake(&self) {
        self.arrivals.ring_one();
    }

    /// One of the workers will bring nobody any more.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.worker_count = state.worker_count.saturating_sub(1);
        let is_over = state.worker_count == 0;
        drop(state);
        if is_over {
            self.arrivals.ring_all();
        }
    }
}
