//! The shutdown of a worker: it closes each connection as soon as the peer has acknowledged everything, and the rest at a deadline.
//!
//! Only during a shutdown, the worker checks all remaining connections a hundred times per second.

use std::time::Duration;

use drumfire_proto::{Moment, PeerId};

use crate::base::sync::PendingPart;

/// The interval between checks for connections whose peers have acknowledged everything.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The messages of a peer that were not acknowledged when its connection was closed at the deadline of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undelivered {
    /// The id of the peer.
    pub peer: PeerId,
    /// The bytes of these messages, with a charge of 64 bytes for each. The peer may have received some of them.
    pub bytes: usize,
}

/// The command to shut down.
#[derive(Debug)]
pub(crate) struct ShutdownOrder {
    /// The time at which all connections are closed.
    pub(crate) deadline: Moment,
    /// The application code of the close.
    pub(crate) application_code: u32,
    /// This worker's part of the result.
    pub(crate) part: PendingPart<Vec<Undelivered>>,
}

/// A shutdown in progress. A worker keeps it after the last connection, because handshakes that began before can still complete.
#[derive(Debug)]
pub(super) struct Shutdown {
    pub(super) deadline: Moment,
    pub(super) application_code: u32,
    /// This worker's part of the result of each call. Empty when all connections that existed at the start are closed.
    pub(super) parts: Vec<PendingPart<Vec<Undelivered>>>,
    /// The peers that may not have acknowledged everything.
    pub(super) peers: Vec<PeerId>,
    /// The time of the next check.
    pub(super) check_at: Moment,
}
