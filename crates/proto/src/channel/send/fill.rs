//! Fills packets from the queue: in each class lost messages first, then waiting messages in turn, fragmented where
//! necessary.
//!
//! The state that is kept of a sent message depends on its mode.

use bytes::BufMut;
use drumfire_wire::{Delivery, EncodeError, FrameWriter, Message, MessageId};

use super::pieces::write_piece;
use super::reliable::Reliable;
use super::scheduler::QueueKey;
use super::waiting::{Extras, Progress, QueueEntry};
use super::{SendQueue, charge, release};
use crate::channel::receipt::Outcome;
use crate::channel::{Mode, Priority};
use crate::limits::MESSAGE_MAX_BYTES;
use crate::time::Moment;

/// The packet that is being filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    /// The packet number.
    pub(crate) number: u64,
    /// The present time, for lifetimes.
    pub(crate) now: Moment,
    /// The bytes of frames that fit into an empty packet to the same destination. Longer messages must be fragmented.
    pub(crate) room_bytes: usize,
}

/// The contents that were written to a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FillCounts {
    /// The number of messages.
    pub(crate) message_count: u32,
    /// The number of reliable messages, fragments, and copies, whose fate is reported.
    pub(crate) reliable_count: u32,
    /// The number of messages that were lost before.
    pub(crate) resent_count: u32,
    /// The number of unreliable messages and fragments with a receipt, whose fate is reported.
    pub(crate) receipt_count: u32,
    /// The number of messages that were given up instead of written.
    pub(crate) expired_count: u32,
    /// The number of copies for redundancy, which are not retransmissions.
    pub(crate) copied_count: u32,
    /// The number of fragments. A fragmented message counts as a message with its last fragment.
    pub(crate) piece_count: u32,
}

impl FillCounts {
    pub(super) fn add(&mut self, is_reliable: bool, is_resent: bool) {
        self.message_count = self.message_count.saturating_add(1);
        self.reliable_count = self.reliable_count.saturating_add(is_reliable.into());
        self.resent_count = self.resent_count.saturating_add(is_resent.into());
    }

    pub(super) fn add_piece(&mut self, is_reliable: bool, is_last: bool) {
        self.piece_count = self.piece_count.saturating_add(1);
        self.message_count = self.message_count.saturating_add(is_last.into());
        self.reliable_count = self.reliable_count.saturating_add(is_reliable.into());
    }

    /// Whether the packet contains messages, which ask for an ack.
    pub(crate) const fn has_any(&self) -> bool {
        self.message_count > 0 || self.piece_count > 0
    }
}

impl SendQueue {
    /// Writes as many messages as fit into packet `number`. `carry` is called with the ids of reliable ones.
    pub(crate) fn fill<B: BufMut>(
        &mut self,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        mut carry: impl FnMut(MessageId),
    ) -> FillCounts {
        // A message that does not fit ends the packet: nothing of the same or a lower class may overtake it. Otherwise
        // a long message could wait forever behind short ones.
        let mut filled = FillCounts::default();
        for class in 0..Priority::COUNT {
            if !self.write_lost(class, packet, writer, &mut carry, &mut filled)
                || !self.write_class(class, packet, writer, &mut carry, &mut filled)
            {
                return filled;
            }
            // In the usual case one message waits.
            if !self.has_sendable() {
                break;
            }
        }
        // Copies only join packets that carry messages anyway, so redundancy costs no extra packets.
        if filled.has_any()
            && let Some(reliable) = &mut self.reliable
        {
            reliable.write_copies(packet.number, writer, &mut carry, &mut filled);
        }
        filled
    }

    /// Writes the lost messages of a class. Returns false when one did not fit.
    fn write_lost<B: BufMut>(
        &mut self,
        class: usize,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        let (used_bytes, receipts) = (&mut self.used_bytes, &mut self.receipts);
        let Some(reliable) = &mut self.reliable else { return true };
        let mut expired_count = 0_u32;
        let fits = reliable.write_lost(class, packet, writer, carry, filled, |over| {
            // The overhead stays charged until the peer acknowledged the Skip.
            release(used_bytes, over.payload_bytes);
            expired_count = expired_count.saturating_add(1);
            if let Some(receipt) = over.receipt {
                receipts.get_or_insert_default().answer(receipt, Outcome::Expired);
            }
        });
        filled.expired_count = filled.expired_count.saturating_add(expired_count);
        fits
    }

