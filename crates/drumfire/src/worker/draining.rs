//! The end of a server that takes its time: every connection is closed as soon as its peer has all that was sent to it, and at a
//! deadline whatever it has.
//!
//! While a worker drains, and only then, it looks at all connections that are left, a hundred times per second.

use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use drumfire_proto::{CloseCode, Moment, Placement};

use super::core::Core;
use crate::peer::PeerId;
use crate::sync::{Bell, Mutex, MutexGuard, lock};

/// How often a worker looks who has everything.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a peer had not acknowledged when its connection was closed at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undelivered {
    /// Who.
    pub peer: PeerId,
    /// Bytes of the messages that it may not have, each charged 64 B more.
    pub bytes: usize,
}

/// What the workers of a server have in common while it ends.
#[derive(Debug)]
pub(crate) struct Drain {
    until: Moment,
    state: Mutex<State>,
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct State {
    /// Workers that are not through.
    workers: usize,
    undelivered: Vec<Undelivered>,
    /// Whom to wake when they are.
    waiter: Option<Waker>,
}

impl Drain {
    /// Of so many workers, each with a share in it.
    pub(crate) fn new(until: Moment, workers: usize, bell: &Arc<Bell>) -> (Arc<Self>, Vec<Share>) {
        let state = State { workers, undelivered: Vec::new(), waiter: None };
        let drain = Arc::new(Self { until, state: Mutex::new(state), bell: Arc::clone(bell) });
        let share = |_| Share { drain: Arc::clone(&drain), undelivered: Vec::new() };
        let shares = (0..workers).map(share).collect();
        (drain, shares)
    }

    /// What stayed undelivered, when all workers are through.
    pub(crate) fn poll(&self, context: &mut task::Context<'_>) -> Poll<Vec<Undelivered>> {
        let mut state = self.state();
        if state.workers == 0 {
            return Poll::Ready(std::mem::take(&mut state.undelivered));
        }
        state.waiter = Some(context.waker().clone());
        Poll::Pending
    }

    /// Waits until all workers are through; nobody else may wait for the bell.
    #[cfg(feature = "tokio")]
    pub(crate) fn wait(&self) {
        while self.state().workers > 0 {
            self.bell.wait(Duration::MAX);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A worker's share, which is done when it is dropped: whatever became of the worker, nobody waits for it in vain.
#[derive(Debug)]
pub(crate) struct Share {
    drain: Arc<Drain>,
    undelivered: Vec<Undelivered>,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.drain.state();
        state.workers = state.workers.saturating_sub(1);
        state.undelivered.append(&mut self.undelivered);
        let waiter = if state.workers == 0 { state.waiter.take() } else { None };
        drop(state);
        self.drain.bell.ring();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// A worker's part in it.
#[derive(Debug)]
pub(super) struct Draining {
    share: Share,
    /// Who has not everything yet, as far as is known.
    left: Vec<drumfire_proto::PeerId>,
    look_at: Moment,
}

impl<P: Placement> Core<P> {
    pub(super) fn begin_draining(&mut self, share: Share) {
        let left = self.peers.ids();
        self.draining = Some(Draining { share, left, look_at: self.now.monotonic });
    }

    /// When it wants to look again who has everything.
    pub(super) fn draining_timer(&self) -> Option<Moment> {
        self.draining.as_ref().map(|draining| draining.look_at)
    }

    /// Closes who has everything, and at the deadline everybody.
    pub(super) fn drain(&mut self) {
        let now = self.now.monotonic;
        let Some(mut draining) = self.draining.take_if(|draining| draining.look_at <= now) else { return };
        let until = draining.share.drain.until;
        draining.look_at = now.after(LOOK_EVERY).min(until.max(now));
        draining.left.retain(|id| {
            let bytes = self.undelivered_bytes(*id);
            if bytes > 0 && now < until {
                return true;
            }
            if bytes > 0 {
                draining.share.undelivered.push(Undelivered { peer: self.name(*id), bytes });
            }
            self.close(*id, CloseCode::Shutdown);
            false
        });
        if !draining.left.is_empty() {
            self.draining = Some(draining);
        }
    }
}
