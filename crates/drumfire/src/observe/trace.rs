//! What happens to connections and workers, as events of `tracing`: whoever installs a subscriber reads them.
//!
//! Deliberately never one per packet, and of one cause at most one per worker in ten seconds, which names how many
//! were left out: nobody can fill a log from outside. Counters tell the rest. Without feature `tracing` nothing is said.

#[cfg(not(feature = "tracing"))]
mod off;
#[cfg(feature = "tracing")]
mod on;

#[cfg(not(feature = "tracing"))]
use off as chosen;
#[cfg(feature = "tracing")]
use on as chosen;

use std::net::SocketAddr;

use drumfire_proto::{CloseReason, ConnectError};

pub(crate) use chosen::{Trace, has_warned_of_dev_key, warn_of_empty_server_id};

/// What happens to a connection.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "nobody is there to say it"))]
pub(crate) enum Happening {
    Connected(SocketAddr),
    ConnectFailed(ConnectError),
    Disconnected(CloseReason),
}
