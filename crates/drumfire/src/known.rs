//! What is known of a peer where the application sends: whether a message can be taken, which receipts are open, which groups
//! it is in.
//!
//! It answers at once and does no I/O: what it takes goes to the peer's worker.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use drumfire_proto::{ChannelId, PlayerId, ReceiptId, SendError, SendOptions, WhenFull};

use crate::admission::Ban;
use crate::credit::Credit;
use crate::groups::{GROUPS_PER_PEER_MAX, GroupError, GroupId};

/// What is known of a peer.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) credit: Arc<Credit>,
    receipts_drawn: u64,
    /// Receipts that no event has answered.
    open: BTreeSet<ReceiptId>,
    /// Of channels whose messages do not wait.
    when_full: BTreeMap<ChannelId, WhenFull>,
    groups: BTreeSet<GroupId>,
    /// What would keep a server's client out.
    pub(crate) ban: Option<Ban>,
}

impl Known {
    pub(crate) const fn new(credit: Arc<Credit>) -> Self {
        Self {
            credit,
            receipts_drawn: 0,
            open: BTreeSet::new(),
            when_full: BTreeMap::new(),
            groups: BTreeSet::new(),
            ban: None,
        }
    }

    /// A server's client.
    pub(crate) fn of_client(credit: Arc<Credit>, player: Option<PlayerId>, address: SocketAddr) -> Self {
        let ban = player.map_or(Ban::Address(address.ip()), Ban::Player);
        Self { ban: Some(ban), ..Self::new(credit) }
    }

    /// Takes room for a message of this many bytes; answers its receipt, if one was asked for.
    pub(crate) fn admit(
        &mut self,
        channel: ChannelId,
        payload_bytes: usize,
        options: &SendOptions,
    ) -> Result<Option<ReceiptId>, SendError> {
        self.credit.admit(payload_bytes, options, self.must_wait(channel))?;
        Ok(if options.wants_receipt { self.draw_receipt() } else { None })
    }

    /// Whether messages of a channel wait for room; others are dropped where there is none.
    pub(crate) fn must_wait(&self, channel: ChannelId) -> bool {
        self.when_full.get(&channel).is_none_or(|when_full| *when_full == WhenFull::Block)
    }

    pub(crate) fn set_when_full(&mut self, channel: ChannelId, when_full: WhenFull) {
        if when_full == WhenFull::Block {
            self.when_full.remove(&channel);
        } else {
            self.when_full.insert(channel, when_full);
        }
    }

    /// The receipt was answered.
    pub(crate) fn answered(&mut self, receipt: ReceiptId) {
        self.open.remove(&receipt);
    }

    /// Receipts that will never be answered, because the peer is gone.
    pub(crate) fn into_open(self) -> BTreeSet<ReceiptId> {
        self.open
    }

    /// Notes that the peer is in a group; answers whether it was not before.
    pub(crate) fn join(&mut self, group: GroupId) -> Result<bool, GroupError> {
        if self.groups.len() >= GROUPS_PER_PEER_MAX && !self.groups.contains(&group) {
            return Err(GroupError::TooMany);
        }
        Ok(self.groups.insert(group))
    }

    /// Answers whether the peer was in the group.
    pub(crate) fn leave(&mut self, group: GroupId) -> bool {
        self.groups.remove(&group)
    }

    fn draw_receipt(&mut self) -> Option<ReceiptId> {
        self.receipts_drawn += 1;
        let receipt = NonZeroU64::new(self.receipts_drawn).map(ReceiptId);
        self.open.extend(receipt);
        receipt
    }
}
