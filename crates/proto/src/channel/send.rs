//! Messages waiting to be sent, and reliable ones until they are acknowledged.
//!
//! Of each class of priority lost messages leave first, then those whose turn it is. Which packet takes them, and when, is
//! decided by whoever builds packets.

mod latest;
mod lines;
mod reliable;

use bytes::{BufMut, Bytes};
use drumfire_wire::{ChannelId, Delivery, FrameWriter, Message, MessageId};

use self::latest::{Latest, Older, is_value};
use self::lines::{Lines, Name, Terms, Waiting};
use self::reliable::Reliable;
use super::receipt::{Outcome, ReceiptId, Receipts, is_receipt};
use super::{ChannelOptions, Mode, Priority, SendOptions};
use crate::limits::ITEM_CHARGE_BYTES;
use crate::loss::Fate;
use crate::time::Moment;

/// The messages of one connection on their way out. Small for the many connections that have none.
#[derive(Debug)]
pub(crate) struct SendQueue {
    lines: Option<Box<Lines>>,
    reliable: Option<Box<Reliable>>,
    latest: Option<Box<Latest>>,
    receipts: Option<Box<Receipts>>,
    /// The id of the next reliable message while there are none.
    next_id: u64,
    used_bytes: usize,
    limit_bytes: usize,
}

/// The packet that is being filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) number: u64,
    pub(crate) now: Moment,
}

