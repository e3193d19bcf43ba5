//! The contract of the stages of a receiver thread, the stages without connections, and the book of a thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drumfire_socket::{DrainEnd, Fault, GroBatch, Received, Receiver, Socket};
use hdrhistogram::Histogram;

use super::promise::Delivery;
use super::state::Session;
use crate::choices::Stage;
use crate::clock;
use crate::datagram::{self, DropReason, Header};
use crate::flows::{FlowCount, FlowTable};

/// Datagrams received in one pass before timers and commands get their turn.
pub(super) const BUDGET: usize = 1_024;

/// Latency is measured on one datagram in this many.
const LATENCY_EVERY: u32 = 16;

/// The longest latency in the histogram, one minute in nanoseconds.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// How far one thread takes its datagrams.
pub(super) trait ThreadStage {
    /// Starts a session with this number of flows.
    fn begin(&mut self, _flows: usize) {}

    /// The time until the next pass is due without a datagram.
    fn due_in(&mut self) -> Option<Duration> {
        None
    }

    /// Drains the socket through the stage and records its datagrams in the book.
    fn pass(&mut self, book: &mut ThreadBook, receiver: &mut Receiver, socket: &mut Socket) -> DrainEnd;

    /// Completes the book after the last pass.
    fn finish(self: Box<Self>, _book: &mut ThreadBook) {}
}

/// The stages without connections: datagrams are counted, in all or per flow.
pub(super) struct PlainStage(pub(super) Stage);

impl ThreadStage for PlainStage {
    fn pass(&mut self, book: &mut ThreadBook, receiver: &mut Receiver, socket: &mut Socket) -> DrainEnd {
        receiver.drain(socket, BUDGET, |received| self.receive(book, received))
    }
}

impl PlainStage {
    /// Takes one batch.
    fn receive(&self, book: &mut ThreadBook, received: Received<'_>) {
        let mut handled_ns = 0;
        for train in received.trains() {
            if !book.follows_flows {
                train.segments().for_each(|segment| book.count(segment));
            } else if self.0 != Stage::Raw || !book.enter_train(&train) {
                for segment in train.segments() {
                    book.enter(segment);
                }
            }
            book.sample_latency(train.first(), train.datagram_count(), &mut handled_ns);
        }
    }
}

/// One thread's book of a session: datagrams per flow, and strays by name. After the thread ended, it has the totals of the thread.
#[derive(Default)]
pub(super) struct ThreadBook {
    /// Whether datagrams are recorded by flow.
    follows_flows: bool,
    flows: Option<FlowTable>,
    /// Datagrams of the sender since the session began, or messages if `delivery` is set.
    pub(super) ours: u64,
    /// Datagrams that do not belong to the session, by the name of the reason.
    pub(super) strays: BTreeMap<&'static str, u64>,
    pub(super) latency: Option<Histogram<u64>>,
    until_latency: u32,
    /// Set after the end if messages were delivered by mode. It counts packets.
    pub(super) delivery: Option<Delivery>,
    pub(super) index: u32,
    /// Receive calls of the session, empty ones too. Set after the end.
    pub(super) calls: u64,
    /// Datagrams of the session that the socket dropped because their control data did not fit. Set after the end.
    pub(super) truncated: u64,
    /// Set if the thread ended on its own.
    pub(super) fault: Option<Fault>,
}

impl ThreadBook {
    pub(super) fn new(index: u32, follows_flows: bool) -> Self {
        Self { index, follows_flows, until_latency: LATENCY_EVERY, ..Self::default() }
    }

    /// Returns whether a session has begun.
    pub(super) fn has_session(&self) -> bool {
        self.flows.is_some()
    }

    /// The arrivals of each flow; `None` if flows were not followed.
    pub(super) fn flows(&self) -> Option<&[FlowCount]> {
        self.flows.as_ref().filter(|_| self.follows_flows).map(FlowTable::counts)
    }

    /// Begins a session. Latency is measured only on one host, because the clocks of two hosts differ.
    pub(super) fn begin(&mut self, session: &Session) {
        let Session { ids, is_one_host } = session;
        self.flows = Some(FlowTable::new(Arc::clone(ids)));
        self.latency =
            if *is_one_host { Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).ok() } else { None };
        self.ours = 0;
        self.strays.clear();
    }

    /// Counts datagrams outside the session.
    pub(super) fn stray(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            *self.strays.entry(reason).or_default() += count;
        }
    }

    /// Reads byte 0 of a datagram and counts it: the minimum work of a receiver.
    fn count(&mut self, bytes: &[u8]) {
        if datagram::is_ours(bytes) {
            self.ours += 1;
        } else {
            self.stray(DropReason::NotOurs.name(), 1);
        }
    }

    /// Records a datagram of a flow. Returns its header if it belongs to the session.
    fn enter(&mut self, bytes: &[u8]) -> Option<Header> {
        let flows = self.flows.as_mut().ok_or(DropReason::UnknownFlow);
        let entered = flows.and_then(|flows| {
            let header = datagram::decode(bytes)?;
            flows.on_datagram(&header)?;
            Ok(header)
        });
        match &entered {
            Ok(_) => self.ours += 1,
            Err(reason) => self.stray(reason.name(), 1),
        }
        entered.ok()
    }

    /// Records the datagram in a message, and measures its latency.
    pub(super) fn enter_message(&mut self, payload: &[u8], handled_ns: &mut u64) -> Option<Header> {
        let header = self.enter(payload);
        self.sample_latency(payload, 1, handled_ns);
        header
    }

    /// Records a whole train if its ends belong to one flow. Returns false if nothing was recorded.
    fn enter_train(&mut self, train: &GroBatch<'_>) -> bool {
        let count = train.datagram_count();
        let ends = datagram::decode(train.first()).ok().zip(datagram::decode(train.last()).ok());
        let Some((flows, (first, last))) = self.flows.as_mut().zip(ends) else { return false };
        let is_entered = count > 1 && flows.on_train(&first, &last, count);
        if is_entered {
            self.ours += count as u64;
        }
        is_entered
    }

    /// Measures the latency of one datagram in sixteen, from its intended time of sending. `bytes` is the first of `count`
    /// datagrams that arrived together. `handled_ns` is the time of a batch, or 0 before the clock was read.
    fn sample_latency(&mut self, bytes: &[u8], count: usize, handled_ns: &mut u64) {
        let Some(latency) = &mut self.latency else { return };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if count < self.until_latency {
            self.until_latency -= count;
            return;
        }
        self.until_latency = LATENCY_EVERY;
        if let Some(stamp) = datagram::decode(bytes).ok().and_then(|header| header.stamp) {
            if *handled_ns == 0 {
                *handled_ns = clock::host_ns();
            }
            latency.saturating_record(handled_ns.saturating_sub(stamp.get()));
        }
    }
}
