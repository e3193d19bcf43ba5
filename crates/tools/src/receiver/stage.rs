//! What happens to a datagram after it was received: the stages that can be switched on one by one.
//!
//! A stage sees borrowed bytes and counts; nothing is allocated after it was made.

use std::collections::BTreeMap;
use std::sync::Arc;

use drumfire_socket::{Received, Train};
use hdrhistogram::Histogram;

use crate::choices::Stage;
use crate::clock;
use crate::datagram::{self, DropReason, RouteId};
use crate::flows::{FlowCount, FlowTable};

/// Latency is measured on one datagram in so many.
const LATENCY_EVERY: u32 = 16;

/// The longest latency told apart, one minute in nanoseconds.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// One thread's stages and what they counted.
pub(super) struct Stages {
    stage: Stage,
    /// Whether flows are followed in the raw stage too, since with GRO only their gaps tell what was lost.
    follows_flows: bool,
    flows: Option<FlowTable>,
    /// Datagrams that look like the sender's.
    ours: u64,
    strays: [u64; DropReason::ALL.len()],
    checksum: u64,
    latency: Option<Histogram<u64>>,
    until_latency: u32,
}

/// What a thread's stages counted, after it ended.
pub(super) struct StageTotals {
    pub(super) ours: u64,
    pub(super) flows: Option<Vec<FlowCount>>,
    pub(super) strays: BTreeMap<String, u64>,
    pub(super) latency: Option<Histogram<u64>>,
}

impl Stages {
    pub(super) fn new(stage: Stage, may_see_trains: bool) -> Self {
        Self {
            stage,
            follows_flows: stage == Stage::Parse || may_see_trains,
            flows: None,
            ours: 0,
            strays: [0; DropReason::ALL.len()],
            checksum: 0,
            latency: None,
            until_latency: LATENCY_EVERY,
        }
    }

    /// Datagrams that look like the sender's, since the session began.
    pub(super) fn ours(&self) -> u64 {
        self.ours
    }

    /// Whether the flows of a session are known here.
    pub(super) fn has_session(&self) -> bool {
        self.flows.is_some()
    }

    /// Starts a session: these are its flows. `is_one_host` says that the sender's clock is this host's.
    pub(super) fn begin(&mut self, ids: &Arc<[RouteId]>, is_one_host: bool) {
        // A session of more flows than a table takes was refused before it came here.
        self.flows = FlowTable::new(Arc::clone(ids)).ok();
        self.latency = if is_one_host { Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).ok() } else { None };
        self.ours = 0;
        self.strays = [0; DropReason::ALL.len()];
    }

    /// Takes one batch.
    pub(super) fn take(&mut self, received: Received<'_>) {
        let mut handled_ns = 0;
        for train in received.trains() {
            if self.follows_flows {
                self.follow(&train);
            } else {
                self.count(&train);
            }
            if self.latency.is_some() {
                self.sample_latency(&train, &mut handled_ns);
            }
        }
    }

    /// The bare floor: look at byte 0 and forget the datagram.
    fn count(&mut self, train: &Train<'_>) {
        for segment in train.segments() {
            let first = segment.first().copied().unwrap_or_default();
            self.checksum = self.checksum.wrapping_add(u64::from(first));
            if datagram::is_ours(segment) {
                self.ours += 1;
            } else {
                self.strays[DropReason::NotOurs.index()] += 1;
            }
        }
    }

    fn follow(&mut self, train: &Train<'_>) {
        let Some(flows) = &mut self.flows else {
            self.strays[DropReason::UnknownFlow.index()] += train.datagram_count() as u64;
            return;
        };
        let count = train.datagram_count();
        if self.stage == Stage::Raw
            && count > 1
            && let (Ok(first), Ok(last)) = (datagram::decode(train.first()), datagram::decode(train.last()))
            && flows.on_train(&first, &last, count)
        {
            self.ours += count as u64;
            return;
        }
        for segment in train.segments() {
            match datagram::decode(segment).and_then(|header| flows.on_datagram(&header)) {
                Ok(_) => self.ours += 1,
                Err(reason) => self.strays[reason.index()] += 1,
            }
        }
    }

    /// Measures one datagram in sixteen from its intended time of sending to now; the clock is read once per
    /// batch.
    fn sample_latency(&mut self, train: &Train<'_>, handled_ns: &mut u64) {
        let count = u32::try_from(train.datagram_count()).unwrap_or(u32::MAX);
        if count < self.until_latency {
            self.until_latency -= count;
            return;
        }
        self.until_latency = LATENCY_EVERY;
        let stamp = datagram::decode(train.first()).ok().and_then(|header| header.stamp);
        if let (Some(stamp), Some(latency)) = (stamp, &mut self.latency) {
            if *handled_ns == 0 {
                *handled_ns = clock::host_ns();
            }
            latency.saturating_record(handled_ns.saturating_sub(stamp.get()));
        }
    }

    pub(super) fn into_totals(self) -> StageTotals {
        // The sum exists so that the bytes are really read; its value says nothing.
        std::hint::black_box(self.checksum);
        let strays =
            DropReason::ALL.iter().map(|reason| (reason.name().to_owned(), self.strays[reason.index()]));
        StageTotals {
            ours: self.ours,
            flows: self.flows.filter(|_| self.follows_flows).map(|flows| flows.counts().to_vec()),
            strays: strays.filter(|(_, count)| *count > 0).collect(),
            latency: self.latency,
        }
    }
}
