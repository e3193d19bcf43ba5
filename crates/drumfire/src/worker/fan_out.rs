//! Broadcasts on their way to the members of one group.
//!
//! What is broadcast in a row goes out member by member and not message by message: then each connection's memory is fetched
//! once for all of them, and not once for each. To a member it makes no difference, for nothing else is done in between.

use drumfire_proto::PeerId;

use super::backlog::Message;
use super::command::Broadcast;
use crate::message::group::GroupId;

/// Broadcasts that go out together, at most.
const TOGETHER_MAX: usize = 256;

/// Bytes of messages with which no more is waited for.
const TOGETHER_BYTES: usize = 256 * 1_024;

/// A message, and the member of this worker that is left out.
#[derive(Debug)]
struct Outgoing {
    message: Message,
    except: Option<PeerId>,
}

/// Broadcasts to one group that no member was given yet, but for the first members when a panic came in between.
#[derive(Debug, Default)]
pub(super) struct FanOut {
    group: Option<GroupId>,
    outgoing: Vec<Outgoing>,
    payload_bytes: usize,
    members_reached: usize,
}

impl FanOut {
    /// Whether this one may go with those that are here.
    pub(super) fn may_take(&self, broadcast: &Broadcast) -> bool {
        self.outgoing.len() < TOGETHER_MAX
            && self.payload_bytes < TOGETHER_BYTES
            && self.group.is_none_or(|group| group == broadcast.group)
    }

    pub(super) fn push(&mut self, broadcast: &Broadcast) {
        let Broadcast { group, except, channel, ref bytes, options } = *broadcast;
        self.group = Some(group);
        self.payload_bytes = self.payload_bytes.saturating_add(bytes.len());
        let message = Message { channel, bytes: bytes.clone(), options, receipt: None };
        self.outgoing.push(Outgoing { message, except });
    }

    /// Whose members they are for, if there are any.
    pub(super) const fn group(&self) -> Option<GroupId> {
        self.group
    }

    /// The next member, which counts as reached from now on: a panic in its code keeps nothing from the others.
    pub(super) fn next_member(&mut self, members: &[PeerId]) -> Option<PeerId> {
        let member = members.get(self.members_reached).copied()?;
        self.members_reached += 1;
        Some(member)
    }

    /// What goes to this member, in order.
    pub(super) fn to(&self, member: PeerId) -> impl Iterator<Item = &Message> {
        let meant = move |outgoing: &&Outgoing| outgoing.except != Some(member);
        self.outgoing.iter().filter(meant).map(|outgoing| &outgoing.message)
    }

    /// All members have all of it.
    pub(super) fn clear(&mut self) {
        self.group = None;
        self.outgoing.clear();
        (self.payload_bytes, self.members_reached) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use drumfire_proto::{ChannelId, SendOptions};

    use super::*;

    fn broadcast(group: u64, bytes: usize) -> Broadcast {
        let options = SendOptions::reliable_ordered();
        Broadcast {
            group: GroupId(group),
            except: None,
            channel: ChannelId(0),
            bytes: vec![0; bytes].into(),
            options,
        }
    }

    #[test]
    fn what_goes_out_together_is_for_one_group_and_bounded() {
        let mut fan_out = FanOut::default();
        assert!(fan_out.group().is_none() && fan_out.may_take(&broadcast(1, 0)));
        for _ in 0..TOGETHER_MAX {
            assert!(fan_out.may_take(&broadcast(1, 0)));
            fan_out.push(&broadcast(1, 0));
            assert!(!fan_out.may_take(&broadcast(2, 0)));
        }
        assert!(!fan_out.may_take(&broadcast(1, 0)));
        fan_out.clear();
        fan_out.push(&broadcast(2, TOGETHER_BYTES - 1));
        assert!(fan_out.may_take(&broadcast(2, 60_000)));
        fan_out.push(&broadcast(2, 1));
        assert!(!fan_out.may_take(&broadcast(2, 0)));
        fan_out.clear();
        assert!(fan_out.group().is_none() && fan_out.may_take(&broadcast(1, 0)));
    }

    #[test]
    fn a_member_at_whom_it_broke_off_is_not_met_again_and_none_is_left_out() {
        let members = ["0.0.0", "0.1.0", "0.2.0"].map(|id| id.parse().unwrap());
        let mut fan_out = FanOut::default();
        fan_out.push(&broadcast(1, 1));
        fan_out.push(&Broadcast { except: Some(members[1]), ..broadcast(1, 2) });
        assert_eq!(fan_out.next_member(&members), Some(members[0]));
        assert_eq!(fan_out.to(members[0]).map(|one| one.bytes.len()).collect::<Vec<_>>(), [1, 2]);
        // Whatever became of the first, the next call goes on behind it.
        assert_eq!(fan_out.next_member(&members), Some(members[1]));
        assert_eq!(
            fan_out.to(members[1]).map(|one| one.bytes.clone()).collect::<Vec<_>>(),
            [Bytes::from(vec![0])]
        );
        assert_eq!(fan_out.next_member(&members), Some(members[2]));
        assert_eq!(fan_out.next_member(&members), None);
        fan_out.clear();
        fan_out.push(&broadcast(1, 0));
        assert_eq!(fan_out.next_member(&members), Some(members[0]), "from the first again");
    }
}
