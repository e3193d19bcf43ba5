//! What is known of a peer where the application sends: whether a message can be taken, which receipts are open, which groups
//! it is in.
//!
//! It does no I/O: the messages that it accepts go to the peer's worker.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use drumfire_proto::{ChannelId, ReceiptId, SendError, SendOptions, WhenFull};

use crate::message::group::{GROUPS_PER_PEER_MAX, GroupId};
use crate::worker::credit::Credit;

/// What is known of a peer.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) credit: Arc<Credit>,
    /// Most peers need none of it, and a server has many.
    extras: Option<Box<Extras>>,
}

/// What is kept of peers that are sent messages with receipts, or that have channels or groups of their own.
#[derive(Debug, Default)]
struct Extras {
    receipts_drawn: u64,
    /// Receipts that no event has answered.
    open: BTreeSet<ReceiptId>,
    /// Of channels whose messages do not wait.
    when_full: BTreeMap<ChannelId, WhenFull>,
    groups: BTreeSet<GroupId>,
}

impl Known {
    pub(crate) const fn new(credit: Arc<Credit>) -> Self {
        Self { credit, extras: None }
    }

    /// Takes room for a message. A sender that is refused for lack of room is notified when there is some.
    pub(crate) fn admit(
        &mut self,
        channel: ChannelId,
        payload_bytes: usize,
        options: &SendOptions,
    ) -> Result<(), SendError> {
        self.credit.admit_or_ask(payload_bytes, options, self.must_wait(channel))
    }

    /// Whether messages of a channel wait for room; others are dropped where there is none.
    pub(crate) fn must_wait(&self, channel: ChannelId) -> bool {
        let own = self.extras.as_ref().and_then(|extras| extras.when_full.get(&channel));
        own.is_none_or(|when_full| *when_full == WhenFull::Block)
    }

    pub(crate) fn set_when_full(&mut self, channel: ChannelId, when_full: WhenFull) {
        if when_full != WhenFull::Block {
            self.extras().when_full.insert(channel, when_full);
        } else if let Some(extras) = &mut self.extras {
            extras.when_full.remove(&channel);
        }
    }

    /// The receipt was answered.
    pub(crate) fn answered(&mut self, receipt: ReceiptId) {
        if let Some(extras) = &mut self.extras {
            extras.open.remove(&receipt);
        }
    }

    /// Receipts that will never be answered, because the peer is gone.
    pub(crate) fn into_open(self) -> BTreeSet<ReceiptId> {
        self.extras.map(|extras| extras.open).unwrap_or_default()
    }

    /// Adds the peer to a group. Returns whether it was not a member before, or `None` when it is in too many groups.
    pub(crate) fn join(&mut self, group: GroupId) -> Option<bool> {
        let groups = &mut self.extras().groups;
        let has_room = groups.len() < GROUPS_PER_PEER_MAX || groups.contains(&group);
        has_room.then(|| groups.insert(group))
    }

    /// Answers whether the peer was in the group.
    pub(crate) fn leave(&mut self, group: GroupId) -> bool {
        self.extras.as_mut().is_some_and(|extras| extras.groups.remove(&group))
    }

    /// Returns a new receipt, which counts as open from now on.
    pub(crate) fn draw_receipt(&mut self) -> ReceiptId {
        let extras = self.extras();
        extras.receipts_drawn = extras.receipts_drawn.saturating_add(1);
        let receipt = ReceiptId(NonZeroU64::MIN.saturating_add(extras.receipts_drawn - 1));
        extras.open.insert(receipt);
        receipt
    }

    fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_takes_16_bytes_of_the_table() {
        assert_eq!(size_of::<Known>(), 16);
    }
}
