//! The log without the feature `tracing`: it is empty.

use drumfire_proto::Moment;

use crate::message::event::Event;
use crate::observe::stats::WorkerStats;

/// Logs nothing.
#[derive(Debug)]
pub(crate) struct Trace;

impl Trace {
    pub(crate) const fn new(_worker: Option<u16>) -> Self {
        Self
    }

    pub(crate) const fn on_connection_event(&mut self, _now: Moment, _event: &Event) {}

    pub(crate) const fn warn_never_polled(&mut self) {}

    pub(crate) const fn counters(&mut self, _now: Moment, _stats: &WorkerStats) {}

    pub(crate) const fn finish(&mut self, _stats: &WorkerStats) {}
}

/// Does nothing.
pub(crate) const fn warn_of_empty_server_id(_address: std::net::SocketAddr) {}

/// Returns false, because no subscriber receives the warning.
pub(crate) const fn has_warned_of_dev_key() -> bool {
    false
}
