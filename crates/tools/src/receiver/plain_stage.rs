//! The stages without connections: datagrams are counted, in all or per flow.

use drumfire_socket::{Received, Train};

use super::book::{StageTotals, ThreadBook};
use crate::choices::Stage;
use crate::datagram::{self, DropReason};

/// One thread's stages.
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
