//! The stage of a receiver thread, without connections or with them.

use std::time::Duration;

use drumfire_socket::{DrainEnd, Received, Receiver, Socket, Train};

use super::book::{StageTotals, ThreadBook};
use super::deliver_stage::DeliverStage;
use super::open_stage::OpenStage;
use super::service::StagePart;
use super::state::Session;
use crate::choices::Stage;
use crate::datagram::{self, DropReason};

/// Datagrams taken in one pass before timers and commands get their turn.
const BUDGET: usize = 1_024;

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
        match self {
            Self::Plain(stage) => receiver.drain(socket, BUDGET, |received| stage.take(received)),
            Self::Open(stage) => {
                let end =
                    receiver.drain_mut(socket, BUDGET, |mut received| stage.take(received.datagrams_mut()));
                stage.finish_pass(socket);
                end
            }
            Self::Deliver(stage) => {
                let end =
                    receiver.drain_mut(socket, BUDGET, |mut received| stage.take(received.datagrams_mut()));
                stage.finish_pass(socket);
                end
            }
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
