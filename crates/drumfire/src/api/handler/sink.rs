//! The face of a worker with a handler: takes all events out of the endpoint and calls the handler for each.
//!
//! A panic of the handler is caught here: it costs the connection it was about. What was taken out before is not lost.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    CloseCode, CloseReason, ConnectError, Event, EventBatch, Moment, Outcome, PeerId, Placement, ReceiptId,
};

use super::context::{Context, Desk};
use super::{Arrival, Handler};
use crate::base::peer_map::PeerMap;
use crate::base::sync::Mailbox;
use crate::engine::peer_state::Known;
use crate::worker::arena::Arena;
use crate::worker::channel::Link;
use crate::worker::core::{Abandoned, Core, Notice};
use crate::worker::credit::Credit;
use crate::worker::sink::Face;

/// Panics of a handler in one pass, after which the rest of its events waits for the next.
const PANICS_PER_PASS: usize = 16;

/// A worker's handler and what it has not been told yet.
pub(super) struct Engine<H: Handler> {
    handler: H,
    batch: EventBatch,
    /// Peers that are gone, and of which the handler has not heard everything.
    endings: VecDeque<Ending>,
    notes: VecDeque<H::Note>,
    known: PeerMap<Known>,
    arena: RefCell<Arena>,
    mailbox: Arc<Mailbox<H::Note>>,
    links: Arc<[Arc<Link>]>,
    period: Option<Duration>,
    next_tick: Option<Moment>,
    /// Whose event the handler is looking at.
    current: Option<PeerId>,
}

/// The end of a peer.
struct Ending {
    peer: PeerId,
    /// Receipts that nobody will answer.
    open: BTreeSet<ReceiptId>,
    end: End,
}

/// What ended.
enum End {
    Connection(CloseReason, Bytes),
    Attempt(ConnectError),
}

impl<H: Handler> Engine<H> {
    pub(super) fn new(handler: H, mailbox: Arc<Mailbox<H::Note>>, links: Arc<[Arc<Link>]>) -> Self {
        let period = handler.tick_period().map(|period| period.max(Duration::from_millis(1)));
        Self {
            handler,
            batch: EventBatch::default(),
            endings: VecDeque::new(),
            notes: VecDeque::new(),
            known: PeerMap::default(),
            arena: RefCell::default(),
            mailbox,
            links,
            period,
            next_tick: period.map(|_| Moment::ORIGIN),
            current: None,
        }
    }

    /// Tells the handler everything; a panic of it leaves the rest where it is.
    fn tell<P: Placement>(&mut self, core: &mut Core<P>) {
        self.mailbox.take(&mut self.notes);
        while let Some(note) = self.notes.pop_front() {
            self.call(core, |handler, context| handler.on_note(context, note));
        }
        self.end_peers(core);
        core.endpoint.take_events(&mut self.batch);
        // Apart from the rest of this, because messages lie in it while the handler looks at them.
        let mut batch = std::mem::take(&mut self.batch);
        let told = catch_unwind(AssertUnwindSafe(|| {
            while let Some(event) = batch.pop() {
                self.on_event(core, event);
                self.end_peers(core);
            }
        }));
        self.batch = batch;
        if let Err(panic) = told {
            resume_unwind(panic);
        }
        while let Some(notice) = core.pop_notice() {
            match notice {
                Notice::Measured { peer, stats } => {
                    self.call_for(core, peer, |handler, context| handler.on_stats(context, peer, &stats));
                }
                Notice::Recorded { peer, record } => {
                    self.call_for(core, peer, |handler, context| {
                        handler.on_flight_record(context, peer, &record);
                    });
                }
                Notice::Missed { peer, channel, count } => {
                    self.call_for(core, peer, |handler, context| {
                        handler.on_missed(context, peer, channel, count);
                    });
                }
                Notice::Writable { peer } => {
                    self.call_for(core, peer, |handler, context| handler.on_writable(context, peer));
                }
            }
        }
        self.tick(core);
    }

