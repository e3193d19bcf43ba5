//! The end of a server that takes its time: every connection is closed as soon as its peer has all that was sent to it, and at a
//! deadline whatever it has.
//!
//! While a worker drains, and only then, it looks at all connections that are left, a hundred times per second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drumfire_proto::{CloseCode, Moment, Placement};

use super::core::Core;
use crate::link::Bell;
use crate::peer::PeerId;

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
}

impl Drain {
    pub(crate) fn new(until: Moment, workers: usize, bell: &Arc<Bell>) -> Arc<Self> {
        let state = Mutex::new(State { workers, undelivered: Vec::new() });
        Arc::new(Self { until, state, bell: Arc::clone(bell) })
    }

    /// Whether all workers are through.
    pub(crate) fn is_over(&self) -> bool {
        self.state().workers == 0
    }

    /// What stayed undelivered so far.
    pub(crate) fn take(&self) -> Vec<Undelivered> {
        std::mem::take(&mut self.state().undelivered)
    }

    fn end_one(&self, undelivered: Vec<Undelivered>) {
        let mut state = self.state();
        state.workers = state.workers.saturating_sub(1);
        state.undelivered.extend(undelivered);
        drop(state);
        self.bell.ring();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's part in it.
#[derive(Debug, Default)]
pub(super) struct Draining(Option<Part>);

#[derive(Debug)]
struct Part {
    drain: Arc<Drain>,
    /// Who has not everything yet, as far as is known.
    left: Vec<drumfire_proto::PeerId>,
    look_at: Moment,
}

impl Draining {
    pub(super) fn begin<P: Placement>(&mut self, core: &Core<P>, drain: Arc<Drain>) {
        let left = core.peers.ids();
        self.0 = Some(Part { drain, left, look_at: core.now.monotonic });
    }

    /// When it wants to look again.
    pub(super) fn timer(&self) -> Option<Moment> {
        self.0.as_ref().map(|part| part.look_at)
    }

    /// Closes who has everything, and at the deadline everybody.
    pub(super) fn look<P: Placement>(&mut self, core: &mut Core<P>) {
        let now = core.now.monotonic;
        let Some(part) = self.0.as_mut().filter(|part| part.look_at <= now) else { return };
        part.look_at = now.after(LOOK_EVERY).min(part.drain.until.max(now));
        let is_late = now >= part.drain.until;
        let mut undelivered = Vec::new();
        part.left.retain(|id| {
            let bytes = core.undelivered_bytes(*id);
            if bytes > 0 && !is_late {
                return true;
            }
            if bytes > 0 {
                undelivered.push(Undelivered { peer: core.name(*id), bytes });
            }
            core.close(*id, CloseCode::Shutdown);
            false
        });
        if part.left.is_empty() {
            part.drain.end_one(undelivered);
            self.0 = None;
        }
    }
}
