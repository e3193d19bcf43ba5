//! Invariants of the sent reliable messages between two calls.
//!
//! The file is short because only builds with debug assertions use it.

use std::collections::VecDeque;

use drumfire_wire::ChannelId;

use super::{MessageState, Reliable, sent_ref};
use crate::channel::send::charge;
use crate::convert::to_u64;
use crate::limits::MESSAGE_IDS_IN_FLIGHT;

impl Reliable {
    /// Asserts what must hold between two calls. Returns the charges in bytes of the messages that have not arrived.
    pub(in crate::channel::send) fn check(&self) -> usize {
        debug_assert!(
            self.sent.front().is_none_or(|sent| sent.state != MessageState::Acknowledged),
            "message {} has arrived, and is the oldest in flight",
            self.base
        );
        debug_assert!(
            to_u64(self.sent.len()) <= MESSAGE_IDS_IN_FLIGHT,
            "{} messages are in flight",
            self.sent.len()
        );
        // A first id that is not lost would make the connection build empty packets forever.
        let is_lost = |id: &u64| {
            sent_ref(&self.sent, self.base, *id).is_some_and(|sent| sent.state == MessageState::Lost)
        };
        debug_assert!(
            self.lost.iter().filter_map(VecDeque::front).all(is_lost),
            "a message is to be sent again that is not lost"
        );
        // A list may still name messages that have arrived. The count includes them, because it says whether to look.
        let lost_count = self.sent.iter().filter(|sent| sent.state == MessageState::Lost).count();
        let listed_count = self.lost.iter().map(VecDeque::len).sum::<usize>();
        debug_assert!(
            lost_count <= listed_count && listed_count == self.lost_count,
            "{lost_count} messages are lost, {listed_count} listed, {} counted",
            self.lost_count
        );
        let in_pieces = self.sent.iter().filter_map(|sent| sent.pieces.as_ref());
        in_pieces.clone().for_each(|pieces| pieces.check());
        debug_assert!(
            self.in_pieces_count == in_pieces.count()
                && u32::try_from(self.in_pieces_count) == Ok(self.in_pieces.values().sum::<u32>()),
            "the fragmented messages were counted wrong"
        );
        self.book.check();
        // The next ordered message of the channel names this one as the message before it.
        let is_newest = |(channel, id): (&ChannelId, &u64)| {
            sent_ref(&self.sent, self.base, *id)
                .is_some_and(|sent| sent.channel == *channel && sent.state != MessageState::Acknowledged)
        };
        debug_assert!(self.newest.iter().all(is_newest), "a channel waits for a message that has arrived");
        let missing = self.sent.iter().filter(|sent| sent.state != MessageState::Acknowledged);
        missing.map(|sent| charge(sent.payload.len())).sum()
    }
}
