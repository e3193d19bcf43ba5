//! The counters of a worker: when they are copied, and for whom.

use drumfire_proto::{Endpoint, Placement};

use super::Worker;
use crate::observe::stats::WorkerStats;
use crate::worker::core::Core;
use crate::worker::transport::Transport;

impl<P: Placement> Worker<P> {
    /// Publishes the counters of this pass, if a reader needs them now. Copying all of them costs about
    /// 350 instructions, which most passes would spend for no reader.
    pub(super) fn publish(&mut self) {
        self.core.reclaim_blocks();
        let now = self.now.monotonic;
        self.transport.read_kernel_counters(now);
        let Core { stats, observer, .. } = &mut self.core;
        let faults = stats.panics.saturating_add(stats.restarts);
        // A worker without a socket makes no other pass, and its log must say why it ended.
        let is_due = observer.is_due(now, faults) || self.transport.is_gone;
        let is_observed = self.link.is_observed();
        if !is_due && !is_observed {
            return;
        }
        self.refresh_stats();
        self.link.set_stats(&self.core.stats);
        if is_due {
            let Core { stats, endpoint, observer, .. } = &mut self.core;
            observer.publish(now, stats, endpoint, self.link.busy().percent(now));
        }
    }

    /// Copies the counters of the endpoint and the transport into the statistics.
    pub(super) fn refresh_stats(&mut self) {
        let Core { stats, endpoint, .. } = &mut self.core;
        count(endpoint, &self.transport, stats);
    }

    /// Returns the number of connections, including attempts and connections that close.
    pub(crate) fn connection_count(&self) -> usize {
        self.core.endpoint.connection_count()
    }

    /// Returns the counters as of now.
    pub(crate) fn stats(&self) -> WorkerStats {
        let mut stats = self.core.stats.clone();
        count(&self.core.endpoint, &self.transport, &mut stats);
        stats
    }
}

fn count<P: Placement>(endpoint: &Endpoint<P>, transport: &Transport, stats: &mut WorkerStats) {
    stats.protocol = *endpoint.stats();
    transport.count(stats);
    stats.connections = endpoint.connection_count();
    stats.message_memory_bytes = endpoint.held_bytes();
}