    fn on_event<P: Placement>(&mut self, core: &mut Core<P>, event: Event<'_>) {
        match event {
            Event::Connected { peer, address, player, user_data } => {
                let credit = core.connected(peer, address);
                if self.known.get(peer).is_none() {
                    self.known.insert(peer, Known::of_client(credit, player, address));
                }
                let arrival = Arrival { address, player, user_data };
                self.call_for(core, peer, |handler, context| handler.on_connect(context, peer, &arrival));
            }
            Event::Message { peer, channel, bytes } => {
                core.endpoint.release(peer, bytes.len());
                self.call_for(core, peer, |handler, context| {
                    handler.on_message(context, peer, channel, bytes);
                });
            }
            Event::Receipt { peer, receipt, outcome } => {
                if let Some(known) = self.known.get_mut(peer) {
                    known.answered(receipt);
                }
                self.call_for(core, peer, |handler, context| {
                    handler.on_receipt(context, peer, receipt, outcome);
                });
            }
            Event::Skipped { peer, channel, count } => {
                core.endpoint.release(peer, 0);
                self.call_for(core, peer, |handler, context| {
                    handler.on_skipped(context, peer, channel, count);
                });
            }
            Event::FlightRecord { peer, record } => {
                self.call_for(core, peer, |handler, context| {
                    handler.on_flight_record(context, peer, record);
                });
            }
            Event::Disconnected { peer, reason, text } => {
                core.disconnected(peer, reason);
                self.end(peer, End::Connection(reason, Bytes::copy_from_slice(text)));
            }
            Event::ConnectFailed { peer, error } => {
                core.not_connected(peer, error);
                self.end(peer, End::Attempt(error));
            }
            // Of what this crate does not know nobody needs to hear.
            _ => {}
        }
    }

    fn end(&mut self, peer: PeerId, end: End) {
        let open = self.known.remove(peer).map(Known::into_open).unwrap_or_default();
        self.endings.push_back(Ending { peer, open, end });
    }

    /// Tells what is left to tell of peers that are gone: what became of their receipts, then their end.
    fn end_peers<P: Placement>(&mut self, core: &mut Core<P>) {
        while let Some(ending) = self.endings.front_mut() {
            let peer = ending.peer;
            if let Some(receipt) = ending.open.pop_first() {
                self.call(core, |handler, context| {
                    handler.on_receipt(context, peer, receipt, Outcome::Lost);
                });
            } else if let Some(Ending { end, .. }) = self.endings.pop_front() {
                self.call(core, |handler, context| match end {
                    End::Connection(reason, text) => handler.on_disconnect(context, peer, reason, &text),
                    End::Attempt(error) => handler.on_connect_failed(context, peer, error),
                });
            }
        }
    }

    fn tick<P: Placement>(&mut self, core: &mut Core<P>) {
        let (Some(period), Some(due)) = (self.period, self.next_tick) else { return };
        let now = core.now.monotonic;
        if due > now {
            return;
        }
        // The next one is due in step with those before, unless that is over too.
        let next = due.after(period);
        self.next_tick = Some(if next > now { next } else { now.after(period) });
        self.call(core, H::on_tick);
    }

    /// Calls the handler about a peer: if it panics, that is who pays.
    fn call_for<P: Placement>(
        &mut self,
        core: &mut Core<P>,
        peer: PeerId,
        call: impl FnOnce(&mut H, &mut Context<'_>),
    ) {
        self.current = Some(peer);
        self.call(core, call);
        self.current = None;
    }

    fn call<P: Placement>(&mut self, core: &mut Core<P>, call: impl FnOnce(&mut H, &mut Context<'_>)) {
        let Self { handler, known, arena, links, .. } = self;
        call(handler, &mut Context(&mut Desk { core, known, arena, links }));
    }
}

impl<P: Placement, H: Handler> Face<P> for Engine<H> {
    fn answers_at_once(&self) -> bool {
        true
    }

    fn begin(&mut self, peer: PeerId, credit: &Arc<Credit>) {
        self.known.insert(peer, Known::new(Arc::clone(credit)));
    }

    fn hand_over(&mut self, core: &mut Core<P>) -> bool {
        for _ in 0..PANICS_PER_PASS {
            if catch_unwind(AssertUnwindSafe(|| self.tell(core))).is_ok() {
                return false;
            }
            core.stats.panics += 1;
            core.endpoint.put_down();
            if let Some(peer) = self.current.take() {
                core.close(peer, CloseCode::Internal);
            }
        }
        true
    }

    fn timer(&self) -> Option<Moment> {
        self.next_tick
    }

    fn abandon(&mut self, core: &mut Core<P>) {
        // What was taken out before is theirs no more.
        while self.batch.pop().is_some() {}
        let gone: Vec<Abandoned> = core.abandon().collect();
        for abandoned in gone {
            match abandoned {
                Abandoned::Disconnected(peer, reason) => {
                    self.end(peer, End::Connection(reason, Bytes::new()));
                }
                Abandoned::NotConnected(peer, error) => self.end(peer, End::Attempt(error)),
            }
        }
        for _ in 0..PANICS_PER_PASS {
            if catch_unwind(AssertUnwindSafe(|| self.end_peers(core))).is_ok() {
                return;
            }
            core.stats.panics += 1;
        }
    }
}
