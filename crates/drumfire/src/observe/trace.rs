//! Events of connections and workers, as `tracing` events for the subscriber of the application.
//!
//! No packet has an event of its own. A worker logs at most one event per cause in ten seconds, with the number of events left
//! out, so that a remote peer cannot fill the log. The counters have all numbers. Without the feature `tracing`, nothing is
//! logged.

#[cfg(not(feature = "tracing"))]
mod off;
#[cfg(feature = "tracing")]
mod on;

#[cfg(not(feature = "tracing"))]
use off as chosen;
#[cfg(feature = "tracing")]
use on as chosen;

pub(crate) use chosen::{Trace, has_warned_of_dev_key, warn_of_empty_server_id};
