//! Receipts report the fate of messages whose sender requested it: once for each message, and not after the end of the
//! connection.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ops::Range;

use drumfire_wire::MessageId;

use crate::convert::to_u64;
use crate::loss::PacketFate;

/// The first fate id of a receipt. `loss` reports the fate of all that a packet carried by such ids. No connection lives
/// long enough to use as many message ids. Control frames use ids from 2^63 on.
const FIRST_ID: u64 = 1 << 62;

/// The id by which the sender of a message recognizes its receipt. The sender chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiptId(pub NonZeroU64);

/// The fate of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The peer's connection received the message. In reliable modes the application receives it too, unless the peer
    /// closes.
    Acknowledged,
    /// The packet with the message was declared lost. This happens only in unreliable modes.
    Lost,
    /// The message was given up: its lifetime ended, a newer message replaced it, or there was no memory for it and
    /// the channel's options said to drop it. It may have arrived.
    Expired,
}

/// The receipts of one connection that wait for the fate of packets, and the outcomes that wait to be read.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    /// Receipts of unreliable messages in flight, from id `base` on. An entry with a known outcome is removed when it
    /// is the oldest.
    pending: VecDeque<Option<PendingReceipt>>,
    /// The number of receipts that were removed from `pending`.
    base: u64,
    /// Receipts of messages with ids that were sent, by ascending id. An entry with a known outcome is `None`, and is
    /// removed when it is the oldest.
    by_id: VecDeque<(u64, Option<ReceiptId>)>,
    /// Outcomes that the endpoint has not read, oldest first.
    outcomes: VecDeque<(ReceiptId, Outcome)>,
}

/// An unreliable message with a receipt.
#[derive(Debug, Clone, Copy)]
struct PendingReceipt {
    /// The id that the sender chose.
    receipt: ReceiptId,
    /// The number of fragments whose fate is not known. A short message counts as one.
    fragment_count: u32,
    /// The whole message was sent.
    is_whole: bool,
}

/// Whether this fate id belongs to a receipt.
pub(super) const fn is_receipt(id: MessageId) -> bool {
    id.0 >= FIRST_ID
}

impl Receipts {
    /// Queues an outcome.
    pub(super) fn resolve(&mut self, receipt: ReceiptId, outcome: Outcome) {
        self.outcomes.push_back((receipt, outcome));
    }

    /// Registers a message that is sent for the first time under this id.
    pub(super) fn open(&mut self, id: u64, receipt: ReceiptId) {
        debug_assert!(self.by_id.back().is_none_or(|last| last.0 < id), "message {id} is sent out of order");
        self.by_id.push_back((id, Some(receipt)));
    }

    /// Reports the outcome of the messages with these ids, except those whose outcome is known.
    pub(super) fn resolve_ids(&mut self, ids: Range<u64>, outcome: Outcome) {
        // Few messages have receipts, so an entry is searched for rather than kept for each id.
        let start = self.by_id.partition_point(|entry| entry.0 < ids.start);
        for (_, receipt) in self.by_id.range_mut(start..).take_while(|entry| entry.0 < ids.end) {
            if let Some(receipt) = receipt.take() {
                self.outcomes.push_back((receipt, outcome));
            }
        }
        while self.by_id.pop_front_if(|entry| entry.1.is_none()).is_some() {}
    }

    /// Registers an unreliable message in a packet. Returns the id by which its fate is reported.
    pub(super) fn on_sent(&mut self, receipt: ReceiptId) -> MessageId {
        let id = self.begin(receipt);
        self.on_fragment(id, true);
        id
    }

    /// Registers an unreliable message that is sent in fragments. Returns the id by which their fates are reported.
    pub(super) fn begin(&mut self, receipt: ReceiptId) -> MessageId {
        // Ids are positions: all receipts that ever began, in order. The oldest open one is at the front.
        let count = to_u64(self.pending.len());
        self.pending.push_back(Some(PendingReceipt { receipt, fragment_count: 0, is_whole: false }));
        MessageId(FIRST_ID.saturating_add(self.base).saturating_add(count))
    }

    /// Registers a fragment in a packet.
    pub(super) fn on_fragment(&mut self, id: MessageId, is_last: bool) {
        // After the loss of an earlier fragment the outcome is known, and later fragments do not matter.
        if let Some(Some(pending)) = self.entry(id) {
            pending.fragment_count = pending.fragment_count.saturating_add(1);
            pending.is_whole |= is_last;
        }
    }