    /// Writes the waiting messages of a class. Returns false when one did not fit.
    fn write_class<B: BufMut>(
        &mut self,
        class: usize,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        loop {
            let may_give_id = self.may_give_id();
            let Some((queue_key, waiting)) =
                self.scheduler.as_mut().and_then(|scheduler| scheduler.front(class, may_give_id))
            else {
                return true;
            };
            // The state of the message comes first, and then its mode.
            // A message that was queued before the handshake may exceed the peer's limit.
            let is_too_long =
                waiting.mode.needs_id() && waiting.payload.len() > self.credit.message_max_bytes();
            let fits = if waiting.extras.terms.is_over(packet.now) || is_too_long {
                let is_new = self.expire(queue_key, packet.now);
                filled.expired_count = filled.expired_count.saturating_add(is_new.into());
                true
            } else if waiting.extras.progress.is_some() {
                self.write_next_piece(queue_key, packet, writer, carry, filled)
            } else if waiting.mode == Mode::ReliableLatest {
                let is_resent = waiting.extras.version.is_some();
                let Some(version) = write_value(writer, waiting, packet.number) else { return false };
                if let Some(id) = self.book_value(queue_key, class, version, packet.number) {
                    carry(id);
                }
                filled.add(true, is_resent);
                true
            } else if waiting.mode.needs_id() {
                self.write_reliable(queue_key, class, packet, writer, carry, filled)
            } else {
                self.write_unreliable(queue_key, packet, writer, carry, filled)
            };
            if !fits {
                return false;
            }
        }
    }

    /// Writes the first message of a reliable queue, or starts to fragment it. Returns false when it does not fit.
    fn write_reliable<B: BufMut>(
        &mut self,
        queue_key: QueueKey,
        class: usize,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        self.check_first(queue_key);
        let Some(scheduler) = &mut self.scheduler else { return false };
        let Some(waiting) = scheduler.first(queue_key) else { return false };
        let charge_bytes = charge(waiting.payload.len());
        // No later message may overtake it, or a large message could wait forever for its credit.
        if !self.credit.has(charge_bytes) {
            scheduler.set_short_of_credit(true);
            return true;
        }
        let next_id = self.next_id;
        let reliable = self.reliable.get_or_insert_with(|| Box::new(Reliable::new(next_id, self.hash)));
        // A retransmission must fit every path, whatever the present path carries.
        let is_short = waiting.payload.len() <= MESSAGE_MAX_BYTES;
        match is_short.then(|| reliable.write_first(writer, waiting)) {
            Some(Ok(first)) => {
                if let Some(waiting) = scheduler.pop(queue_key, true) {
                    let redundancy = scheduler.options_of(waiting.channel).redundancy;
                    reliable.keep(waiting, first, class, packet.number, redundancy);
                }
                carry(first.id);
                filled.add(true, false);
            }
            Some(Err(error)) if !must_cut(error, packet) => return false,
            // Few fragmented messages at a time: the receiver limits how many it stores, and one channel must not use
            // them all.
            Some(Err(_)) | None => {
                if !reliable.may_begin_pieces(waiting.channel) {
                    scheduler.block(class);
                    return true;
                }
                let number = reliable.begin_pieces(waiting, class, packet.number);
                scheduler.begin(queue_key, Progress { number, sent_bytes: 0, receipt: None });
            }
        }
        // Credit is spent once, for the whole message. Retransmissions are free.
        self.credit.spend(charge_bytes);
        true
    }

