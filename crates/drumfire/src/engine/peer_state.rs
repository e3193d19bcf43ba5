//! The state of a peer on the application's thread: its credit for messages, its open receipts, and its groups.
//!
//! This module does no I/O. The caller hands accepted messages to the peer's worker.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use drumfire_proto::{ChannelId, ReceiptId, SendError, SendOptions, WhenFull};

use crate::message::group::{GROUPS_PER_PEER_MAX, GroupId};
use crate::worker::credit::Credit;

/// The state of a connected peer, or of a client that connects.
#[derive(Debug)]
pub(crate) struct Known {
    /// The memory for messages to the peer, shared with its worker.
    pub(crate) credit: Arc<Credit>,
    /// Boxed, because a server has many peers, and most of them need no extras.
    extras: Option<Box<Extras>>,
}

/// The state of peers with receipts, with groups, or with channels whose messages do not wait for room.
#[derive(Debug, Default)]
struct Extras {
    /// The number of receipts of the peer so far, including open ones.
    receipts_drawn: u64,
    /// The receipts that have no outcome yet.
    open: BTreeSet<ReceiptId>,
    /// The settings that differ from [`WhenFull::Block`], by channel.
    when_full: BTreeMap<ChannelId, WhenFull>,
    /// The groups that the peer is in.
    groups: BTreeSet<GroupId>,
}

impl Known {
    pub(crate) const fn new(credit: Arc<Credit>) -> Self {
        Self { credit, extras: None }
    }

    /// Continues with the credit of the next attempt of a client that reconnects. Keeps the settings of channels, and returns the
    /// open receipts of the connection that ended.
    pub(crate) fn reconnect(&mut self, credit: Arc<Credit>) -> BTreeSet<ReceiptId> {
        self.credit = credit;
        let Some(extras) = &mut self.extras else { return BTreeSet::new() };
        extras.groups.clear();
        std::mem::take(&mut extras.open)
    }

    /// Reserves memory for a message.
    ///
    /// # Errors
    ///
    /// The connection is closed, the message is too long, or there is no room. In the last case, the sender is notified when
    /// there is room again.
    pub(crate) fn admit(
        &mut self,
        channel: ChannelId,
        payload_bytes: usize,
        options: &SendOptions,
    ) -> Result<(), SendError> {
        self.credit.admit_or_ask(payload_bytes, options, self.must_wait(channel))
    }

    /// Whether messages of a channel are refused when there is no room. Otherwise the worker applies the [`WhenFull`] of the
    /// channel.
    pub(crate) fn must_wait(&self, channel: ChannelId) -> bool {
        let own = self.extras.as_ref().and_then(|extras| extras.when_full.get(&channel));
        own.is_none_or(|when_full| *when_full == WhenFull::Block)
    }

    /// Sets how messages of a channel are treated when there is no room.
    pub(crate) fn set_when_full(&mut self, channel: ChannelId, when_full: WhenFull) {
        if when_full != WhenFull::Block {
            self.extras().when_full.insert(channel, when_full);
        } else if let Some(extras) = &mut self.extras {
            extras.when_full.remove(&channel);
        }
    }

    /// Removes a receipt that has its outcome from the open ones.
    pub(crate) fn answered(&mut self, receipt: ReceiptId) {
        if let Some(extras) = &mut self.extras {
            extras.open.remove(&receipt);
        }
    }

    /// Returns the open receipts of a peer that is gone. The worker sends no outcome for them.
    pub(crate) fn into_open(self) -> BTreeSet<ReceiptId> {
        self.extras.map(|extras| extras.open).unwrap_or_default()
    }

    /// Adds the peer to a group. Returns whether the peer is a new member, or `None` if it is in too many groups.
    pub(crate) fn join(&mut self, group: GroupId) -> Option<bool> {
        let groups = &mut self.extras().groups;
        let has_room = groups.len() < GROUPS_PER_PEER_MAX || groups.contains(&group);
        has_room.then(|| groups.insert(group))
    }

    /// Removes the peer from a group. Returns whether it was a member.
    pub(crate) fn leave(&mut self, group: GroupId) -> bool {
        self.extras.as_mut().is_some_and(|extras| extras.groups.remove(&group))
    }

    /// Returns a new receipt, which is open until [`Known::answered`].
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
    fn the_state_of_a_peer_takes_16_bytes() {
        assert_eq!(size_of::<Known>(), 16);
    }
}