/// What was put into a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) message_count: u32,
    pub(crate) reliable_count: u32,
    pub(crate) resent_count: u32,
    /// Unreliable messages whose fate somebody wants to know.
    pub(crate) receipt_count: u32,
    pub(crate) expired_count: u32,
    /// Copies for redundancy, which are not resends.
    pub(crate) copied_count: u32,
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
        Self {
            lines: None,
            reliable: None,
            latest: None,
            receipts: None,
            next_id: 0,
            used_bytes: 0,
            limit_bytes,
        }
    }

    /// Takes a message in; false when there is no room for it.
    pub(crate) fn push(
        &mut self,
        now: Moment,
        channel: ChannelId,
        options: SendOptions,
        receipt: Option<ReceiptId>,
        payload: Bytes,
    ) -> bool {
        let used_bytes = self.used_bytes.saturating_add(charge(payload.len()));
        if used_bytes > self.limit_bytes {
            return false;
        }
        let SendOptions { mode, key, priority, lifetime, .. } = options;
        let terms = Terms { deadline: lifetime.map(|lifetime| now.after(lifetime)), receipt };
        let lines = self.lines.get_or_insert_with(|| Box::new(Lines::new()));
        let waiting = Waiting { channel, mode, payload, terms, key, version: None };
        let replaced = if mode == Mode::ReliableLatest {
            let latest = self.latest.get_or_insert_with(|| Box::new(Latest::new()));
            push_value(lines, latest, waiting, priority)
        } else {
            lines.push(waiting, priority)
        };
        self.used_bytes = used_bytes;
        if let Some(older) = replaced {
            self.forget(&older, Outcome::Expired);
        }
        true
    }

    /// How the messages of a channel are sent from now on.
    pub(crate) fn set_options(&mut self, channel: ChannelId, options: ChannelOptions) {
        self.lines.get_or_insert_with(|| Box::new(Lines::new())).set_options(channel, options);
    }

    /// Whether a packet could take something.
    pub(crate) fn has_sendable(&self) -> bool {
        let has_lost = self.reliable.as_ref().is_some_and(|reliable| reliable.has_lost());
        has_lost || self.lines.as_ref().is_some_and(|lines| lines.has_sendable(self.may_give_id()))
    }

    fn may_give_id(&self) -> bool {
        self.reliable.as_ref().is_none_or(|reliable| reliable.may_give_id())
    }

    /// Writes as many messages as fit into packet `number`; `carry` hears the ids of the reliable ones.
    pub(crate) fn fill<B: BufMut>(
        &mut self,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        mut carry: impl FnMut(MessageId),
    ) -> Filled {
        let mut filled = Filled::default();
        for class in 0..Priority::COUNT {
            if !self.write_lost(class, packet, writer, &mut carry, &mut filled)
                || !self.write_class(class, packet, writer, &mut carry, &mut filled)
            {
                return filled;
            }
        }
        if filled.message_count > 0
            && let Some(reliable) = &mut self.reliable
        {
            reliable.write_copies(packet.number, writer, &mut carry, &mut filled);
        }
        filled
    }

    /// Writes what is lost in a class; false when something did not fit.
    fn write_lost<B: BufMut>(
        &mut self,
        class: usize,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut Filled,
    ) -> bool {
        let (used_bytes, receipts) = (&mut self.used_bytes, &mut self.receipts);
        let Some(reliable) = &mut self.reliable else { return true };
        let mut expired_count = 0_u32;
        let fits = reliable.write_lost(class, packet, writer, carry, filled, |over| {
            // Its place is charged until the peer knows.
            *used_bytes = used_bytes.saturating_sub(over.payload_bytes);
            expired_count = expired_count.saturating_add(1);
            if let Some(receipt) = over.receipt {
                receipts.get_or_insert_default().answer(receipt, Outcome::Expired);
            }
        });
        filled.expired_count = filled.expired_count.saturating_add(expired_count);
        fits
    }

    /// Writes what waits in a class; false when something did not fit.
    fn write_class<B: BufMut>(
        &mut self,
        class: usize,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut Filled,
    ) -> bool {
        loop {
            let may_give_id = self.may_give_id();
            let Some((name, waiting)) = self.lines.as_mut().and_then(|lines| lines.front(class, may_give_id))
            else {
                return true;
            };
            let next_id = self.next_id;
            if waiting.terms.is_over(packet.now) {
                filled.expired_count = filled.expired_count.saturating_add(1);
                self.pop(name, Outcome::Expired);
            } else if waiting.mode == Mode::ReliableLatest {
                let is_resent = waiting.version.is_some();
                let Some(version) = write_value(writer, waiting, packet.number) else { return false };
                if let Some(id) = self.book_value(name, class, version, packet.number) {
                    carry(id);
                }
                filled.add(true, is_resent);
            } else if waiting.mode.needs_id() {
                let reliable = self.reliable.get_or_insert_with(|| Box::new(Reliable::new(next_id)));
                let Some(first) = reliable.write_first(writer, waiting) else { return false };
                if let Some(lines) = &mut self.lines
                    && let Some(waiting) = lines.pop(name, true)
                {
                    let redundancy = lines.options_of(waiting.channel).redundancy;
                    reliable.keep(waiting, first, class, packet.number, redundancy);
                }
                carry(first.id);
                filled.add(true, false);
            } else if write_unreliable(writer, waiting) {
                let receipt = waiting.terms.receipt;
                self.pop(name, Outcome::Lost);
                if let Some(receipt) = receipt {
                    carry(self.receipts.get_or_insert_default().on_sent(receipt));
                    filled.receipt_count = filled.receipt_count.saturating_add(1);
                }
                filled.add(false, false);
            } else {
                return false;
            }
        }
    }

    /// Takes out a message that will not be kept: it was sent, or its time is over.
    fn pop(&mut self, name: Name, outcome: Outcome) {
        if let Some(gone) = self.lines.as_mut().and_then(|lines| lines.pop(name, false)) {
            if gone.mode == Mode::ReliableLatest
                && let Some(latest) = &mut self.latest
            {
                latest.on_given_up((gone.channel, gone.key));
            }
            self.forget(&gone, outcome);
        }
    }

    /// Keeps the value that was written for its key until its packet's fate is known.
    fn book_value(&mut self, name: Name, class: usize, version: u64, number: u64) -> Option<MessageId> {
        let mut sent = self.lines.as_mut()?.pop(name, true)?;
        sent.version = Some(version);
        let (key, priority) = ((sent.channel, sent.key), Priority::of_class(class));
        Some(self.latest.as_mut()?.on_sent(key, sent, priority, number))
    }

    /// Takes in what became of a value under way; without `fate` it is sent again anyway.
    fn on_value(&mut self, fate: Option<Fate>, id: MessageId, packet: u64) {
        let packet = fate.map(|_| packet);
        let Some(latest) = &mut self.latest else { return };
        let Some((key, value, priority)) = latest.take(id, packet) else { return };
        if fate == Some(Fate::Acknowledged) {
            return self.forget(&value, Outcome::Acknowledged);
        }
        let lines = self.lines.get_or_insert_with(|| Box::new(Lines::new()));
        latest.on_waiting(key, lines.push_at_end(value, priority));
    }

    /// Gives back what a message was charged, and answers for it when its outcome is known.
    fn forget(&mut self, gone: &Waiting, outcome: Outcome) {
        self.used_bytes = self.used_bytes.saturating_sub(charge(gone.payload.len()));
        if let (Some(receipt), Outcome::Expired | Outcome::Acknowledged) = (gone.terms.receipt, outcome) {
            self.receipts.get_or_insert_default().answer(receipt, outcome);
        }
    }

    /// The next answer to somebody who wanted to know what became of a message.
    pub(crate) fn pop_receipt(&mut self) -> Option<(ReceiptId, Outcome)> {
        self.receipts.as_mut()?.pop()
    }

    /// Takes in what became of a packet with message `id`.
    pub(crate) fn on_fate(&mut self, fate: Fate, id: MessageId, packet: u64) {
        if is_value(id) {
            return self.on_value(Some(fate), id, packet);
        }
        if is_receipt(id) {
            if let Some(receipts) = &mut self.receipts {
                receipts.on_fate(fate, id);
            }
            return;
        }
        let Some(reliable) = &mut self.reliable else { return };
        if fate == Fate::Lost {
            return reliable.on_lost(id.0, packet);
        }
        let Some(arrived) = reliable.acknowledge(id.0) else { return };
        self.used_bytes = self.used_bytes.saturating_sub(charge(arrived.payload_bytes));
        if let Some(receipt) = arrived.receipt {
            self.receipts.get_or_insert_default().answer(receipt, Outcome::Acknowledged);
        }
        let may_give_id = reliable.may_give_id();
        if let Some(lines) = &mut self.lines {
            if arrived.is_sequenced {
                lines.on_sequenced_arrived(arrived.channel);
            }
            if may_give_id {
                lines.unblock();
            }
        }
    }

    /// Sends a message again whatever became of it so far, unless it was acknowledged.
    pub(crate) fn repeat(&mut self, id: MessageId) {
        if is_value(id) {
            return self.on_value(None, id, 0);
        }
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
        self.latest.take_if(|latest| latest.is_empty());
        self.receipts.take_if(|receipts| receipts.is_empty());
        self.lines.take_if(|lines| lines.is_empty());
        if let Some(reliable) = &self.reliable
            && let Some(next_id) = reliable.next_id_when_empty()
        {
            self.next_id = next_id;
            self.reliable = None;
        }
    }
}

