//! The sink for an application that polls: events wait in the worker's channel until the application takes them. Each pass adds its
//! events under one lock, with one wake-up.
//!
//! If there is no room, events stay in the endpoint, and peers are not acknowledged.

use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{Moment, PeerId, Placement};

use super::arena::Arena;
use super::channel::{Batch, WorkerChannel};
use super::core::Core;
use super::credit::Credit;
use super::sink::Sink;
use crate::message::event::Event;

/// Events on their way into a link.
pub(crate) struct Queue {
    link: Arc<WorkerChannel>,
    batch: Batch,
    arena: Arena,
    poll_watch: PollWatch,
}

/// The time after which an application that never polled is warned.
const POLL_EXPECTED_WITHIN: Duration = Duration::from_secs(1);

/// Whether the application has polled yet.
#[derive(Clone, Copy)]
enum PollWatch {
    /// No pass was made.
    New,
    /// No poll was seen since the first pass.
    Since(Moment),
    /// A poll was seen, or the warning was given: nothing is looked at any more.
    Over,
}

impl Queue {
    pub(crate) fn new(link: &Arc<WorkerChannel>) -> Self {
        Self {
            link: Arc::clone(link),
            batch: Batch::default(),
            arena: Arena::default(),
            poll_watch: PollWatch::New,
        }
    }

    /// Warns once when the application never polls. It runs in passes, which a flush makes too.
    fn watch_polls<P: Placement>(&mut self, core: &mut Core<P>) {
        let now = core.now.monotonic;
        self.poll_watch = match self.poll_watch {
            PollWatch::Over => return,
            _ if self.link.is_polled() => PollWatch::Over,
            PollWatch::New => PollWatch::Since(now),
            PollWatch::Since(begun) if now.since(begun) < POLL_EXPECTED_WITHIN => return,
            PollWatch::Since(_) => {
                core.observer.never_polled();
                PollWatch::Over
            }
        };
    }

    /// Moves the next event into the batch. Returns whether there was one.
    fn take_event<P: Placement>(&mut self, core: &mut Core<P>) -> bool {
        if let Some(event) = core.pop_own_event() {
            self.batch.push(event, None);
            return true;
        }
        let Some(event) = core.endpoint.poll_event() else { return false };
        if let Some(event) = Event::of(event, |payload| self.arena.copy(payload)) {
            let (event, credit) = core.note(event);
            self.batch.push(event, credit);
        }
        true
    }
}

impl<P: Placement> Sink<P> for Queue {
    fn runs_before_flush(&self) -> bool {
        false
    }

    fn begin(&mut self, _: PeerId, _: &Arc<Credit>) {
        // The caller of `begin` has the credit already.
    }

    fn deliver(&mut self, core: &mut Core<P>) -> bool {
        self.watch_polls(core);
        let mut room = self.link.room();
        loop {
            if !self.batch.fits(room) {
                self.link.report(&mut self.batch);
                if !self.link.hold() {
                    core.stats.events_held += 1;
                    return false;
                }
                room = self.link.room();
            }
            if !self.take_event(core) {
                break;
            }
        }
        self.link.report(&mut self.batch);
        false
    }

    fn timer(&self) -> Option<Moment> {
        None
    }

    fn abandon(&mut self, core: &mut Core<P>) {
        core.abandon().for_each(|event| self.batch.push(event, None));
        // More than the bound for once: there is one for each peer, and never more.
        self.link.report(&mut self.batch);
    }
}
