//! The stage `deliver` on one receiver thread: the endpoint that serves games parses, opens, acknowledges, and delivers.
//!
//! Each message holds a raw datagram, so that flows are followed as in the stages without connections. The stage owns no
//! socket and waits for nothing.

use std::time::Duration;

use drumfire::worker::{self, ForwardQueue, RegistryView};
use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{DropReason, Endpoint, Event, Stats};
use drumfire_socket::{DatagramMut, DrainEnd, Receiver, SendBatch, SendMode, Sender, Socket};

use super::promise::{Delivery, OPENED_DROPS, Promise};
use super::service::{Service, now};
use super::stages::{BUDGET, ThreadBook, ThreadStage};
use super::state::WorkerState;
use crate::choices::Mode;

/// Datagrams written together.
const BATCH: usize = 64;

pub(super) struct DeliverStage {
    mode: Mode,
    /// Whether messages are delivered as promised, in the modes that have some.
    promise: Option<Promise>,
    endpoint: Endpoint<RegistryView>,
    ring: ForwardQueue<WorkerState>,
    /// The statistics of the endpoint when the session began.
    before: Stats,
    batch: SendBatch,
    sender: Sender,
    scratch: Box<[u8]>,
}

impl DeliverStage {
    /// Makes the stage of the thread with this index. `ring` has the datagrams that other threads forward to it.
    pub(super) fn new(
        service: &Service,
        index: u16,
        ring: ForwardQueue<WorkerState>,
        has_gso: bool,
    ) -> Result<Self, String> {
        let endpoint = service.endpoint(index)?;
        Ok(Self {
            mode: service.mode,
            promise: None,
            before: *endpoint.stats(),
            endpoint,
            ring,
            batch: SendBatch::new(BATCH, BATCH * DATAGRAM_SENT_MAX_BYTES),
            sender: Sender::new(SendMode::best(has_gso)),
            scratch: vec![0; DATAGRAM_SENT_MAX_BYTES].into(),
        })
    }

    /// Passes datagrams to the endpoint and records the messages that it delivers.
    fn receive<'a>(&mut self, book: &mut ThreadBook, datagrams: impl Iterator<Item = DatagramMut<'a>>) {
        let mut handled_ns = 0;
        let Self { endpoint, promise, .. } = self;
        endpoint.handle_datagrams(now(), datagrams.map(worker::inbound));
        while let Some(event) = endpoint.poll_event() {
            if let Event::Message { payload, .. } = event {
                let header = book.enter_message(payload, &mut handled_ns);
                if let Some((header, promise)) = header.zip(promise.as_mut()) {
                    promise.on_message(&header);
                }
            }
        }
    }

    /// Handles timeouts and sends everything that is ready.
    fn finish_pass(&mut self, socket: &mut Socket) {
        let now = now();
        self.ring.receive(&mut self.endpoint, now);
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            self.endpoint.handle_timeout(now);
        }
        loop {
            while self.batch.len() < BATCH
                && let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.scratch)
            {
                // The batch has room for `BATCH` datagrams of the largest size.
                let datagram = self.scratch.get(..transmit.bytes).unwrap_or_default();
                let _ = worker::push(&mut self.batch, transmit.to, datagram);
            }
            if self.batch.is_empty() {
                break;
            }
            self.sender.flush(socket, &mut self.batch, |_| {});
            // A full socket counts as loss in the network, from which the endpoint recovers.
            self.batch.clear();
        }
        // A Hello for which there is no room in its ring is repeated by its client.
        self.ring.send(&mut self.endpoint);
    }
}

impl ThreadStage for DeliverStage {
    fn begin(&mut self, flows: usize) {
        self.before = *self.endpoint.stats();
        self.promise = self.mode.has_messages().then(|| Promise::new(self.mode, flows));
    }

    fn due_in(&mut self) -> Option<Duration> {
        self.endpoint.poll_timeout().map(|due| due.since(now().monotonic))
    }

    fn pass(&mut self, book: &mut ThreadBook, receiver: &mut Receiver, socket: &mut Socket) -> DrainEnd {
        let end =
            receiver.drain_mut(socket, BUDGET, |mut received| self.receive(book, received.datagrams_mut()));
        self.finish_pass(socket);
        end
    }

    fn finish(self: Box<Self>, book: &mut ThreadBook) {
        let Self { promise, endpoint, before, .. } = *self;
        let stats = endpoint.stats();
        for reason in DropReason::ALL {
            if promise.is_none() || !OPENED_DROPS.contains(&reason) {
                book.stray(reason.name(), stats.dropped(reason) - before.dropped(reason));
            }
        }
        book.delivery = promise.map(|promise| Delivery { promise, before, now: *stats });
    }
}
