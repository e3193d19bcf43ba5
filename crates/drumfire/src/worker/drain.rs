//! The end of a server that takes its time: every connection is closed as soon as its peer has all that was sent to it, and at a
//! deadline whatever it has.
//!
//! While a worker drains, and only then, it looks at all connections that are left, a hundred times per second.

use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use drumfire_proto::{Moment, PeerId};

use crate::base::sync::{Mutex, MutexGuard, Notifier, lock};

/// How often a worker looks who has everything.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a peer had not acknowledged when its connection was closed at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undelivered {
    /// Who.
    pub peer: PeerId,
    /// Bytes of the messages that it may not have, each charged 64 B more.
    pub bytes: usize,
}

/// The progress of a server that ends, shared by its workers.
#[derive(Debug)]
pub(crate) struct DrainProgress {
    pub(super) until: Moment,
    state: Mutex<State>,
    notifier: Arc<Notifier>,
}

#[derive(Debug)]
struct State {
    /// Workers that are not through.
    workers: usize,
    undelivered: Vec<Undelivered>,
    /// Whom to wake when they are.
    waiter: Option<Waker>,
}

impl DrainProgress {
    /// Creates the progress of this number of workers, and the share of each.
    pub(crate) fn new(
        until: Moment,
        workers: usize,
        notifier: &Arc<Notifier>,
    ) -> (Arc<Self>, Vec<DrainShare>) {
        let state = State { workers, undelivered: Vec::new(), waiter: None };
        let drain = Arc::new(Self { until, state: Mutex::new(state), notifier: Arc::clone(notifier) });
        let share = |_| DrainShare { drain: Arc::clone(&drain), undelivered: Vec::new() };
        let shares = (0..workers).map(share).collect();
        (drain, shares)
    }

    /// Returns the undelivered messages when all workers are done.
    pub(crate) fn poll(&self, context: &mut task::Context<'_>) -> Poll<Vec<Undelivered>> {
        let mut state = self.state();
        if state.workers == 0 {
            return Poll::Ready(std::mem::take(&mut state.undelivered));
        }
        state.waiter = Some(context.waker().clone());
        Poll::Pending
    }

    /// Waits until all workers are done. No other thread may wait for the notifier.
    #[cfg(feature = "tokio")]
    pub(crate) fn wait(&self) {
        while self.state().workers > 0 {
            self.notifier.wait(Duration::MAX);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A worker's share, which is done when it is dropped: whatever became of the worker, nobody waits for it in vain.
#[derive(Debug)]
pub(crate) struct DrainShare {
    pub(super) drain: Arc<DrainProgress>,
    pub(super) undelivered: Vec<Undelivered>,
}

impl Drop for DrainShare {
    fn drop(&mut self) {
        let mut state = self.drain.state();
        state.workers = state.workers.saturating_sub(1);
        state.undelivered.append(&mut self.undelivered);
        let waiter = if state.workers == 0 { state.waiter.take() } else { None };
        drop(state);
        self.drain.notifier.ring();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// A worker's part in it.
#[derive(Debug)]
pub(super) struct Draining {
    pub(super) share: DrainShare,
    /// Who has not everything yet, as far as is known.
    pub(super) left: Vec<drumfire_proto::PeerId>,
    pub(super) look_at: Moment,
}
