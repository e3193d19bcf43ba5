//! Reliable messages until they are acknowledged: waiting, under way, or lost and to be sent again.
//!
//! Ids are given at first transmission (PROTOCOL, "Messages"). How much memory they may take is not decided here.

use std::collections::{HashMap, VecDeque};

use bytes::{BufMut, Bytes};
use drumfire_wire::{ChannelId, Delivery, FrameWriter, Message, MessageId};

use super::{Filled, Waiting};
use crate::ids::FoldBuild;
use crate::limits::MESSAGE_IDS_AHEAD;

/// The reliable messages of one connection.
#[derive(Debug)]
pub(super) struct Reliable {
    waiting: VecDeque<Waiting>,
    /// Those that were sent, by id from `base` on.
    sent: VecDeque<Sent>,
    /// The smallest id not yet acknowledged.
    base: u64,
    lost: VecDeque<u64>,
    /// Per channel with something under way, the newest unacknowledged id.
    newest: HashMap<ChannelId, u64, FoldBuild>,
}

#[derive(Debug)]
struct Sent {
    channel: ChannelId,
    payload: Bytes,
    /// The id of the channel's message before, the newest unacknowledged one when last looked at.
    previous: Option<u64>,
    /// The packet that carried it last.
    packet: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    Lost,
    Acknowledged,
}

impl Reliable {
    /// None yet; the first gets this id.
    pub(super) fn new(next_id: u64) -> Self {
        Self {
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            base: next_id,
            lost: VecDeque::new(),
            newest: HashMap::with_hasher(FoldBuild::new(0)),
        }
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// Whether a packet could take something.
    pub(super) fn has_sendable(&self) -> bool {
        !self.lost.is_empty() || self.next_stamp().is_some()
    }

    /// When none is left, the id of the next.
    pub(super) fn next_id_when_empty(&self) -> Option<u64> {
        (self.waiting.is_empty() && self.sent.is_empty()).then_some(self.base)
    }

    /// The stamp of the one that is sent for the first time next.
    ///
    /// The receiver refuses ids too far beyond what it misses, which is never below what is unacknowledged.
    pub(super) fn next_stamp(&self) -> Option<u64> {
        let may_give_id = u64::try_from(self.sent.len()).is_ok_and(|under_way| under_way < MESSAGE_IDS_AHEAD);
        self.waiting.front().filter(|_| may_give_id).map(|waiting| waiting.stamp)
    }

    /// A packet with this message is lost.
    pub(super) fn on_lost(&mut self, id: u64, packet: u64) {
        // A copy in a later packet is still under way.
        if sent_ref(&self.sent, self.base, id).is_some_and(|sent| sent.packet == packet) {
            self.repeat(id);
        }
    }

    /// Sends a message again whatever became of it so far, unless it was acknowledged.
    pub(super) fn repeat(&mut self, id: u64) {
        if let Some(sent) = sent_mut(&mut self.sent, self.base, id)
            && sent.state == State::UnderWay
        {
            sent.state = State::Lost;
            self.lost.push_back(id);
        }
    }

    /// Writes lost messages, oldest first; false when one did not fit.
    pub(super) fn write_lost<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut Filled,
    ) -> bool {
        while let Some(&id) = self.lost.front() {
            let still_lost = sent_ref(&self.sent, self.base, id)
                .filter(|sent| sent.state == State::Lost)
                .map(|sent| sent.previous);
            if let Some(previous) = still_lost {
                if !self.write_again(number, writer, id, previous) {
                    return false;
                }
                carry(MessageId(id));
                filled.add(true, true);
            }
            self.lost.pop_front();
        }
        true
    }

    fn write_again<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        id: u64,
        previous: Option<u64>,
    ) -> bool {
        let after = self.newest_unacknowledged(previous);
        let Some(sent) = sent_mut(&mut self.sent, self.base, id) else { return true };
        sent.previous = after;
        let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) };
        if writer.message(&Message { channel: sent.channel, delivery, payload: &sent.payload }).is_err() {
            return false;
        }
        sent.state = State::UnderWay;
        sent.packet = number;
        true
    }

    /// Writes the one that waits longest for the first time; false when there is none or it does not fit.
    pub(super) fn write_waiting<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut Filled,
    ) -> bool {
        let Some(Waiting { channel, payload, .. }) = self.waiting.front() else { return false };
        let under_way = u64::try_from(self.sent.len()).unwrap_or(u64::MAX);
        let id = self.base.saturating_add(under_way);
        let previous = self.newest.get(channel).copied();
        let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: previous.map(MessageId) };
        if writer.message(&Message { channel: *channel, delivery, payload }).is_err() {
            return false;
        }
        self.newest.insert(*channel, id);
        if let Some(Waiting { channel, payload, .. }) = self.waiting.pop_front() {
            self.sent.push_back(Sent { channel, payload, previous, packet: number, state: State::UnderWay });
        }
        carry(MessageId(id));
        filled.add(true, false);
        true
    }

    /// A message arrived; answers how long it was, the first time.
    pub(super) fn acknowledge(&mut self, id: u64) -> Option<usize> {
        let sent = sent_mut(&mut self.sent, self.base, id)?;
        if sent.state == State::Acknowledged {
            return None;
        }
        sent.state = State::Acknowledged;
        let payload = std::mem::take(&mut sent.payload);
        let (channel, previous) = (sent.channel, sent.previous);
        if self.newest.get(&channel) == Some(&id) {
            match self.newest_unacknowledged(previous) {
                Some(newest) => self.newest.insert(channel, newest),
                None => self.newest.remove(&channel),
            };
        }
        while self.sent.pop_front_if(|sent| sent.state == State::Acknowledged).is_some() {
            self.base = self.base.saturating_add(1);
        }
        // What was acknowledged after all is not sent again, and must not look as if it could be.
        while let Some(&id) = self.lost.front()
            && sent_ref(&self.sent, self.base, id).is_none_or(|sent| sent.state != State::Lost)
        {
            self.lost.pop_front();
        }
        Some(payload.len())
    }

    /// The first of `id` and the messages its channel sent before it that is not acknowledged.
    fn newest_unacknowledged(&self, id: Option<u64>) -> Option<u64> {
        let mut candidate = id;
        while let Some(id) = candidate {
            let sent = sent_ref(&self.sent, self.base, id)?;
            if sent.state != State::Acknowledged {
                return Some(id);
            }
            candidate = sent.previous;
        }
        None
    }

    /// The smallest id not yet acknowledged, and the channels with something under way.
    #[cfg(test)]
    pub(super) fn standing(&self) -> (u64, usize) {
        (self.base, self.newest.len())
    }
}

fn sent_ref(sent: &VecDeque<Sent>, base: u64, id: u64) -> Option<&Sent> {
    sent.get(usize::try_from(id.checked_sub(base)?).ok()?)
}

fn sent_mut(sent: &mut VecDeque<Sent>, base: u64, id: u64) -> Option<&mut Sent> {
    sent.get_mut(usize::try_from(id.checked_sub(base)?).ok()?)
}
