//! Without the feature `conditioner`, no socket has simulated links.

use std::convert::Infallible;

use drumfire_proto::{Inbound, Moment, Transmit};

use super::Arrival;
use crate::base::entropy::EntropyError;
use crate::base::error::Error;
use crate::observe::stats::WorkerStats;

pub(crate) type LinkSettings = Infallible;

/// No value exists.
pub(crate) enum LiveLinks {}

impl LiveLinks {
    #[expect(clippy::unnecessary_wraps, reason = "with the feature, the settings can be invalid")]
    pub(crate) fn new(
        _: Option<&LinkSettings>,
        _: impl FnMut() -> Result<u64, EntropyError>,
    ) -> Result<Option<Box<Self>>, Error> {
        Ok(None)
    }

    pub(crate) fn push_inbound(&mut self, _: Moment, _: &Inbound<'_>) {
        match *self {}
    }

    pub(crate) fn pop_inbound(&mut self, _: Moment) -> Option<Arrival> {
        match *self {}
    }

    pub(crate) fn push_outbound(&mut self, _: Moment, _: &Transmit, _: &[u8]) {
        match *self {}
    }

    pub(crate) fn pop_outbound(&mut self, _: Moment) -> Option<Arrival> {
        match *self {}
    }

    pub(crate) fn due(&self, _: bool) -> Option<Moment> {
        match *self {}
    }

    pub(crate) fn release(&mut self) {
        match *self {}
    }

    pub(crate) fn on_replaced(&mut self) {
        match *self {}
    }

    pub(crate) fn count(&self, _: &mut WorkerStats) {
        match *self {}
    }
}
