//! Broadcasts on their way to one audience.
//!
//! Consecutive broadcasts are sent receiver by receiver and not message by message. Each connection's memory is then
//! fetched once for all messages, and not once for each. The receivers see no difference, because nothing else is done
//! in between.

use drumfire_proto::{Message, PeerId};

use super::command::Broadcast;
use crate::message::group::GroupId;

/// The largest number of broadcasts that are sent together.
const TOGETHER_MAX: usize = 256;

/// The bytes of payloads with which broadcasts do not wait for more.
const TOGETHER_BYTES: usize = 256 * 1_024;

/// Broadcasts to one audience that no receiver was given yet. After a panic, the first receivers have them already.
#[derive(Debug, Default)]
pub(super) struct FanOut {
    /// The group of all broadcasts, or `None` for all peers.
    group: Option<GroupId>,
    broadcasts: Vec<Broadcast>,
    payload_bytes: usize,
    /// The position of the next receiver, among the members of the group or the slots of all peers.
    next: usize,
}

impl FanOut {
    /// Whether this broadcast may be sent together with those that are here.
    pub(super) fn may_take(&self, broadcast: &Broadcast) -> bool {
        // The excluded peer is not compared, because `to` checks it for each broadcast and each receiver.
        self.broadcasts.is_empty()
            || self.broadcasts.len() < TOGETHER_MAX
                && self.payload_bytes < TOGETHER_BYTES
                && self.group == broadcast.audience.group
    }

    pub(super) fn push(&mut self, broadcast: Broadcast) {
        // The caller has asked `may_take`, so all broadcasts in the list have this group.
        self.group = broadcast.audience.group;
        self.payload_bytes = self.payload_bytes.saturating_add(broadcast.message.payload.len());
        self.broadcasts.push(broadcast);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.broadcasts.is_empty()
    }

    /// The group of the broadcasts, or `Some(None)` for all peers. `None` when there are no broadcasts.
    pub(super) fn audience(&self) -> Option<Option<GroupId>> {
        (!self.is_empty()).then_some(self.group)
    }

    /// Returns the first receiver that `find` returns from the next position on. It counts as reached from now on: a
    /// panic in its code keeps nothing from the others.
    pub(super) fn next_of(&mut self, find: impl FnOnce(usize) -> Option<(usize, PeerId)>) -> Option<PeerId> {
        let (at, receiver) = find(self.next)?;
        self.next = at + 1;
        Some(receiver)
    }

    /// The messages to this receiver, in order.
    pub(super) fn to(&self, receiver: PeerId) -> impl Iterator<Item = &Message> {
        let is_meant = move |broadcast: &&Broadcast| broadcast.audience.except != Some(receiver);
        self.broadcasts.iter().filter(is_meant).map(|broadcast| &broadcast.message)
    }

    /// All receivers have all messages.
    pub(super) fn clear(&mut self) {
        // The list keeps its capacity for the broadcasts of the next tick.
        self.broadcasts.clear();
        (self.payload_bytes, self.next) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use drumfire_proto::ChannelId;

    use super::*;
    use crate::message::group::Audience;

    fn broadcast(audience: Audience, bytes: usize) -> Broadcast {
        Broadcast { audience, message: Message::reliable_ordered(ChannelId(0), vec![0; bytes]) }
    }

    fn to_group(group: u64, bytes: usize) -> Broadcast {
        broadcast(Audience::group(GroupId(group)), bytes)
    }

    #[test]
    fn broadcasts_that_go_together_have_one_audience_and_a_bound() {
        let mut fan_out = FanOut::default();
        assert!(fan_out.audience().is_none() && fan_out.may_take(&to_group(1, 0)));
        for _ in 0..TOGETHER_MAX {
            assert!(fan_out.may_take(&to_group(1, 0)));
            fan_out.push(to_group(1, 0));
            assert!(!fan_out.may_take(&to_group(2, 0)) && !fan_out.may_take(&broadcast(Audience::ALL, 0)));
        }
        assert!(!fan_out.may_take(&to_group(1, 0)));
        fan_out.clear();
        fan_out.push(broadcast(Audience::ALL, TOGETHER_BYTES - 1));
        assert!(fan_out.may_take(&broadcast(Audience::ALL, 60_000)) && !fan_out.may_take(&to_group(1, 0)));
        assert_eq!(fan_out.audience(), Some(None));
        fan_out.push(broadcast(Audience::ALL, 1));
        assert!(!fan_out.may_take(&broadcast(Audience::ALL, 0)));
        fan_out.clear();
        assert!(fan_out.audience().is_none() && fan_out.may_take(&to_group(1, 0)));
    }

    #[test]
    fn a_receiver_is_reached_once_and_none_is_left_out() {
        let members: [PeerId; 3] = ["0.0.0", "0.1.0", "0.2.0"].map(|id| id.parse().unwrap());
        let mut fan_out = FanOut::default();
        let next = |fan_out: &mut FanOut| fan_out.next_of(|at| members.get(at).map(|id| (at, *id)));
        let lengths = |fan_out: &FanOut, member| -> Vec<usize> {
            fan_out.to(member).map(|message| message.payload.len()).collect()
        };
        fan_out.push(to_group(1, 1));
        fan_out.push(broadcast(Audience::group(GroupId(1)).except(members[1]), 2));
        assert_eq!(next(&mut fan_out), Some(members[0]));
        assert_eq!(lengths(&fan_out, members[0]), [1, 2]);
        // Even if the code of the first receiver panics, the next call goes on behind it.
        assert_eq!(next(&mut fan_out), Some(members[1]));
        assert_eq!(lengths(&fan_out, members[1]), [1]);
        assert_eq!(next(&mut fan_out), Some(members[2]));
        assert_eq!(next(&mut fan_out), None);
        fan_out.clear();
        fan_out.push(to_group(1, 0));
        assert_eq!(next(&mut fan_out), Some(members[0]), "it starts with the first again");
    }
}
