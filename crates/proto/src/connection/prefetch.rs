//! Prefetches a connection into the cache before its packets are opened.
//!
//! With many quiet connections, no connection is in the cache when its packet arrives, and the packet needs several
//! of its cache lines. Reading them for all packets of a stage lets the memory loads overlap. Otherwise each packet
//! would wait for its own. The values that are read are discarded.

use std::hint::black_box;

use super::Connection;
use super::flow::ActiveState;

impl Connection {
    /// Reads a field on each cache line of the connection itself.
    #[inline]
    pub(crate) fn prefetch(&self) {
        black_box((
            self.path.datagram_max_bytes,
            self.liveness.is_client(),
            self.loss.has_memory(),
            self.session.is_some(),
            self.acks.due(),
            self.active.is_some(),
            self.receiving.credit.left_bytes(),
            self.is_queued,
        ));
    }

    /// Reads a field of each separately allocated part, after the connection itself was prefetched.
    #[inline]
    pub(crate) fn prefetch_parts(&self) {
        if let Some(session) = &self.session {
            session.prefetch();
        }
        black_box((
            self.active.as_deref().map(ActiveState::prefetch),
            self.loss.prefetch(),
            self.sending.prefetch(),
        ));
    }
}
