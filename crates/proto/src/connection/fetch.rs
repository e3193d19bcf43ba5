//! Brings a connection into the cache before its packets are opened.
//!
//! Of many connections that say little, none is there when a packet comes, and what the packet and its answer need lies on many
//! lines of memory. Read here, for the packets of a stage one after the other, they are waited for together; while packets
//! are opened and taken in each would be waited for alone. It decides nothing: what is read is thrown away.

use std::hint::black_box;

use super::Connection;
use super::flow::Activity;

impl Connection {
    /// Reads a little of each line of its own.
    #[inline]
    pub(crate) fn fetch(&self) {
        black_box((
            self.path.datagram_max_bytes,
            self.liveness.is_client(),
            self.loss.has_memory(),
            self.session.is_some(),
            self.acks.due(),
            self.activity.is_some(),
            self.receiving.credit.left_bytes(),
            self.is_queued,
        ));
    }

    /// Reads a little of each part of it that lies elsewhere, once it is there itself.
    #[inline]
    pub(crate) fn fetch_parts(&self) {
        if let Some(session) = &self.session {
            session.fetch();
        }
        black_box((self.activity.as_deref().map(Activity::fetch), self.loss.fetch(), self.sending.fetch()));
    }
}
