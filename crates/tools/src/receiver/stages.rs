//! The stages of a receiver thread, and its book of a session: datagrams per flow, and strays.
//!
//! Nothing is allocated after a session began.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_socket::{DatagramMut, DrainEnd, Io, LocalAddress, Received, Receiver, Socket, Train};
use hdrhistogram::Histogram;

use super::deliver_stage::{DeliverStage, StagePart};
use super::group::Session;
use super::open_stage::OpenStage;
use super::promise::Delivery;
use crate::choices::Stage;
use crate::clock;
use crate::datagram::{self, DropReason, Header};
use crate::flows::{FlowCount, FlowTable};

/// Datagrams taken in one pass before timers and commands get their turn.
pub(super) const BUDGET: usize = 1_024;

/// Latency is measured on one datagram in this many.
const LATENCY_EVERY: u32 = 16;

/// The longest latency in the histogram, one minute in nanoseconds.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// A datagram on its way between two threads.
pub(super) struct Parcel {
    pub(super) from: SocketAddr,
    pub(super) local: LocalAddress,
    pub(super) bytes: Vec<u8>,
}

impl Parcel {
    /// The datagram in the form that a socket returns.
    fn datagram(&mut self) -> DatagramMut<'_> {
        DatagramMut { from: self.from, local: self.local, bytes: &mut self.bytes }
    }
}

/// The stage of one thread, without connections or with them.
pub(super) enum ThreadStage {
    Plain(Box<PlainStage>),
    Open(Box<OpenStage>),
    Deliver(Box<DeliverStage>),
}

impl ThreadStage {
    /// Makes the stage of a thread. A stage with connections needs a `part`.
    pub(super) fn new(
        stage: Stage,
        part: Option<StagePart>,
        may_see_trains: bool,
        has_gso: bool,
    ) -> Result<Self, String> {
        Ok(match part {
            Some(part) if stage == Stage::Open => Self::Open(Box::new(OpenStage::new(part)?)),
            Some(part) => Self::Deliver(Box::new(DeliverStage::new(part, has_gso)?)),
            None => Self::Plain(Box::new(PlainStage::new(stage, may_see_trains))),
        })
    }

    pub(super) fn book(&self) -> &ThreadBook {
        match self {
            Self::Plain(stage) => &stage.book,
            Self::Open(stage) => &stage.book,
            Self::Deliver(stage) => &stage.book,
        }
    }

    /// Starts a session. Earlier datagrams are not counted in it.
    pub(super) fn begin(&mut self, session: &Session) {
        match self {
            Self::Plain(stage) => stage.book.begin(session),
            Self::Open(stage) => stage.begin(session),
            Self::Deliver(stage) => stage.begin(session),
        }
    }

    /// The time until the next pass is due without a datagram.
    pub(super) fn due_in(&mut self) -> Option<Duration> {
        match self {
            Self::Plain(_) | Self::Open(_) => None,
            Self::Deliver(stage) => stage.due_in(),
        }
    }

    /// Drains the socket through the stage.
    pub(super) fn pass(&mut self, receiver: &mut Receiver, socket: &mut Socket) -> DrainEnd {
        let end = match self {
            Self::Plain(stage) => receiver.drain(socket, BUDGET, |received| stage.take(received)),
            Self::Open(stage) => {
                receiver.drain_mut(socket, BUDGET, |mut received| stage.take(received.datagrams_mut()))
            }
            Self::Deliver(stage) => {
                receiver.drain_mut(socket, BUDGET, |mut received| stage.take(received.datagrams_mut()))
            }
        };
        self.finish_pass(socket);
        end
    }

    /// Handles datagrams that another thread received. Responses are sent through `io`.
    pub(super) fn take_parcels<I: Io>(&mut self, parcels: &mut [Parcel], io: &mut I) {
        let datagrams = parcels.iter_mut().map(Parcel::datagram);
        match self {
            Self::Plain(stage) => datagrams.for_each(|datagram| stage.take_datagram(datagram.bytes)),
            Self::Open(stage) => stage.take(datagrams),
            Self::Deliver(stage) => stage.take(datagrams),
        }
        self.finish_pass(io);
    }

    fn finish_pass<I: Io>(&mut self, io: &mut I) {
        match self {
            Self::Plain(_) => {}
            Self::Open(stage) => stage.finish_pass(io),
            Self::Deliver(stage) => stage.finish_pass(io),
        }
    }

    pub(super) fn into_totals(self) -> StageTotals {
        match self {
            Self::Plain(stage) => stage.into_totals(),
            Self::Open(stage) => stage.into_totals(),
            Self::Deliver(stage) => stage.into_totals(),
        }
    }
}

/// The stages without connections: datagrams are counted, in all or per flow.
pub(super) struct PlainStage {
    stage: Stage,
    /// Whether flows are followed in the raw stage too, because with GRO only their gaps show how much was lost.
    follows_flows: bool,
    pub(super) book: ThreadBook,
    checksum: u64,
}

impl PlainStage {
    pub(super) fn new(stage: Stage, may_see_trains: bool) -> Self {
        let follows_flows = stage == Stage::Parse || may_see_trains;
        Self { stage, follows_flows, book: ThreadBook::new(), checksum: 0 }
    }

