//! The counters of workers as metrics of the facade crate `metrics`. The program installs a recorder, which exports them.
//!
//! By design there are no metrics per packet and none per peer, because their number and cost would be unbounded. Without the feature
//! `metrics`, the same types exist and do nothing.

#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;

#[cfg(not(feature = "metrics"))]
use off as chosen;
#[cfg(feature = "metrics")]
use on as chosen;

pub(crate) use chosen::Metrics;

/// Describes the metrics of servers and clients to the installed recorder, with their units. Call it once, after the installation. The
/// call is optional, because some recorders ignore descriptions. Does nothing without the feature `metrics`.
///
/// All names begin with `drumfire_`. The label `worker` is the index of a server's worker, or `client` for all clients of the process
/// together. Counters count from the installation of the recorder, at most a second late. The values of several servers in one process
/// add up.
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
