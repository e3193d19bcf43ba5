//! Broadcasts on their way to one audience.
//!
//! Consecutive broadcasts are sent receiver by receiver and not message by message. Each connection's memory is then
//! fetched once for all messages, and not once for each. The receivers see no difference, because nothing else is done
//! in between.
//!
//! Consecutive broadcasts with the same channel and options are one block: they are encoded once, and the receivers share the
//! memory. A receiver that is excluded from some of them gets the ranges between these.

pub(super) mod block_pool;

use std::ops::Range;
use std::sync::Arc;

use drumfire_proto::{
    BlockOptions, ChannelId, Endpoint, IfFull, Message, MessageBlock, Now, PeerId, Placement, SendError,
};

use self::block_pool::BlockPool;
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
    /// The messages in the order of the calls.
    parts: Vec<FanOutPart>,
    /// The number of messages in `parts`.
    count: usize,
    payload_bytes: usize,
    /// The excluded receivers of messages, each with the number of the message. [`FanOut::sort`] sorts them.
    exclusions: Vec<(PeerId, usize)>,
    /// The position of the next receiver, among the members of the group or the slots of all peers.
    next: usize,
    pub(super) blocks: BlockPool,
}

/// One or several messages that are sent to a receiver with one call.
#[derive(Debug)]
pub(super) enum FanOutPart {
    /// A message that each receiver queues for itself.
    Single(Message),
    /// Messages that all receivers share.
    Block(BlockOptions, Arc<MessageBlock>),
}

impl FanOutPart {
    fn len(&self) -> usize {
        match self {
            Self::Single(_) => 1,
            Self::Block(_, block) => block.len(),
        }
    }

    /// The channel of all messages.
    pub(super) const fn channel(&self) -> ChannelId {
        match self {
            Self::Single(message) => message.channel,
            Self::Block(options, _) => options.channel,
        }
    }

    /// Sends the messages `range` to a receiver. Returns how many from the front of the range were accepted. There was no room for
    /// the next message, or the receiver accepts only shorter ones.
    pub(super) fn send<P: Placement>(
        &self,
        endpoint: &mut Endpoint<P>,
        now: Now,
        receiver: PeerId,
        range: Range<usize>,
    ) -> Result<usize, SendError> {
        match self {
            Self::Single(message) => {
                match endpoint.send_with(now, receiver, message.clone(), None, IfFull::Refuse) {
                    Err(SendError::Full | SendError::TooLarge { .. }) => Ok(0),
                    sent => sent.map(|()| 1),
                }
            }
            Self::Block(options, block) => endpoint.send_block(now, receiver, options, block, range),
        }
    }
}

impl FanOut {
    /// Whether this broadcast may be sent together with those that are here.
    pub(super) fn may_take(&self, broadcast: &Broadcast) -> bool {
        // The excluded peer is not compared, because `each_part` checks it for each broadcast and each receiver. After a panic,
        // the first receivers would never get another broadcast.
        self.parts.is_empty()
            || self.next == 0
                && self.count < TOGETHER_MAX
                && self.payload_bytes < TOGETHER_BYTES
                && self.group == broadcast.audience.group
    }

    pub(super) fn push(&mut self, broadcast: &Broadcast) {
        let Broadcast { audience, message } = broadcast;
        // The caller has asked `may_take`, so all broadcasts in the list have this group.
        self.group = audience.group;
        // `append` can drop a payload of the application, whose code may panic. The numbers of messages are right even then.
        self.exclusions.extend(audience.except.map(|peer| (peer, self.count)));
        self.count += 1;
        self.payload_bytes = self.payload_bytes.saturating_add(message.payload.len());
        if !self.append(message) {
            self.parts.push(FanOutPart::Single(message.clone()));
        }
    }

