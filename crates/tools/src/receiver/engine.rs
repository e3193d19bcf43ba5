//! What a receiver thread does with its datagrams: the stages without connections, or those with.

use std::sync::Arc;
use std::time::Duration;

use drumfire_socket::{DrainEnd, Io, Receiver, Socket};

use super::hop::Parcel;
use super::ledger::{Ledger, StageTotals};
use super::opening::Opening;
use super::pipeline::Pipeline;
use super::stage::Stages;
use super::worker::Worker;
use crate::choices::Stage;
use crate::datagram::RouteId;

/// Datagrams taken in one pass before timers and commands get their turn.
pub(super) const BUDGET: usize = 1_024;

/// One thread's stages.
pub(super) enum Engine {
    Plain(Box<Stages>),
    Opened(Box<Opening>),
    Delivered(Box<Pipeline>),
}

impl Engine {
    /// The engine of this worker.
    pub(super) fn new(worker: &mut Worker) -> Result<Self, String> {
        Ok(match worker.pipeline.take() {
            Some(part) => {
                let has_gso = worker.socket.granted().has_gso;
                if worker.stage == Stage::Open {
                    Self::Opened(Box::new(Opening::new(part)?))
                } else {
                    Self::Delivered(Box::new(Pipeline::new(part, has_gso)?))
                }
            }
            None => Self::Plain(Box::new(Stages::new(worker.stage, worker.may_see_trains))),
        })
    }

    pub(super) fn ledger(&self) -> &Ledger {
        match self {
            Self::Plain(stages) => &stages.ledger,
            Self::Opened(opening) => &opening.ledger,
            Self::Delivered(pipeline) => &pipeline.ledger,
        }
    }

    /// Starts a session.
    pub(super) fn begin(&mut self, ids: &Arc<[RouteId]>, is_one_host: bool) {
        match self {
            Self::Plain(stages) => stages.ledger.begin(ids, is_one_host),
            Self::Opened(opening) => opening.begin(ids, is_one_host),
            Self::Delivered(pipeline) => pipeline.begin(ids, is_one_host),
        }
    }

    /// When the next pass is due, however quiet it is.
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
            Self::Opened(opening) => {
                let end = receiver.drain_mut(socket, BUDGET, |mut received| {
                    opening.take(received.datagrams_mut());
                });
                opening.finish_pass(socket);
                end
            }
            Self::Delivered(pipeline) => {
                let end = receiver.drain_mut(socket, BUDGET, |received| pipeline.take(received));
                pipeline.finish_pass(socket);
                end
            }
        }
    }

    /// Takes datagrams that another thread received; what they are answered goes out through `io`.
    pub(super) fn take_parcels<I: Io>(&mut self, parcels: &mut [Parcel], io: &mut I) {
        match self {
            Self::Plain(stages) => parcels.iter_mut().for_each(|parcel| {
                stages.take_datagram(parcel.datagram().bytes);
            }),
            Self::Opened(opening) => {
                opening.take(parcels.iter_mut().map(Parcel::datagram));
                opening.finish_pass(io);
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
            Self::Opened(opening) => opening.into_totals(),
            Self::Delivered(pipeline) => pipeline.into_totals(),
        }
    }
}
