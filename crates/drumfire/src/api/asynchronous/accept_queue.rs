//! The queue of established connections that the application has not accepted yet, oldest first.
//!
//! The server's connection limit bounds the open connections in the queue. Connections that end before they are accepted remain
//! with their received messages. When there are more than [`ENDED_MAX`] of these, the oldest in the queue is dropped.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::connection::Connection;
use super::shared::Shared;
use crate::base::sync::{AsyncNotify, Mutex, lock};

/// The maximum number of connections in the queue that have ended. Each may still hold received messages up to its
/// receive memory.
pub(super) const ENDED_MAX: usize = 256;

/// The connections of all workers of a server that wait for [`AcceptQueue::accept`].
#[derive(Debug, Default)]
pub(super) struct AcceptQueue {
    state: Mutex<AcceptQueueState>,
    /// Wakes one task when connections have arrived, and all tasks when the last worker has ended.
    arrivals: AsyncNotify,
}

#[derive(Debug, Default)]
struct AcceptQueueState {
    /// The connections that wait, oldest first.
    waiting: VecDeque<Connection>,
    /// The number of waiting connections that have ended.
    ended_count: usize,
    /// The number of workers that may still add connections. At 0, `accept` returns `None` once the queue is empty.
    worker_count: usize,
}

impl AcceptQueue {
    /// Registers a worker that adds connections. It must call [`AcceptQueue::remove_worker`] once.
    pub(super) fn add_worker(&self) {
        lock(&self.state).worker_count += 1;
    }

    /// Waits for the next connection and removes it. Returns `None` when the queue is empty and all workers have ended.
    pub(super) async fn accept(&self) -> Option<Connection> {
        self.arrivals.until(|| self.take()).await
    }

    /// Returns the next connection. Returns `Some(None)` when no further connection can arrive, and `None` when one still can.
    fn take(&self) -> Option<Option<Connection>> {
        let mut state = lock(&self.state);
        let Some(connection) = state.waiting.pop_front() else {
            return if state.worker_count == 0 { Some(None) } else { None };
        };
        let shared = connection.shared();
        shared.is_accepted.store(true, Ordering::Relaxed);
        state.ended_count -= usize::from(shared.has_ended_unaccepted.load(Ordering::Relaxed));
        let has_more = !state.waiting.is_empty();
        drop(state);
        // A pass of a worker wakes only one task, so each task wakes the next while connections wait.
        if has_more {
            self.arrivals.notify_one();
        }
        Some(Some(connection))
    }

    /// Queues a connection. Call [`AcceptQueue::wake`] afterward.
    pub(super) fn push(&self, connection: Connection) {
        lock(&self.state).waiting.push_back(connection);
    }

    /// Registers the end of a connection. Returns whether a connection was dropped because more than [`ENDED_MAX`] have ended.
    pub(super) fn on_end(&self, shared: &Shared) -> bool {
        let mut state = lock(&self.state);
        if shared.is_accepted.load(Ordering::Relaxed)
            || shared.has_ended_unaccepted.swap(true, Ordering::Relaxed)
        {
            return false;
        }
        state.ended_count += 1;
        if state.ended_count <= ENDED_MAX {
            return false;
        }
        let has_ended_unaccepted =
            |connection: &Connection| connection.shared().has_ended_unaccepted.load(Ordering::Relaxed);
        let oldest = state.waiting.iter().position(has_ended_unaccepted);
        let dropped = oldest.and_then(|oldest| state.waiting.remove(oldest));
        state.ended_count -= 1;
        drop(state);
        // `dropped` is the last handle of a connection. It is dropped here, after the lock is free.
        dropped.is_some()
    }

    /// Wakes a task for the connections that [`AcceptQueue::push`] added.
    pub(super) fn wake(&self) {
        self.arrivals.notify_one();
    }

    /// Unregisters a worker, which adds no further connections. The last one wakes all tasks.
    pub(super) fn remove_worker(&self) {
        let mut state = lock(&self.state);
        state.worker_count = state.worker_count.saturating_sub(1);
        let is_over = state.worker_count == 0;
        drop(state);
        if is_over {
            self.arrivals.notify_all();
        }
    }
}
