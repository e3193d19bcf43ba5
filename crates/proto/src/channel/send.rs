//! Messages waiting to be sent, and reliable ones until they are acknowledged.
//!
//! Messages leave in the order they came, lost ones first. Which packet takes them, and when, is decided by whoever builds
//! packets.

mod reliable;

use std::collections::VecDeque;

use bytes::{BufMut, Bytes};
use drumfire_wire::{ChannelId, Delivery, FrameWriter, Message, MessageId};

use self::reliable::Reliable;
use super::Mode;
use crate::limits::ITEM_CHARGE_BYTES;
use crate::loss::Fate;

/// The messages of one connection on their way out.
#[derive(Debug)]
pub(crate) struct SendQueue {
    unreliable: VecDeque<Waiting>,
    /// Boxed, for the many connections that have none.
    reliable: Option<Box<Reliable>>,
    /// The id of the next reliable message while there are none.
    next_id: u64,
    stamp: u64,
    used_bytes: usize,
    limit_bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    channel: ChannelId,
    payload: Bytes,
    /// Which of two queues' fronts came first.
    stamp: u64,
}

/// What was put into a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) message_count: u32,
    pub(crate) reliable_count: u32,
    pub(crate) resent_count: u32,
}

impl Filled {
    fn add(&mut self, is_reliable: bool, is_resent: bool) {
        self.message_count = self.message_count.saturating_add(1);
        self.reliable_count = self.reliable_count.saturating_add(is_reliable.into());
        self.resent_count = self.resent_count.saturating_add(is_resent.into());
    }
}

impl SendQueue {
    pub(crate) const fn new(limit_bytes: usize) -> Self {
        Self { unreliable: VecDeque::new(), reliable: None, next_id: 0, stamp: 0, used_bytes: 0, limit_bytes }
    }

    /// Takes a message in; false when there is no room for it.
    pub(crate) fn push(&mut self, channel: ChannelId, mode: Mode, payload: Bytes) -> bool {
        let used_bytes = self.used_bytes.saturating_add(charge(payload.len()));
        if used_bytes > self.limit_bytes {
            return false;
        }
        self.used_bytes = used_bytes;
        let waiting = Waiting { channel, payload, stamp: self.stamp };
        self.stamp = self.stamp.wrapping_add(1);
        match mode {
            Mode::Unreliable => self.unreliable.push_back(waiting),
            Mode::ReliableOrdered => {
                let next_id = self.next_id;
                self.reliable.get_or_insert_with(|| Box::new(Reliable::new(next_id))).push(waiting);
            }
        }
        true
    }

    /// Whether a packet could take something.
    pub(crate) fn has_sendable(&self) -> bool {
        !self.unreliable.is_empty() || self.reliable.as_ref().is_some_and(|reliable| reliable.has_sendable())
    }

    /// Writes as many messages as fit into packet `number`; `carry` hears the ids of the reliable ones.
    pub(crate) fn fill<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        mut carry: impl FnMut(MessageId),
    ) -> Filled {
        let mut filled = Filled::default();
        if let Some(reliable) = &mut self.reliable
            && !reliable.write_lost(number, writer, &mut carry, &mut filled)
        {
            return filled;
        }
        while self.write_waiting(number, writer, &mut carry, &mut filled) {}
        filled
    }

    /// Takes in what became of a packet with message `id`.
    pub(crate) fn on_fate(&mut self, fate: Fate, id: MessageId, packet: u64) {
        let Some(reliable) = &mut self.reliable else { return };
        match fate {
            Fate::Lost => reliable.on_lost(id.0, packet),
            Fate::Acknowledged => {
                let payload_bytes = reliable.acknowledge(id.0);
                let charge_bytes = payload_bytes.map_or(0, charge);
                self.used_bytes = self.used_bytes.saturating_sub(charge_bytes);
            }
        }
    }

    /// Sends a message again whatever became of it so far, unless it was acknowledged.
    pub(crate) fn repeat(&mut self, id: MessageId) {
        if let Some(reliable) = &mut self.reliable {
            reliable.repeat(id.0);
        }
    }

    /// Drops everything; nothing is sent any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(0);
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        self.unreliable.shrink_to_fit();
        if let Some(reliable) = &self.reliable
            && let Some(next_id) = reliable.next_id_when_empty()
        {
            self.next_id = next_id;
            self.reliable = None;
        }
    }

    /// Writes the message that waits longest; false when there is none or it does not fit.
    fn write_waiting<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut Filled,
    ) -> bool {
        let unreliable = self.unreliable.front().map(|waiting| waiting.stamp);
        match &mut self.reliable {
            Some(reliable)
                if reliable
                    .next_stamp()
                    .is_some_and(|stamp| unreliable.is_none_or(|other| stamp < other)) =>
            {
                reliable.write_waiting(number, writer, carry, filled)
            }
            _ => self.write_unreliable(writer, filled),
        }
    }

    fn write_unreliable<B: BufMut>(&mut self, writer: &mut FrameWriter<B>, filled: &mut Filled) -> bool {
        let Some(Waiting { channel, payload, .. }) = self.unreliable.front() else { return false };
        if writer.message(&Message { channel: *channel, delivery: Delivery::Unreliable, payload }).is_err() {
            return false;
        }
        self.used_bytes = self.used_bytes.saturating_sub(charge(payload.len()));
        self.unreliable.pop_front();
        filled.add(false, false);
        true
    }
}

fn charge(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES)
}

#[cfg(test)]
mod tests;
