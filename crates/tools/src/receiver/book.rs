//! One thread's book of a session: datagrams per flow, and strays by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use drumfire_socket::GroBatch;
use hdrhistogram::Histogram;

use super::promise::Delivery;
use super::state::Session;
use crate::clock;
use crate::datagram::{self, DropReason, Header};
use crate::flows::{FlowCount, FlowTable};

/// Latency is measured on one datagram in this many.
const LATENCY_EVERY: u32 = 16;

/// The longest latency in the histogram, one minute in nanoseconds.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// One thread's book.
pub(super) struct ThreadBook {
    flows: Option<FlowTable>,
    /// Datagrams of the sender.
    ours: u64,
    /// Datagrams that do not belong to the session, by the name of the reason.
    strays: BTreeMap<String, u64>,
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
        Self { flows: None, ours: 0, strays: BTreeMap::new(), latency: None, until_latency: LATENCY_EVERY }
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
        self.strays.clear();
    }

    /// Counts datagrams that look like the sender's without reading their flow.
    pub(super) fn count_ours(&mut self, count: u64) {
        self.ours += count;
    }

    /// Counts datagrams of strangers by name. A name allocates once.
    pub(super) fn count_stray(&mut self, name: &str, count: u64) {
        match self.strays.get_mut(name) {
            Some(sum) => *sum += count,
            None => drop(self.strays.insert(name.to_owned(), count)),
        }
    }

    /// Counts datagrams that do not belong to the session.
    pub(super) fn stray(&mut self, reason: DropReason, count: u64) {
        self.count_stray(reason.name(), count);
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
    pub(super) fn enter_train(&mut self, train: &GroBatch<'_>) -> bool {
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
        StageTotals {
            ours: self.ours,
            flows: self.flows.filter(|_| follows_flows).map(|flows| flows.counts().to_vec()),
            strays: self.strays,
            latency: self.latency,
            delivery: None,
            notes: Vec::new(),
        }
    }
}
