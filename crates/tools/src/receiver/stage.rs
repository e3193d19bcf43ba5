//! The stages that need no connection: taken and counted, or told apart by flow.

use drumfire_socket::{Received, Train};

use super::ledger::{Ledger, StageTotals};
use crate::choices::Stage;
use crate::datagram::{self, DropReason};

/// One thread's stages.
pub(super) struct Stages {
    stage: Stage,
    /// Whether flows are followed in the raw stage too, since with GRO only their gaps tell what was lost.
    follows_flows: bool,
    pub(super) ledger: Ledger,
    checksum: u64,
}

impl Stages {
    pub(super) fn new(stage: Stage, may_see_trains: bool) -> Self {
        let follows_flows = stage == Stage::Parse || may_see_trains;
        Self { stage, follows_flows, ledger: Ledger::new(), checksum: 0 }
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
            self.ledger.sample_latency(train.first(), train.datagram_count(), &mut handled_ns);
        }
    }

    /// Takes one datagram that came alone.
    pub(super) fn take_datagram(&mut self, bytes: &[u8]) {
        if self.follows_flows {
            self.ledger.enter(bytes);
        } else {
            self.count(bytes);
        }
        self.ledger.sample_latency(bytes, 1, &mut 0);
    }

    /// The bare floor: look at byte 0 and forget the datagram.
    fn count(&mut self, bytes: &[u8]) {
        let first = bytes.first().copied().unwrap_or_default();
        self.checksum = self.checksum.wrapping_add(u64::from(first));
        if datagram::is_ours(bytes) {
            self.ledger.count_ours(1);
        } else {
            self.ledger.stray(DropReason::NotOurs, 1);
        }
    }

    fn follow(&mut self, train: &Train<'_>) {
        if self.stage == Stage::Raw && self.ledger.enter_train(train) {
            return;
        }
        for segment in train.segments() {
            self.ledger.enter(segment);
        }
    }

    pub(super) fn into_totals(self) -> StageTotals {
        // The sum exists so that the bytes are really read; its value says nothing.
        std::hint::black_box(self.checksum);
        self.ledger.into_totals(self.follows_flows)
    }
}
