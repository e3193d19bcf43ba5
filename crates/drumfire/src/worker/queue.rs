//! The sink for an application that polls: events wait in the worker's channel until the application takes them. Each pass adds its
//! events under one lock, with one wake-up.
//!
//! If there is no room, events stay in the endpoint, and peers are not acknowledged.

use std::sync::Arc;

use drumfire_proto::Placement;

use super::arena::Arena;
use super::channel::{Batch, WorkerChannel};
use super::core::Core;
use super::sink::Sink;
use crate::message::event::Event;

/// Events on their way into a link.
pub(crate) struct EventQueue {
    link: Arc<WorkerChannel>,
    batch: Batch,
    arena: Arena,
}

impl EventQueue {
    pub(crate) fn new(link: &Arc<WorkerChannel>) -> Self {
        Self { link: Arc::clone(link), batch: Batch::default(), arena: Arena::default() }
    }

    /// Moves the next event, or all messages of a run, into the batch. Returns whether there was one.
    fn take_event<P: Placement>(&mut self, core: &mut Core<P>) -> bool {
        if let Some(event) = core.pop_own_event() {
            // `Stats`, `FlightRecord`, `Missed`, and `Writable` concern peers whose send edge the application already
            // has.
            self.batch.push(event, None);
            return true;
        }
        // A run is taken as a whole, so it may exceed the room by the messages of one packet.
        if let Some(run) = core.endpoint.poll_run() {
            for payload in run.payloads() {
                let payload = self.arena.copy(payload);
                self.batch.push(Event::Message { peer: run.peer, channel: run.channel, payload }, None);
            }
            return true;
        }
        let Some(event) = core.endpoint.poll_event() else { return false };
        if let Some(event) = Event::from_core(event, |payload| self.arena.copy(payload)) {
            let (event, edge) = core.apply(event);
            debug_assert!(core.queued.is_empty(), "the thread of the application keeps the receipts");
            self.batch.push(event, edge);
        }
        true
    }
}

impl<P: Placement> Sink<P> for EventQueue {
    fn runs_before_flush(&self) -> bool {
        false
    }

    fn has_remote_senders(&self) -> bool {
        true
    }

    fn deliver(&mut self, core: &mut Core<P>) -> bool {
        core.watch_polls(self.link.is_polled());
        // The room is read once for a batch, and again only when the batch has used it up.
        let mut room = self.link.room();
        loop {
            if !self.batch.fits(room) {
                self.link.report(&mut self.batch);
                // The application may have taken reports since the room was read. `hold` checks that under the lock,
                // so its wake-up cannot be missed.
                if !self.link.hold() {
                    core.stats.event_queue_full += 1;
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

    fn abandon(&mut self, core: &mut Core<P>) {
        while let Some(event) = core.pop_queued() {
            self.batch.push(event, None);
        }
        // More than the bound for once: there is one for each peer, and never more.
        self.link.report(&mut self.batch);
    }
}