    /// Writes the first message of an unreliable queue, or starts to fragment it. Returns false when it does not fit.
    fn write_unreliable<B: BufMut>(
        &mut self,
        queue_key: QueueKey,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        self.check_first(queue_key);
        let Some(scheduler) = &mut self.scheduler else { return false };
        let Some(waiting) = scheduler.first(queue_key) else { return false };
        let receipt = waiting.extras.terms.receipt;
        match writer.message(&whole_unreliable(waiting)) {
            // Nothing of it is kept. A receipt waits for the fate of the packet.
            Ok(()) => {
                self.pop(queue_key, Outcome::Lost);
                if let Some(receipt) = receipt {
                    carry(self.receipts.get_or_insert_default().on_sent(receipt));
                    filled.receipt_count = filled.receipt_count.saturating_add(1);
                }
                filled.add(false, false);
                true
            }
            Err(error) if must_cut(error, packet) => {
                let receipts = &mut self.receipts;
                let receipt = receipt.map(|receipt| receipts.get_or_insert_default().begin(receipt));
                // The first fragment determines its number.
                scheduler.begin(queue_key, Progress { number: 0, sent_bytes: 0, receipt });
                true
            }
            Err(_) => false,
        }
    }

    /// Writes the next fragment of the first message of a queue. Returns false when none fits.
    fn write_next_piece<B: BufMut>(
        &mut self,
        queue_key: QueueKey,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        self.check_first(queue_key);
        let Some(scheduler) = &mut self.scheduler else { return false };
        let Some(waiting) = scheduler.first(queue_key) else { return false };
        let Some(progress) = waiting.extras.progress else { return false };
        let begin = progress.sent_bytes;
        let total = waiting.total_bytes();
        let is_reliable = waiting.mode.needs_id();
        // An unreliable message takes its place in the order from its first fragment that was written.
        let number = if is_reliable || begin > 0 { progress.number } else { packet.number };
        let end = if is_reliable {
            debug_assert!(self.reliable.is_some(), "a fragmented message has an id, and was not registered");
            let Some(reliable) = &mut self.reliable else { return false };
            let written = reliable.write_next_piece(writer, progress.number, begin, total);
            let Some((end, id)) = written else { return false };
            carry(id);
            end
        } else {
            let written = write_piece(writer, &whole_unreliable(waiting), number, begin, total);
            let Some(end) = written else { return false };
            debug_assert!(
                progress.receipt.is_none() || self.receipts.is_some(),
                "a fragment is sent under the receipt {:?}, which was never opened",
                progress.receipt
            );
            if let (Some(id), Some(receipts)) = (progress.receipt, &mut self.receipts) {
                receipts.on_piece(id, end == total);
                carry(id);
                filled.receipt_count = filled.receipt_count.saturating_add(1);
            }
            end
        };
        filled.add_piece(is_reliable, end == total);
        scheduler.advance(queue_key, number, end);
        // The last fragment is written. A reliable message stays charged, because `reliable` holds its payload.
        if end == total
            && let Some(done) = scheduler.pop(queue_key, true)
            && !is_reliable
        {
            release(&mut self.used_bytes, charge(done.payload.len()));
        }
        true
    }

    /// Asserts that the queue that has its turn has a message. A packet would otherwise be filled without an end.
    fn check_first(&self, queue_key: QueueKey) {
        debug_assert!(
            self.scheduler.as_ref().is_some_and(|scheduler| scheduler.first(queue_key).is_some()),
            "the queue that has its turn is empty"
        );
    }
}

/// Writes a value into packet `number`, which becomes its version on the first transmission. Returns the version, or
/// `None` when the value does not fit.
fn write_value<B: BufMut>(writer: &mut FrameWriter<B>, waiting: QueueEntry<'_>, number: u64) -> Option<u64> {
    let QueueEntry { channel, payload, extras: &Extras { key, version, .. }, .. } = waiting;
    let version = version.unwrap_or(number);
    writer
        .message(&Message { channel, delivery: Delivery::ReliableLatest { key, version }, payload })
        .ok()?;
    Some(version)
}

/// Returns an unreliable message as it would be sent whole.
fn whole_unreliable(waiting: QueueEntry<'_>) -> Message<'_> {
    let is_sequenced = waiting.mode == Mode::UnreliableSequenced;
    let delivery = if is_sequenced { Delivery::UnreliableSequenced } else { Delivery::Unreliable };
    Message { channel: waiting.channel, delivery, payload: waiting.payload }
}

/// Whether a message that did not fit would not fit an empty packet either.
pub(super) fn must_cut(error: EncodeError, packet: Packet) -> bool {
    matches!(error, EncodeError::NoRoom { needed_bytes } if needed_bytes > packet.room_bytes)
}
