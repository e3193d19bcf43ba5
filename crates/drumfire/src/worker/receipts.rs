//! The receipts that have no outcome yet. When a connection ends, the outcome of each open receipt is `Lost`, and is reported before the
//! last event of the peer.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use drumfire_proto::{Outcome, PeerId, ReceiptId};

use crate::message::event::Event;

/// The open receipts of all peers, and the source of new ones.
#[derive(Debug, Default)]
pub(crate) struct OpenReceipts {
    /// The number of receipts so far. No id is used twice.
    issued_count: u64,
    open: BTreeSet<(PeerId, ReceiptId)>,
}

impl OpenReceipts {
    /// Returns a new receipt, which is open until [`OpenReceipts::close`].
    pub(crate) fn issue(&mut self, peer: PeerId) -> ReceiptId {
        let receipt = ReceiptId(NonZeroU64::MIN.saturating_add(self.issued_count));
        self.issued_count = self.issued_count.saturating_add(1);
        self.open.insert((peer, receipt));
        receipt
    }

    /// Forgets a receipt that has its outcome, or whose message was refused.
    pub(crate) fn close(&mut self, peer: PeerId, receipt: ReceiptId) {
        // Most applications use no receipts, and then this costs one comparison.
        if !self.open.is_empty() {
            self.open.remove(&(peer, receipt));
        }
    }

    /// Removes all receipts of a peer whose connection has ended, and returns the event of each.
    pub(crate) fn lose(&mut self, peer: PeerId) -> Vec<Event> {
        if self.open.is_empty() {
            return Vec::new();
        }
        // The set is ordered by peer, so the range visits only the receipts of this peer.
        let first = ReceiptId(NonZeroU64::MIN);
        let last = ReceiptId(NonZeroU64::MAX);
        let ended: Vec<_> = self.open.range((peer, first)..=(peer, last)).copied().collect();
        let lost = |(peer, receipt)| Event::Receipt { peer, receipt, outcome: Outcome::Lost };
        ended.into_iter().inspect(|entry| _ = self.open.remove(entry)).map(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receipts_of_one_peer_are_lost_once_and_in_order() {
        let [one, other]: [PeerId; 2] = ["0.0.0", "0.1.0"].map(|id| id.parse().unwrap());
        let mut receipts = OpenReceipts::default();
        let issued: Vec<_> = [one, other, one, one].map(|peer| receipts.issue(peer)).into();
        receipts.close(one, issued[2]);
        let lost = |peer, receipt| Event::Receipt { peer, receipt, outcome: Outcome::Lost };
        assert_eq!(receipts.lose(one), [lost(one, issued[0]), lost(one, issued[3])]);
        assert_eq!(receipts.lose(one), []);
        assert_eq!(receipts.lose(other), [lost(other, issued[1])]);
    }
}