/// Puts a value in the place of the older one of its key, or at the end of its line; answers the older one.
fn push_value(
    lines: &mut Lines,
    latest: &mut Latest,
    waiting: Waiting,
    priority: Priority,
) -> Option<Waiting> {
    let key = (waiting.channel, waiting.key);
    let older = match latest.supersede(key) {
        Older::Waits(place) => return lines.replace(place, waiting),
        Older::Forgotten(older) => Some(older),
        Older::Nothing => None,
    };
    latest.on_waiting(key, lines.push_at_end(waiting, priority));
    older
}

/// Writes a value into packet `number`, by which it is known if it was not sent before; answers its version, `None` when
/// it does not fit.
fn write_value<B: BufMut>(writer: &mut FrameWriter<B>, waiting: &Waiting, number: u64) -> Option<u64> {
    let version = waiting.version.unwrap_or(number);
    let Waiting { channel, payload, key, .. } = waiting;
    let delivery = Delivery::ReliableLatest { key: *key, version };
    writer.message(&Message { channel: *channel, delivery, payload }).ok()?;
    Some(version)
}

fn write_unreliable<B: BufMut>(writer: &mut FrameWriter<B>, waiting: &Waiting) -> bool {
    let is_sequenced = waiting.mode == Mode::UnreliableSequenced;
    let delivery = if is_sequenced { Delivery::UnreliableSequenced } else { Delivery::Unreliable };
    writer.message(&Message { channel: waiting.channel, delivery, payload: &waiting.payload }).is_ok()
}

fn charge(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES)
}

#[cfg(test)]
mod tests;