    /// Adds a message to the last part, if both may be in one block.
    fn append(&mut self, message: &Message) -> bool {
        let Some(last) = self.parts.last_mut().filter(|_| MessageBlock::can_hold(message)) else {
            return false;
        };
        match last {
            FanOutPart::Block(options, block) => {
                // Receivers share the block later. Until then, this is the only reference.
                *options == BlockOptions::from(message)
                    && Arc::get_mut(block).is_some_and(|block| block.push(&message.payload))
            }
            FanOutPart::Single(first) => {
                let options = BlockOptions::from(&*first);
                // A single message gains nothing from a block, so a block begins with the second one.
                if options != BlockOptions::from(message) || !MessageBlock::can_hold(first) {
                    return false;
                }
                let Some(block) = self.blocks.open([&first.payload, &message.payload]) else { return false };
                *last = FanOutPart::Block(options, block);
                true
            }
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The group of the broadcasts, or `Some(None)` for all peers. `None` when there are no broadcasts.
    pub(super) fn audience(&self) -> Option<Option<GroupId>> {
        (!self.is_empty()).then_some(self.group)
    }

    /// Prepares [`FanOut::each_part`], after the last broadcast and before the first receiver.
    pub(super) fn sort(&mut self) {
        self.exclusions.sort_unstable();
    }

    /// Returns the first receiver that `find` returns from the next position on. It counts as reached from now on: a
    /// panic in its code keeps nothing from the others.
    pub(super) fn next_of(&mut self, find: impl FnOnce(usize) -> Option<(usize, PeerId)>) -> Option<PeerId> {
        let (at, receiver) = find(self.next)?;
        self.next = at + 1;
        Some(receiver)
    }

    /// Calls `send` with the messages to this receiver, in order: with each part, and the range of its messages.
    pub(super) fn each_part(&self, receiver: PeerId, mut send: impl FnMut(&FanOutPart, Range<usize>)) {
        let from = self.exclusions.partition_point(|(peer, _)| *peer < receiver);
        let own = self.exclusions.iter().skip(from).take_while(|(peer, _)| *peer == receiver);
        let mut excluded = own.map(|(_, number)| *number).peekable();
        let mut first = 0;
        for part in &self.parts {
            let end = first + part.len();
            let mut start = first;
            while start < end {
                // The number of an excluded message ends a range, and the next range begins behind it.
                let stop = excluded.next_if(|number| *number < end).unwrap_or(end);
                if start < stop {
                    send(part, start - first..stop - first);
                }
                start = stop + 1;
            }
            first = end;
        }
    }

    /// All receivers have all messages.
    pub(super) fn clear(&mut self) {
        for part in &self.parts {
            if let FanOutPart::Block(_, block) = part {
                self.blocks.close(Arc::clone(block));
            }
        }
        (self.count, self.payload_bytes, self.next) = (0, 0, 0);
        // The lists keep their capacity for the broadcasts of the next tick. The payloads are dropped last, because that runs code of
        // the application, which may panic.
        self.exclusions.clear();
        self.parts.clear();
    }
}

#[cfg(test)]
mod tests {
    use drumfire_proto::Priority;

    use super::*;
    use crate::message::group::Audience;

    fn broadcast(audience: Audience, bytes: usize) -> Broadcast {
        Broadcast { audience, message: Message::reliable_ordered(ChannelId(0), vec![0; bytes]) }
    }

    fn to_group(group: u64, bytes: usize) -> Broadcast {
        broadcast(Audience::group(GroupId(group)), bytes)
    }

    /// The lengths of the messages to a receiver: one list for each call.
    fn lengths(fan_out: &mut FanOut, receiver: PeerId) -> Vec<Vec<usize>> {
        let mut lengths = Vec::new();
        fan_out.sort();
        fan_out.each_part(receiver, |part, range| {
            lengths.push(match part {
                FanOutPart::Single(message) => vec![message.payload.len()],
                FanOutPart::Block(_, block) => range.map(|index| block.payload(index).len()).collect(),
            });
        });
        lengths
    }

    fn peers() -> [PeerId; 3] {
        ["0.0.0", "0.1.0", "0.2.0"].map(|id| id.parse().unwrap())
    }

    #[test]
    fn broadcasts_that_go_together_have_one_audience_and_a_bound() {
        let mut fan_out = FanOut::default();
        assert!(fan_out.audience().is_none() && fan_out.may_take(&to_group(1, 0)));
        for _ in 0..TOGETHER_MAX {
            assert!(fan_out.may_take(&to_group(1, 0)));
            fan_out.push(&to_group(1, 0));
            assert!(!fan_out.may_take(&to_group(2, 0)) && !fan_out.may_take(&broadcast(Audience::ALL, 0)));
        }
        assert!(!fan_out.may_take(&to_group(1, 0)));
        fan_out.clear();
        fan_out.push(&broadcast(Audience::ALL, TOGETHER_BYTES - 1));
        assert!(fan_out.may_take(&broadcast(Audience::ALL, 60_000)) && !fan_out.may_take(&to_group(1, 0)));
        assert_eq!(fan_out.audience(), Some(None));
        fan_out.push(&broadcast(Audience::ALL, 1));
        assert!(!fan_out.may_take(&broadcast(Audience::ALL, 0)));
        fan_out.clear();
        assert!(fan_out.audience().is_none() && fan_out.may_take(&to_group(1, 0)));
    }

    #[test]
    fn a_receiver_is_reached_once_and_none_is_left_out() {
        let (members, mut fan_out) = (peers(), FanOut::default());
        let next = |fan_out: &mut FanOut| fan_out.next_of(|at| members.get(at).map(|id| (at, *id)));
        fan_out.push(&to_group(1, 1));
        fan_out.push(&broadcast(Audience::group(GroupId(1)).except(members[1]), 2));
        assert_eq!(next(&mut fan_out), Some(members[0]));
        assert_eq!(lengths(&mut fan_out, members[0]), [[1, 2]]);
        // Even if the code of the first receiver panics, the next call goes on behind it, and no other broadcast joins.
        assert!(!fan_out.may_take(&to_group(1, 0)));
        assert_eq!(next(&mut fan_out), Some(members[1]));
        assert_eq!(lengths(&mut fan_out, members[1]), [[1]]);
        assert_eq!(next(&mut fan_out), Some(members[2]));
        assert_eq!(next(&mut fan_out), None);
        fan_out.clear();
        fan_out.push(&to_group(1, 0));
        assert_eq!(next(&mut fan_out), Some(members[0]), "a new broadcast begins with the first member");
    }

    #[test]
    fn only_neighbors_with_the_same_options_share_a_block() {
        let mut fan_out = FanOut::default();
        let message = |channel, bytes| Message::reliable_ordered(ChannelId(channel), vec![0; bytes]);
        for message in [
            message(1, 1),
            message(1, 2),
            message(1, 3),
            message(2, 4),
            message(1, 5),
            message(1, 6).priority(Priority::Low),
            message(1, 7).priority(Priority::Low),
            message(1, 5_000),
            message(1, 8),
            message(1, 9),
            Message::reliable_latest(ChannelId(1), 7, vec![0; 10]),
            Message::reliable_latest(ChannelId(1), 7, vec![0; 11]),
        ] {
            fan_out.push(&Broadcast { audience: Audience::ALL, message });
        }
        let parts =
            [vec![1, 2, 3], vec![4], vec![5], vec![6, 7], vec![5_000], vec![8, 9], vec![10], vec![11]];
        assert_eq!(lengths(&mut fan_out, peers()[0]), parts);
        // A full block is followed by another one.
        fan_out.clear();
        (0..40).for_each(|_| fan_out.push(&to_group(1, 1_000)));
        let counts: Vec<_> = lengths(&mut fan_out, peers()[0]).iter().map(Vec::len).collect();
        assert_eq!(counts, [16, 16, 8]);
        // Without memory for another block, the messages stay single.
        let mut fan_out =
            FanOut { blocks: BlockPool::new(MessageBlock::MEMORY_MAX_BYTES), ..FanOut::default() };
        (0..20).for_each(|_| fan_out.push(&to_group(1, 1_000)));
        let counts: Vec<_> = lengths(&mut fan_out, peers()[0]).iter().map(Vec::len).collect();
        assert_eq!(counts, [16, 1, 1, 1, 1]);
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_leaves_nothing_behind() {
        /// The memory of a payload.
        struct Trap;

        impl AsRef<[u8]> for Trap {
            fn as_ref(&self) -> &[u8] {
                b"trap"
            }
        }

        impl Drop for Trap {
            fn drop(&mut self) {
                assert!(std::thread::panicking(), "the application panics on purpose");
            }
        }

        let ([one, other, _], mut fan_out) = (peers(), FanOut::default());
        let is_panic =
            |act: &mut dyn FnMut()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err();
        let trap = |channel| Broadcast {
            audience: Audience::ALL,
            message: Message::reliable_ordered(ChannelId(channel), bytes::Bytes::from_owner(Trap)),
        };
        // The payload is dropped when a second message begins a block, and that one is excluded for one receiver.
        fan_out.push(&trap(0));
        assert!(is_panic(&mut || fan_out.push(&broadcast(Audience::ALL.except(one), 2))));
        assert_eq!(lengths(&mut fan_out, one), [[4]]);
        assert_eq!(lengths(&mut fan_out, other), [[4, 2]]);
        // Another one is dropped when all receivers have it.
        fan_out.push(&trap(1));
        assert!(fan_out.next_of(|at| Some((at, one))).is_some() && is_panic(&mut || fan_out.clear()));
        assert!(fan_out.is_empty() && fan_out.may_take(&to_group(1, 0)));
        fan_out.push(&to_group(1, 1));
        assert_eq!((lengths(&mut fan_out, one), fan_out.next), (vec![vec![1]], 0));
        fan_out.blocks.reclaim();
        assert_eq!(fan_out.blocks.held_bytes(), 0);
    }

    #[test]
    fn each_exclusion_splits_a_range() {
        let ([one, other, third], mut fan_out) = (peers(), FanOut::default());
        let exclusions = [Some(one), None, Some(other), Some(one), Some(one), None, Some(other), Some(one)];
        for (bytes, except) in exclusions.into_iter().enumerate() {
            let audience = except.map_or(Audience::ALL, |peer| Audience::ALL.except(peer));
            fan_out.push(&broadcast(audience, bytes));
        }
        // A message of its own has exclusions too.
        for except in [one, third] {
            fan_out.push(&broadcast(Audience::ALL.except(except), 5_000));
        }
        assert_eq!(lengths(&mut fan_out, one), [vec![1, 2], vec![5, 6], vec![5_000]]);
        assert_eq!(
            lengths(&mut fan_out, other),
            [vec![0, 1], vec![3, 4, 5], vec![7], vec![5_000], vec![5_000]]
        );
        assert_eq!(lengths(&mut fan_out, third), [(0..8).collect(), vec![5_000]]);
    }
}
