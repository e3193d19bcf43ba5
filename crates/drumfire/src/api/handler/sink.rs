//! The sink of a worker with a handler. It takes all events from the endpoint and calls the handler for each.
//!
//! A panic of the handler is caught here. The connection of the event is closed, and the remaining events are delivered later.
//! A panic in the code of a connection that the handler called ends only that connection.
//! A panic in a note or a tick closes no connection. The note that was being handled is lost.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{CloseCode, Event as CoreEvent, EventBatch, MessageRun, Moment, PeerId, Placement};

use super::Handler;
use super::context::Context;
use crate::base::sync::Mailbox;
use crate::message::event::Event;
use crate::worker::arena::Arena;
use crate::worker::channel::WorkerChannel;
use crate::worker::core::Core;
use crate::worker::sink::Sink;

/// The number of panics of a handler in one pass after which the remaining events wait for the next pass.
const PANICS_PER_PASS: usize = 16;

/// The maximum number of events of the worker itself in a run of the sink.
const OWN_EVENTS_PER_RUN: usize = 1_024;

/// A worker's handler, and the notes and events that it has not received yet.
pub(super) struct HandlerSink<H: Handler> {
    handler: H,
    batch: EventBatch,
    notes: VecDeque<H::Note>,
    arena: RefCell<Arena>,
    mailbox: Arc<Mailbox<H::Note>>,
    links: Arc<[Arc<WorkerChannel>]>,
    /// The time between two ticks, at least 1 ms. `None` if the handler has no ticks.
    period: Option<Duration>,
    next_tick: Option<Moment>,
    /// The peer of the event in the current call. `None` for a note or a tick.
    current: Option<PeerId>,
}

impl<H: Handler> HandlerSink<H> {
    pub(super) fn new(handler: H, mailbox: Arc<Mailbox<H::Note>>, links: Arc<[Arc<WorkerChannel>]>) -> Self {
        let period = handler.tick_period().map(|period| period.max(Duration::from_millis(1)));
        Self {
            handler,
            batch: EventBatch::default(),
            notes: VecDeque::new(),
            arena: RefCell::default(),
            mailbox,
            links,
            period,
            next_tick: period.map(|_| Moment::ORIGIN),
            current: None,
        }
    }

    /// Delivers all notes and events, and a due tick. If the handler panics, the remaining ones stay queued. Returns whether events of
    /// the worker itself may be left.
    fn deliver_all<P: Placement>(&mut self, core: &mut Core<P>) -> bool {
        self.mailbox.take(&mut self.notes);
        while let Some(note) = self.notes.pop_front() {
            self.call(core, |handler, context| handler.on_note(context, note));
        }
        self.deliver_queued(core);
        core.endpoint.take_events(&mut self.batch);
        // The batch is moved out of `self`, because messages borrow from it while the handler is called with `self`.
        let mut batch = std::mem::take(&mut self.batch);
        let mut called_count = 0;
        let delivered = catch_unwind(AssertUnwindSafe(|| {
            loop {
                if let Some(run) = batch.front_run() {
                    self.on_run(core, &run, &mut called_count);
                    core.endpoint.release_run(&run);
                    batch.pop_run();
                    called_count = 0;
                } else if let Some(event) = batch.pop() {
                    self.on_event(core, event);
                } else {
                    break;
                }
            }
        }));
        if let Err(panic) = delivered {
            self.end_panicked(core);
            // The handler was called with the first messages of a run. The others are delivered later.
            for _ in 0..called_count {
                if let Some((peer, bytes)) = batch.pop().as_ref().and_then(CoreEvent::held) {
                    core.endpoint.release(peer, bytes);
                }
            }
            core.endpoint.clear_current();
            self.batch = batch;
            resume_unwind(panic);
        }
        self.batch = batch;
        self.tick(core);
        // A handler can cause the next event by its reaction to one: a message to a group that a full member misses, or a request for
        // statistics. The worker must receive in between, so the rest waits for the next pass, which follows immediately.
        for _ in 0..OWN_EVENTS_PER_RUN {
            let Some(event) = core.pop_own_event() else { return false };
            self.call_for(core, event);
        }
        true
    }

