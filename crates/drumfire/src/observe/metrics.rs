//! What workers count, as metrics of the facade crate `metrics`: whoever installs a recorder sees them, whatever it exports to.
//!
//! Deliberately nothing per packet and nothing per peer. Without feature `metrics` all of it is there and does nothing.

#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;

#[cfg(not(feature = "metrics"))]
use off as chosen;
#[cfg(feature = "metrics")]
use on as chosen;

pub(crate) use chosen::Metrics;

/// Tells the recorder that is installed what the metrics of servers and clients are and in which unit. Call it once, after the
/// recorder was installed; a recorder that wants no descriptions needs no call. Does nothing without feature `metrics`.
///
/// All names begin with `drumfire_`. The label `worker` is a server's worker by its number, or `client` for all clients of the
/// process together. Counters go on from when the recorder was installed, at most a second late; several servers in one
/// process add up.
///
/// ```
/// # #[cfg(feature = "metrics")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use metrics::NoopRecorder as Exporter;
/// metrics::set_global_recorder(Exporter)?;
/// drumfire::stats::describe_metrics();
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "metrics"))]
/// # fn main() {}
/// ```
pub fn describe_metrics() {
    chosen::describe();
}
