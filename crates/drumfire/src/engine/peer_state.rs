//! The state of a peer for senders on another thread than its worker: the account of its messages, and its groups.
//!
//! This module does no I/O. The caller hands accepted messages to the peer's worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drumfire_proto::{ChannelId, SendError, SendOptions, WhenFull};

use crate::message::group::{GROUPS_PER_PEER_MAX, GroupId};
use crate::worker::command::Command;
use crate::worker::send_edge::{SendAccount, SendEdge};

/// The state of a connected peer.
#[derive(Debug)]
pub(crate) struct PeerState {
    /// The account of the messages to the peer.
    pub(crate) account: SendAccount,
    /// Boxed, because a server has many peers, and most of them need no extras.
    extras: Option<Box<PeerChannelState>>,
}

/// The state of peers with groups, or with channels whose messages do not wait for room.
#[derive(Debug, Default)]
struct PeerChannelState {
    /// The settings that differ from [`WhenFull::Block`], by channel.
    when_full: BTreeMap<ChannelId, WhenFull>,
    /// The groups that the peer is in.
    groups: BTreeSet<GroupId>,
}

impl PeerState {
    pub(crate) const fn new(edge: Arc<SendEdge>) -> Self {
        Self { account: SendAccount::new(edge), extras: None }
    }

    /// Continues with the send edge of the next attempt of a client that reconnects. Keeps the settings of channels.
    #[cfg(feature = "tokio")]
    pub(crate) fn reconnect(&mut self, edge: Arc<SendEdge>) {
        self.account = SendAccount::new(edge);
        if let Some(extras) = &mut self.extras {
            extras.groups.clear();
        }
    }

    /// Counts a message if there is room for it.
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
        let must_wait = self.must_wait(channel);
        self.account.admit_or_register(payload_bytes, options, must_wait)
    }

    /// Whether messages of a channel are refused when there is no room. Otherwise the worker applies the [`WhenFull`] of the
    /// channel.
    pub(crate) fn must_wait(&self, channel: ChannelId) -> bool {
        let own = self.extras.as_ref().and_then(|extras| extras.when_full.get(&channel));
        own.is_none_or(|when_full| *when_full == WhenFull::Block)
    }

    /// Updates the state for a command of the application. Returns whether the worker must carry the command out too.
    pub(crate) fn apply(&mut self, command: &Command) -> bool {
        match command {
            Command::Options { channel, options, .. } => self.set_when_full(*channel, options.when_full),
            Command::Leave { group, .. } => {
                return self.extras.as_mut().is_some_and(|extras| extras.groups.remove(group));
            }
            Command::Close { .. } if self.account.is_closed() => return false,
            Command::Close { .. } => self.account.close(),
            _ => {}
        }
        true
    }

    /// Sets how messages of a channel are treated when there is no room.
    fn set_when_full(&mut self, channel: ChannelId, when_full: WhenFull) {
        if when_full != WhenFull::Block {
            self.extras().when_full.insert(channel, when_full);
        } else if let Some(extras) = &mut self.extras {
            extras.when_full.remove(&channel);
        }
    }

    /// Adds the peer to a group. Returns whether the peer is a new member, or `None` if it is in too many groups.
    pub(crate) fn join(&mut self, group: GroupId) -> Option<bool> {
        let groups = &mut self.extras().groups;
        let has_room = groups.len() < GROUPS_PER_PEER_MAX || groups.contains(&group);
        has_room.then(|| groups.insert(group))
    }

    fn extras(&mut self) -> &mut PeerChannelState {
        self.extras.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_peer_takes_24_bytes() {
        assert_eq!(size_of::<PeerState>(), 24);
    }
}
