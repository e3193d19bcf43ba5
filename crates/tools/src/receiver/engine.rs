//! The stage of a receiver thread, without connections or with them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_socket::{DatagramMut, DrainEnd, Io, LocalAddress, Receiver, Socket};

use super::book::{StageTotals, ThreadBook};
use super::open_stage::OpenStage;
use super::pipeline::{Pipeline, PipelinePart};
use super::plain_stage::PlainStage;
use crate::choices::Stage;
use crate::datagram::RouteId;

/// Datagrams taken in one pass before timers and commands get their turn.
pub(super) const BUDGET: usize = 1_024;

/// A datagram on its way between the threads.
pub(super) struct Parcel {
    pub(super) from: SocketAddr,
    pub(super) local: LocalAddress,
    pub(super) bytes: Vec<u8>,
}

impl Parcel {
    /// The datagram in the form that a socket returns.
    pub(super) fn datagram(&mut self) -> DatagramMut<'_> {
        DatagramMut { from: self.from, local: self.local, bytes: &mut self.bytes }
    }
}

/// One thread's stages.
pub(super) enum Engine {
    Plain(Box<PlainStage>),
    Opened(Box<OpenStage>),
    Delivered(Box<Pipeline>),
}

impl Engine {
    /// Makes the engine of a thread. A stage with connections needs a `part`.
    pub(super) fn new(
        stage: Stage,
        part: Option<PipelinePart>,
        may_see_trains: bool,
        has_gso: bool,
    ) -> Result<Self, String> {
        Ok(match part {
            Some(part) if stage == Stage::Open => Self::Opened(Box::new(OpenStage::new(part)?)),
            Some(part) => Self::Delivered(Box::new(Pipeline::new(part, has_gso)?)),
            None => Self::Plain(Box::new(PlainStage::new(stage, may_see_trains))),
        })
    }

    pub(super) fn book(&self) -> &ThreadBook {
        match self {
            Self::Plain(stages) => &stages.book,
            Self::Opened(open_stage) => &open_stage.book,
            Self::Delivered(pipeline) => &pipeline.book,
        }
    }

    /// Starts a session.
    pub(super) fn begin(&mut self, ids: &Arc<[RouteId]>, is_one_host: bool) {
        match self {
            Self::Plain(stages) => stages.book.begin(ids, is_one_host),
            Self::Opened(open_stage) => open_stage.begin(ids, is_one_host),
            Self::Delivered(pipeline) => pipeline.begin(ids, is_one_host),
        }
    }

    /// The time until the next pass is due without a datagram.
    pub(super) fn due_in(&mut self) -> Option<Duration> {
        match self {
            Self::Plain(_) | Self::Opened(_) => None,
            Self::Delivered(pipeline) => pipeline.due_in(),
        }
    }

    /// Drains the socket through the stages.
    pub(super) fn pass(&mut self, receiver: &mut Receiver, socket: &mut Socket) -> DrainEnd {
        match self {
            Self::Plain(stages) => receiver.drain(socket, BUDGET, |received| stages.take(received)),
            Self::Opened(open_stage) => {
                let end = receiver.drain_mut(socket, BUDGET, |mut received| {
                    open_stage.take(received.datagrams_mut());
                });
                open_stage.finish_pass(socket);
                end
            }
            Self::Delivered(pipeline) => {
                let end = receiver.drain_mut(socket, BUDGET, |received| pipeline.take(received));
                pipeline.finish_pass(socket);
                end
            }
        }
    }

    /// Handles datagrams that another thread received. Responses are sent through `io`.
    pub(super) fn take_parcels<I: Io>(&mut self, parcels: &mut [Parcel], io: &mut I) {
        match self {
            Self::Plain(stages) => parcels.iter_mut().for_each(|parcel| {
                stages.take_datagram(parcel.datagram().bytes);
            }),
            Self::Opened(open_stage) => {
                open_stage.take(parcels.iter_mut().map(Parcel::datagram));
                open_stage.finish_pass(io);
            }
            Self::Delivered(pipeline) => {
                pipeline.take_datagrams(parcels.iter_mut().map(Parcel::datagram));
                pipeline.finish_pass(io);
            }
        }
    }

    pub(super) fn into_totals(self) -> StageTotals {
        match self {
            Self::Plain(stages) => stages.into_totals(),
            Self::Opened(open_stage) => open_stage.into_totals(),
            Self::Delivered(pipeline) => pipeline.into_totals(),
        }
    }
}
