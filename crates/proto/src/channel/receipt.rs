//! What became of messages whose sender asked to know: one answer for each, and none after the connection is over.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use drumfire_wire::MessageId;

use crate::loss::Fate;

/// The first id in the books of `loss` that is not a reliable message's but a receipt's. No connection lives long enough to
/// have so many messages; control frames begin above.
const FIRST_ID: u64 = 1 << 62;

/// By which whoever sent a message knows it again; drawn by the sender, and of no meaning here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiptId(pub NonZeroU64);

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The peer's connection has it; in reliable modes its application gets it, unless the peer closes.
    Acknowledged,
    /// The packet that carried it is lost, as far as can be told; only in unreliable modes.
    Lost,
    /// It was given up: its time was over, a newer one took its place, or there was no room for it and its channel's options
    /// said to drop it. It may have arrived.
    Expired,
}

/// The receipts of one connection that wait for a packet's fate, and the answers that wait to be heard.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    /// Of unreliable messages under way, from the id `base` on; those that were answered leave when they are the oldest.
    under_way: VecDeque<Option<UnderWay>>,
    base: u64,
    answers: VecDeque<(ReceiptId, Outcome)>,
}

/// An unreliable message that somebody wants to hear of.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    receipt: ReceiptId,
    /// Its pieces whose fate is not known; a short message is one.
    piece_count: u32,
    /// All of it was sent.
    is_whole: bool,
}

/// Whether this id in the books of `loss` is a receipt's.
pub(super) const fn is_receipt(id: MessageId) -> bool {
    id.0 >= FIRST_ID
}

impl Receipts {
    pub(super) fn answer(&mut self, receipt: ReceiptId, outcome: Outcome) {
        self.answers.push_back((receipt, outcome));
    }

    /// An unreliable message was put into a packet; answers the id by which its fate is told.
    pub(super) fn on_sent(&mut self, receipt: ReceiptId) -> MessageId {
        let id = self.begin(receipt);
        self.on_piece(id, true);
        id
    }

    /// An unreliable message is to be sent in pieces; answers the id by which their fates are told.
    pub(super) fn begin(&mut self, receipt: ReceiptId) -> MessageId {
        let count = u64::try_from(self.under_way.len()).unwrap_or(u64::MAX);
        self.under_way.push_back(Some(UnderWay { receipt, piece_count: 0, is_whole: false }));
        MessageId(FIRST_ID.saturating_add(self.base).saturating_add(count))
    }

    /// One of them was put into a packet.
    pub(super) fn on_piece(&mut self, id: MessageId, is_last: bool) {
        if let Some(Some(under_way)) = self.place(id) {
            under_way.piece_count = under_way.piece_count.saturating_add(1);
            under_way.is_whole |= is_last;
        }
    }

    /// The message was given up before all of it was sent.
    pub(super) fn give_up(&mut self, id: MessageId) {
        if let Some(under_way) = self.place(id).and_then(Option::take) {
            self.answer(under_way.receipt, Outcome::Expired);
            self.let_go();
        }
    }

    fn place(&mut self, id: MessageId) -> Option<&mut Option<UnderWay>> {
        let place = id.0.checked_sub(FIRST_ID.saturating_add(self.base))?;
        self.under_way.get_mut(usize::try_from(place).ok()?)
    }

    fn let_go(&mut self) {
        while self.under_way.pop_front_if(|receipt| receipt.is_none()).is_some() {
            self.base = self.base.saturating_add(1);
        }
    }

    /// Takes in what became of the packet with it; the first word counts.
    pub(super) fn on_fate(&mut self, fate: Fate, id: MessageId) {
        let Some(place) = self.place(id) else { return };
        let Some(under_way) = place else { return };
        under_way.piece_count = under_way.piece_count.saturating_sub(1);
        let has_arrived = fate == Fate::Acknowledged;
        if has_arrived && !(under_way.is_whole && under_way.piece_count == 0) {
            return;
        }
        let receipt = under_way.receipt;
        *place = None;
        self.answer(receipt, if has_arrived { Outcome::Acknowledged } else { Outcome::Lost });
        self.let_go();
    }

    /// Whether every message was answered for, and every answer was heard.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.answers.is_empty()
    }

    /// The next answer, oldest first.
    pub(super) fn pop(&mut self) -> Option<(ReceiptId, Outcome)> {
        self.answers.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(number: u64) -> ReceiptId {
        ReceiptId(NonZeroU64::new(number).unwrap())
    }

    #[test]
    fn the_first_word_on_a_message_is_the_only_one() {
        let mut receipts = Receipts::default();
        let ids = [1, 2, 3].map(|number| receipts.on_sent(receipt(number)));
        receipts.on_fate(Fate::Lost, ids[1]);
        receipts.on_fate(Fate::Acknowledged, ids[1]);
        receipts.on_fate(Fate::Acknowledged, ids[0]);
        assert_eq!(receipts.on_sent(receipt(4)).0, ids[2].0 + 1);
        receipts.on_fate(Fate::Lost, ids[0]);
        receipts.on_fate(Fate::Acknowledged, ids[2]);
        let pieces = receipts.begin(receipt(5));
        for is_last in [false, false, true] {
            receipts.on_piece(pieces, is_last);
        }
        receipts.on_fate(Fate::Acknowledged, pieces);
        receipts.on_fate(Fate::Acknowledged, pieces);
        assert!(receipts.under_way.back().is_some_and(Option::is_some), "one piece is under way");
        receipts.on_fate(Fate::Lost, pieces);
        let given_up = receipts.begin(receipt(6));
        receipts.on_piece(given_up, false);
        receipts.give_up(given_up);
        receipts.on_fate(Fate::Lost, given_up);
        let answers: Vec<_> = std::iter::from_fn(|| receipts.pop()).collect();
        let (arrived, lost) = (Outcome::Acknowledged, Outcome::Lost);
        let wanted = [(2, lost), (1, arrived), (3, arrived), (5, lost), (6, Outcome::Expired)];
        assert_eq!(answers, wanted.map(|(number, outcome)| (receipt(number), outcome)));
        receipts.on_fate(Fate::Acknowledged, MessageId(ids[2].0 + 1));
        assert_eq!(receipts.under_way.len(), 0);
    }
}