    /// Ends the connection in whose code a call of the handler panicked, for example that of a peer to which the handler sent a message.
    /// Then there is no reason to close the connection of the event.
    fn end_panicked<P: Placement>(&mut self, core: &mut Core<P>) {
        if core.endpoint.end_panicked().is_some() {
            self.current = None;
        }
    }

    /// Calls the handler with each message of a run, and counts the calls, of which the last may panic.
    fn on_run<P: Placement>(&mut self, core: &mut Core<P>, run: &MessageRun<'_>, called_count: &mut usize) {
        let Self { handler, arena, links, current, .. } = self;
        *current = Some(run.peer);
        // A panic of the handler belongs to no connection of the endpoint. Its calls mark the connection that they use.
        core.endpoint.clear_current();
        let mut context = Context::new(core, arena, links);
        for payload in run.payloads() {
            *called_count += 1;
            handler.on_message(&mut context, run.peer, run.channel, payload);
        }
        *current = None;
    }

    fn on_event<P: Placement>(&mut self, core: &mut Core<P>, event: CoreEvent<'_>) {
        if let Some((peer, bytes)) = event.held() {
            core.endpoint.release(peer, bytes);
        }
        if let CoreEvent::Message { peer, channel, payload } = event {
            self.current = Some(peer);
            self.call(core, |handler, context| handler.on_message(context, peer, channel, payload));
            self.current = None;
            return;
        }
        let Some(event) = Event::from_core(event, Bytes::copy_from_slice) else { return };
        core.apply_and_queue(event);
        self.deliver_queued(core);
    }

    /// Calls the handler with the events that were noted.
    fn deliver_queued<P: Placement>(&mut self, core: &mut Core<P>) {
        while let Some(event) = core.pop_queued() {
            self.call_for(core, event);
        }
    }

    fn tick<P: Placement>(&mut self, core: &mut Core<P>) {
        let (Some(period), Some(due)) = (self.period, self.next_tick) else { return };
        let now = core.now.monotonic;
        if due > now {
            return;
        }
        // Ticks keep their phase. After a delay of a whole period, the missed ticks are skipped.
        let next = due.after(period);
        self.next_tick = Some(if next > now { next } else { now.after(period) });
        self.call(core, H::on_tick);
    }

    /// Calls the handler with an event. If it panics, the connection of the event is closed.
    fn call_for<P: Placement>(&mut self, core: &mut Core<P>, event: Event) {
        self.current = Some(event.peer());
        self.call(core, |handler, context| match event {
            // A shutdown queues messages like all other events.
            Event::Message { peer, channel, payload } => {
                handler.on_message(context, peer, channel, &payload);
            }
            event => handler.on_event(context, event),
        });
        self.current = None;
    }

    fn call<P: Placement>(&mut self, core: &mut Core<P>, call: impl FnOnce(&mut H, &mut Context<'_>)) {
        let Self { handler, arena, links, .. } = self;
        // As in `on_run`.
        core.endpoint.clear_current();
        call(handler, &mut Context::new(core, arena, links));
    }
}

impl<P: Placement, H: Handler> Sink<P> for HandlerSink<H> {
    fn runs_before_flush(&self) -> bool {
        true
    }

    fn has_remote_senders(&self) -> bool {
        // A `Remote` posts messages that no send edge bounds.
        false
    }

    fn deliver(&mut self, core: &mut Core<P>) -> bool {
        for _ in 0..PANICS_PER_PASS {
            if let Ok(has_more) = catch_unwind(AssertUnwindSafe(|| self.deliver_all(core))) {
                return has_more;
            }
            core.stats.panics += 1;
            self.end_panicked(core);
            if let Some(peer) = self.current.take() {
                core.close(peer, CloseCode::Internal, 0);
            }
        }
        true
    }

    fn timer(&self) -> Option<Moment> {
        self.next_tick
    }

    fn abandon(&mut self, core: &mut Core<P>) {
        // The peers of these events have disconnected.
        while self.batch.pop().is_some() {}
        for _ in 0..PANICS_PER_PASS {
            if catch_unwind(AssertUnwindSafe(|| self.deliver_queued(core))).is_ok() {
                return;
            }
            core.stats.panics += 1;
        }
    }
}
