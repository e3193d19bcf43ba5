//! The contract of the stages of a receiver thread, and the stages without connections.

use std::time::Duration;

use drumfire_socket::{DrainEnd, GroBatch, Received, Receiver, Socket};

use super::book::{StageTotals, ThreadBook};
use super::plan::Plan;
use super::state::Session;
use crate::choices::Stage;
use crate::datagram::{self, DropReason};

/// Datagrams taken in one pass before timers and commands get their turn.
pub(super) const BUDGET: usize = 1_024;

/// How far one thread takes its datagrams.
pub(super) trait ThreadStage {
    fn book(&self) -> &ThreadBook;

    /// Starts a session. Earlier datagrams are not counted in it.
    fn begin(&mut self, session: &Session);

    /// The time until the next pass is due without a datagram.
    fn due_in(&mut self) -> Option<Duration> {
        None
    }

    /// Drains the socket through the stage.
    fn pass(&mut self, receiver: &mut Receiver, socket: &mut Socket) -> DrainEnd;

    fn into_totals(self: Box<Self>) -> StageTotals;
}

/// The stages without connections: datagrams are counted, in all or per flow.
pub(super) struct PlainStage {
    stage: Stage,
    /// Whether flows are followed in the raw stage too, because with GRO only their gaps show how much was lost.
    follows_flows: bool,
    book: ThreadBook,
    checksum: u64,
}

impl ThreadStage for PlainStage {
    fn book(&self) -> &ThreadBook {
        &self.book
    }

    fn begin(&mut self, session: &Session) {
        self.book.begin(session);
    }

    fn pass(&mut self, receiver: &mut Receiver, socket: &mut Socket) -> DrainEnd {
        receiver.drain(socket, BUDGET, |received| self.take(received))
    }

    fn into_totals(self: Box<Self>) -> StageTotals {
        // The sum exists so that the compiler cannot remove the reads.
        std::hint::black_box(self.checksum);
        self.book.into_totals(self.follows_flows)
    }
}

impl PlainStage {
    pub(super) fn new(plan: &Plan) -> Self {
        let follows_flows = plan.stage == Stage::Parse || plan.may_see_trains();
        Self { stage: plan.stage, follows_flows, book: ThreadBook::new(), checksum: 0 }
    }

    /// Takes one batch.
    fn take(&mut self, received: Received<'_>) {
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

    fn follow(&mut self, train: &GroBatch<'_>) {
        if self.stage == Stage::Raw && self.book.enter_train(train) {
            return;
        }
        for segment in train.segments() {
            self.book.enter(segment);
        }
    }
}
