//! Fills packets from the queue: in each class lost messages first, then waiting messages in turn, fragmented where
//! necessary.
//!
//! The state that is kept of a sent message depends on its mode.

use bytes::BufMut;
use drumfire_wire::{Delivery, FrameWriter, Message, MessageId};

use super::pieces::{must_cut, write_piece};
use super::reliable::{Reliable, SendPriority};
use super::scheduler::{QueueKey, RunLimits};
use super::sent_run::{RunFrame, RunIds};
use super::waiting::{Extras, Progress, QueueEntry};
use super::{SendQueue, charge, release};
use crate::channel::receipt::Outcome;
use crate::channel::{Mode, Priority, Redundancy};
use crate::event::charge_all;
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
    /// The number of runs of reliable messages, fragments, and copies, whose fate is reported.
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
    /// Counts a message, or a run of messages.
    pub(super) fn add(&mut self, count: u16, is_reliable: bool, is_resent: bool) {
        self.message_count = self.message_count.saturating_add(count.into());
        self.reliable_count = self.reliable_count.saturating_add(is_reliable.into());
        let resent_count = if is_resent { count } else { 0 };
        self.resent_count = self.resent_count.saturating_add(resent_count.into());
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
            expired_count = expired_count.saturating_add(over.ids.count.into());
            if let Some(receipts) = receipts {
                receipts.answer_ids(over.ids.first..over.ids.end(), Outcome::Expired);
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
                filled.add(1, true, is_resent);
                true
            } else if waiting.mode.needs_id() {
                self.write_reliable(queue_key, class, packet, writer, carry, filled)
            } else {
                self.write_unreliable(queue_key, class, packet, writer, carry, filled)
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
        if self.scheduler.as_ref().is_some_and(|scheduler| scheduler.begins_run(queue_key))
            && let Some(ids) = self.write_reliable_run(queue_key, class, packet, writer)
        {
            carry(ids.book_id());
            filled.add(ids.count, true, false);
            return true;
        }
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
            Some(Ok(order)) => {
                if let Some(waiting) = scheduler.pop(queue_key, true) {
                    let receipt = waiting.extras.terms.receipt;
                    let redundancy = scheduler.options_of(waiting.channel).redundancy;
                    let send = SendPriority { class, packet: packet.number, redundancy };
                    let ids = reliable.keep(waiting, order, send);
                    if let Some(receipt) = receipt {
                        self.receipts.get_or_insert_default().open(ids.first, receipt);
                    }
                    carry(ids.book_id());
                }
                filled.add(1, true, false);
            }
            Some(Err(error)) if !must_cut(error, packet.room_bytes) => return false,
            // Few fragmented messages at a time: the receiver limits how many it stores, and one channel must not use
            // them all.
            Some(Err(_)) | None => {
                if !reliable.may_begin_pieces(waiting.channel) {
                    scheduler.block(class);
                    return true;
                }
                let send = SendPriority { class, packet: packet.number, redundancy: Redundancy::None };
                let number = reliable.begin_pieces(waiting, send);
                if let Some(receipt) = waiting.extras.terms.receipt {
                    self.receipts.get_or_insert_default().open(number, receipt);
                }
                scheduler.begin(queue_key, Progress { number, sent_bytes: 0, receipt: None });
            }
        }
        // Credit is spent once, for the whole message. Retransmissions are free.
        self.credit.spend(charge_bytes);
        true
    }

    /// Writes the first messages of a reliable queue as a run. Returns their ids, or `None` if there is only one that
    /// fits, which is shorter as a message.
    #[inline(never)]
    fn write_reliable_run<B: BufMut>(
        &mut self,
        queue_key: QueueKey,
        class: usize,
        packet: Packet,
        writer: &mut FrameWriter<B>,
    ) -> Option<RunIds> {
        let scheduler = self.scheduler.as_mut()?;
        let waiting = scheduler.first(queue_key)?;
        let next_id = self.next_id;
        let reliable = self.reliable.get_or_insert_with(|| Box::new(Reliable::new(next_id, self.hash)));
        let order = reliable.order_for(waiting);
        let delivery = reliable.first_delivery(order);
        let redundancy = scheduler.options_of(waiting.channel).redundancy;
        let limits = RunLimits {
            class,
            id_count: reliable.ids_left(),
            charge_bytes: self.credit.left_bytes(),
            has_copies: redundancy.copies() > 0,
        };
        let head = Message { channel: waiting.channel, delivery, payload: &[] };
        // The run is measured before anything is written or taken out of the queue.
        let fit = scheduler.fit_run(queue_key, &limits, RunFrame::behind(writer, &head)?);
        // Without memory for bodies, each message keeps its own payload.
        if fit.count < 2 || !reliable.may_keep_bodies(fit.body_bytes, self.used_bytes) {
            return None;
        }
        let payloads = scheduler.payloads(queue_key).take(fit.count.into());
        let send = SendPriority { class, packet: packet.number, redundancy };
        let ids = reliable.write_run(writer, (waiting, order), &fit, payloads, send).ok()?;
        for id in ids.first..ids.end() {
            let receipt = scheduler.pop(queue_key, true).and_then(|sent| sent.extras.terms.receipt);
            if let Some(receipt) = receipt {
                self.receipts.get_or_insert_default().open(id, receipt);
            }
        }
        // As with single messages, retransmissions are free.
        self.credit.spend(charge_all(fit.count, fit.payload_bytes));
        Some(ids)
    }

    /// Writes the first message of an unreliable queue, or starts to fragment it. Returns false when it does not fit.
    fn write_unreliable<B: BufMut>(
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
        let run_count = scheduler.write_unreliable_run(queue_key, class, writer);
        let Some(waiting) = scheduler.first(queue_key) else { return false };
        let receipt = waiting.extras.terms.receipt;
        // A run has the messages that wait one behind the other, and the first of them is still at the front.
        let written = match run_count {
            Some(count) => Ok(count),
            None => writer.message(&waiting.unreliable_message()).map(|()| 1),
        };
        match written {
            // Nothing of them is kept. A receipt waits for the fate of the packet.
            Ok(count) => {
                for _ in 0..count {
                    if let Some(receipt) = self.pop(queue_key, Outcome::Lost) {
                        carry(self.receipts.get_or_insert_default().on_sent(receipt));
                        filled.receipt_count = filled.receipt_count.saturating_add(1);
                    }
                }
                filled.add(count, false, false);
                true
            }
            Err(error) if must_cut(error, packet.room_bytes) => {
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
            let written = write_piece(writer, &waiting.unreliable_message(), number, begin, total);
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