    /// Ends the receipt of a message that was given up before all of it was sent.
    pub(super) fn abandon(&mut self, id: MessageId) {
        // Fragments that were sent may still be in flight. Their fates find an empty entry, or none.
        if let Some(pending) = self.entry(id).and_then(Option::take) {
            self.resolve(pending.receipt, Outcome::Expired);
            self.remove_resolved();
        }
    }

    /// The place of an open receipt. `None` for one that was removed.
    fn entry(&mut self, id: MessageId) -> Option<&mut Option<PendingReceipt>> {
        let entry = id.0.checked_sub(FIRST_ID.saturating_add(self.base))?;
        self.pending.get_mut(usize::try_from(entry).ok()?)
    }

    /// Removes the oldest receipts whose outcome is known.
    fn remove_resolved(&mut self) {
        while self.pending.pop_front_if(|receipt| receipt.is_none()).is_some() {
            self.base = self.base.saturating_add(1);
        }
    }

    /// Processes the fate of a packet with the message. The first report decides.
    pub(super) fn on_fate(&mut self, fate: PacketFate, id: MessageId) {
        let Some(entry) = self.entry(id) else { return };
        let Some(pending) = entry else { return };
        debug_assert!(pending.fragment_count > 0, "{id:?} has more fates than packets");
        pending.fragment_count = pending.fragment_count.saturating_sub(1);
        // One lost packet decides, because an unreliable message is not repeated. All packets must arrive otherwise.
        let has_arrived = fate == PacketFate::Acknowledged;
        if has_arrived && !(pending.is_whole && pending.fragment_count == 0) {
            return;
        }
        // The entry stays empty until all older ones are decided. Later fates of its packets find nothing.
        let receipt = pending.receipt;
        *entry = None;
        self.resolve(receipt, if has_arrived { Outcome::Acknowledged } else { Outcome::Lost });
        self.remove_resolved();
    }

    /// Asserts what must hold between two calls.
    pub(super) fn assert_invariants(&self) {
        debug_assert!(
            self.pending.front().is_none_or(Option::is_some),
            "the outcome of the oldest receipt is known, and the receipt is still kept"
        );
        debug_assert!(
            self.by_id.front().is_none_or(|entry| entry.1.is_some())
                && self.by_id.iter().is_sorted_by(|entry, next| entry.0 < next.0),
            "the receipts by id are out of order, or the oldest is answered"
        );
    }

    /// Whether no receipt is open, and all outcomes were read.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.by_id.is_empty() && self.outcomes.is_empty()
    }

    /// Returns the next outcome, oldest first.
    pub(super) fn pop(&mut self) -> Option<(ReceiptId, Outcome)> {
        self.outcomes.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(number: u64) -> ReceiptId {
        ReceiptId(NonZeroU64::new(number).unwrap())
    }

    #[test]
    fn only_the_first_outcome_of_a_message_is_reported() {
        let mut receipts = Receipts::default();
        let ids = [1, 2, 3].map(|number| receipts.on_sent(receipt(number)));
        receipts.on_fate(PacketFate::Lost, ids[1]);
        receipts.on_fate(PacketFate::Acknowledged, ids[1]);
        receipts.on_fate(PacketFate::Acknowledged, ids[0]);
        assert_eq!(receipts.on_sent(receipt(4)).0, ids[2].0 + 1);
        receipts.on_fate(PacketFate::Lost, ids[0]);
        receipts.on_fate(PacketFate::Acknowledged, ids[2]);
        let fragments = receipts.begin(receipt(5));
        for is_last in [false, false, true] {
            receipts.on_fragment(fragments, is_last);
        }
        receipts.on_fate(PacketFate::Acknowledged, fragments);
        receipts.on_fate(PacketFate::Acknowledged, fragments);
        assert!(receipts.pending.back().is_some_and(Option::is_some), "one fragment is in flight");
        receipts.on_fate(PacketFate::Lost, fragments);
        let given_up = receipts.begin(receipt(6));
        receipts.on_fragment(given_up, false);
        receipts.abandon(given_up);
        receipts.on_fate(PacketFate::Lost, given_up);
        let outcomes: Vec<_> = std::iter::from_fn(|| receipts.pop()).collect();
        let (arrived, lost) = (Outcome::Acknowledged, Outcome::Lost);
        let expected = [(2, lost), (1, arrived), (3, arrived), (5, lost), (6, Outcome::Expired)];
        assert_eq!(outcomes, expected.map(|(number, outcome)| (receipt(number), outcome)));
        receipts.on_fate(PacketFate::Acknowledged, MessageId(ids[2].0 + 1));
        assert_eq!(receipts.pending.len(), 0);
    }
}