    /// Takes one batch.
    pub(super) fn take(&mut self, received: Received<'_>) {
        let mut handled_ns = 0;
        for train in received.trains() {
            if self.follows_flows {
                self.follow(&train);
            } else {
                train.segments().for_each(|segment| self.count(segment));
            }
            self.book.sample_latency(train.first(), train.datagram_count(), &mut handled_ns);
        }
    }

    /// Takes one datagram that came alone.
    pub(super) fn take_datagram(&mut self, bytes: &[u8]) {
        if self.follows_flows {
            self.book.enter(bytes);
        } else {
            self.count(bytes);
        }
        self.book.sample_latency(bytes, 1, &mut 0);
    }

    /// Reads byte 0 and drops the datagram: the minimum work of a receiver.
    fn count(&mut self, bytes: &[u8]) {
        let first = bytes.first().copied().unwrap_or_default();
        self.checksum = self.checksum.wrapping_add(u64::from(first));
        if datagram::is_ours(bytes) {
            self.book.count_ours(1);
        } else {
            self.book.stray(DropReason::NotOurs, 1);
        }
    }

    fn follow(&mut self, train: &Train<'_>) {
        if self.stage == Stage::Raw && self.book.enter_train(train) {
            return;
        }
        for segment in train.segments() {
            self.book.enter(segment);
        }
    }

    pub(super) fn into_totals(self) -> StageTotals {
        // The sum exists so that the compiler cannot remove the reads.
        std::hint::black_box(self.checksum);
        self.book.into_totals(self.follows_flows)
    }
}

/// One thread's book.
pub(super) struct ThreadBook {
    flows: Option<FlowTable>,
    /// Datagrams of the sender.
    ours: u64,
    strays: [u64; DropReason::ALL.len()],
    latency: Option<Histogram<u64>>,
    until_latency: u32,
}

/// The totals of a thread's stage, after it ended.
#[derive(Default)]
pub(super) struct StageTotals {
    pub(super) ours: u64,
    pub(super) flows: Option<Vec<FlowCount>>,
    pub(super) strays: BTreeMap<String, u64>,
    pub(super) latency: Option<Histogram<u64>>,
    /// Set if messages are delivered by mode. `ours` then counts messages, and this counts packets.
    pub(super) delivery: Option<Delivery>,
    /// Notes for the reader of the report.
    pub(super) notes: Vec<String>,
}

impl ThreadBook {
    pub(super) fn new() -> Self {
        Self {
            flows: None,
            ours: 0,
            strays: [0; DropReason::ALL.len()],
            latency: None,
            until_latency: LATENCY_EVERY,
        }
    }

    /// Datagrams of the sender since the session began.
    pub(super) fn ours(&self) -> u64 {
        self.ours
    }

    /// Returns whether a session has begun.
    pub(super) fn has_session(&self) -> bool {
        self.flows.is_some()
    }

    /// Begins a session. Latency is measured only on one host, because the clocks of two hosts differ.
    pub(super) fn begin(&mut self, session: &Session) {
        let Session { ids, is_one_host } = session;
        // The control connection refuses more flows than a table can have.
        self.flows = FlowTable::new(Arc::clone(ids));
        self.latency =
            if *is_one_host { Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).ok() } else { None };
        self.ours = 0;
        self.strays = [0; DropReason::ALL.len()];
    }

    /// Counts datagrams that look like the sender's without reading their flow.
    pub(super) fn count_ours(&mut self, count: u64) {
        self.ours += count;
    }

    /// Counts datagrams that do not belong to the session.
    pub(super) fn stray(&mut self, reason: DropReason, count: u64) {
        self.strays[reason.index()] += count;
    }

    /// Enters a datagram into its flow. Returns its header if it belongs to the session.
    pub(super) fn enter(&mut self, bytes: &[u8]) -> Option<Header> {
        let Some(flows) = &mut self.flows else {
            self.stray(DropReason::UnknownFlow, 1);
            return None;
        };
        let entered = datagram::decode(bytes).and_then(|header| flows.on_datagram(&header).map(|()| header));
        match entered {
            Ok(header) => {
                self.ours += 1;
                Some(header)
            }
            Err(reason) => {
                self.stray(reason, 1);
                None
            }
        }
    }

    /// Enters a whole train if its ends belong to one flow. Returns false if nothing was entered.
    pub(super) fn enter_train(&mut self, train: &Train<'_>) -> bool {
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
    pub(super) fn sample_latency(&mut self, bytes: &[u8], count: usize, handled_ns: &mut u64) {
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

    /// Returns the totals, with flows only if they were followed.
    pub(super) fn into_totals(self, follows_flows: bool) -> StageTotals {
        let strays =
            DropReason::ALL.iter().map(|reason| (reason.name().to_owned(), self.strays[reason.index()]));
        StageTotals {
            ours: self.ours,
            flows: self.flows.filter(|_| follows_flows).map(|flows| flows.counts().to_vec()),
            strays: strays.filter(|(_, count)| *count > 0).collect(),
            latency: self.latency,
            delivery: None,
            notes: Vec::new(),
        }
    }
}
