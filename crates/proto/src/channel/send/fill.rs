//! Fills packets from the queue: in each class lost messages first, then waiting messages in turn, fragmented where
//! necessary.
//!
//! The state that is kept of a sent message depends on its mode.

use bytes::BufMut;
use drumfire_wire::{Bodies, ChannelId, Delivery, EncodeError, FrameWriter, Message, MessageId};

use super::fragments::{must_fragment, write_fragment};
use super::reliable::{Reliable, SendPriority};
use super::scheduler::QueueKey;
use super::segment::{ExtraFields, Progress, QueuedBodies, SingleEntry, unreliable_delivery};
use super::sent_run::{Order, RunFrame, RunLimits};
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
    pub(crate) fragment_count: u32,
}

impl FillCounts {
    /// Counts a message, or a run of messages.
    pub(super) fn add(&mut self, count: u16, is_reliable: bool, is_resent: bool) {
        self.message_count = self.message_count.saturating_add(count.into());
        self.reliable_count = self.reliable_count.saturating_add(is_reliable.into());
        let resent_count = if is_resent { count } else { 0 };
        self.resent_count = self.resent_count.saturating_add(resent_count.into());
    }

    pub(super) fn add_fragment(&mut self, is_reliable: bool, is_last: bool) {
        self.fragment_count = self.fragment_count.saturating_add(1);
        self.message_count = self.message_count.saturating_add(is_last.into());
        self.reliable_count = self.reliable_count.saturating_add(is_reliable.into());
    }

    /// Whether the packet contains messages, which are ack-eliciting.
    pub(crate) const fn has_any(&self) -> bool {
        self.message_count > 0 || self.fragment_count > 0
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
        // A connection that always has data is not visited by its timer.
        self.on_timeout(packet.now);
        for class in self.first_class()..Priority::COUNT {
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
            && reliable.has_copies()
        {
            reliable.write_copies(packet.number, writer, &mut self.chunks, &mut carry, &mut filled);
        }
        filled
    }

    /// The highest class of priority that may have a message to send.
    #[inline]
    fn first_class(&self) -> usize {
        // In the usual case nothing is lost and one channel has messages. Visiting the classes above would cost as much as
        // writing a short message.
        let only = self.scheduler.as_ref().and_then(|scheduler| scheduler.only_class());
        only.filter(|_| !self.has_lost()).unwrap_or(0)
    }

    /// Writes the lost messages of a class. Returns false when one did not fit.
    #[inline]
    fn write_lost<B: BufMut>(
        &mut self,
        class: usize,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        if !self.has_lost() {
            return true;
        }
        let (used_bytes, receipts) = (&mut self.used_bytes, &mut self.receipts);
        let Some(reliable) = &mut self.reliable else { return true };
        let mut expired_count = 0_u32;
        let fits = reliable.write_lost((class, packet), writer, &mut self.chunks, carry, filled, |skipped| {
            // The overhead stays charged until the peer acknowledged the Skip.
            release(used_bytes, skipped.payload_bytes);
            expired_count = expired_count.saturating_add(skipped.ids.count.into());
            if let Some(receipts) = receipts {
                receipts.resolve_ids(skipped.ids.first..skipped.ids.end(), Outcome::Expired);
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
            let can_assign_id = self.can_assign_id();
            let Some((queue_key, first)) =
                self.scheduler.as_mut().and_then(|scheduler| scheduler.front(class, can_assign_id))
            else {
                return true;
            };
            let is_expired = first.extras.is_expired(packet.now);
            let Some(waiting) = first.single() else {
                if is_expired {
                    let count = self.expire_segment(queue_key);
                    filled.expired_count = filled.expired_count.saturating_add(count.into());
                } else if !self.write_segment(queue_key, class, packet, writer, carry, filled) {
                    return false;
                }
                continue;
            };
            // The state of the message comes first, and then its mode.
            // A message that was queued before the handshake may exceed the peer's limit.
            let is_too_long =
                waiting.mode.needs_id() && waiting.payload.len() > self.credit.message_max_bytes();
            let fits = if is_expired || is_too_long {
                let is_new = self.expire(queue_key, packet.now);
                filled.expired_count = filled.expired_count.saturating_add(is_new.into());
                true
            } else if waiting.extras.progress.is_some() {
                self.write_next_fragment(queue_key, packet, writer, carry, filled)
            } else if waiting.mode == Mode::ReliableLatest {
                let is_resent = waiting.extras.version.is_some();
                let Some(version) = write_value(writer, waiting, packet.number) else { return false };
                if let Some(id) = self.keep_value(queue_key, class, version, packet.number) {
                    carry(id);
                }
                filled.add(1, true, is_resent);
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
        let Some(waiting) = scheduler.first_single(queue_key) else { return false };
        let charge_bytes = charge(waiting.payload.len());
        // No later message may overtake it, or a large message could wait forever for its credit.
        if !self.credit.has(charge_bytes) {
            self.credit_deadline = waiting.extras.deadline;
            scheduler.set_short_of_credit(true);
            return true;
        }
        let next_id = self.next_id;
        let reliable = self.reliable.get_or_insert_with(|| Box::new(Reliable::new(next_id, self.hash)));
        // A retransmission must fit every path, whatever the present path carries.
        let is_short = waiting.payload.len() <= MESSAGE_MAX_BYTES;
        match is_short.then(|| reliable.write_first(writer, waiting)) {
            Some(Ok(order)) => {
                if let Some(waiting) = scheduler.pop(queue_key, true, &mut self.chunks) {
                    let receipt = waiting.extras.receipt;
                    let redundancy = scheduler.options_of(waiting.channel).redundancy;
                    let send = SendPriority { class, packet: packet.number, redundancy };
                    let ids = reliable.keep(waiting, order, send);
                    if let Some(receipt) = receipt {
                        self.receipts.get_or_insert_default().open(ids.first, receipt);
                    }
                    carry(ids.fate_id());
                }
                filled.add(1, true, false);
            }
            Some(Err(error)) if !must_fragment(error, packet.room_bytes) => return false,
            // Few fragmented messages at a time: the receiver limits how many it stores, and one channel must not use
            // them all.
            Some(Err(_)) | None => {
                if !reliable.may_begin_fragmented(waiting.channel) {
                    scheduler.block(class);
                    return true;
                }
                let send = SendPriority { class, packet: packet.number, redundancy: Redundancy::None };
                let number = reliable.begin_fragmented(waiting, send);
                if let Some(receipt) = waiting.extras.receipt {
                    self.receipts.get_or_insert_default().open(number, receipt);
                }
                scheduler.begin(queue_key, Progress { number, sent_bytes: 0, receipt: None });
            }
        }
        // Credit is spent once, for the whole message. Retransmissions are free.
        self.credit.spend(charge_bytes);
        true
    }

    /// Writes the first messages of a queue that begins with a segment, as a run if several fit. Returns false when no
    /// message fits.
    #[inline(never)]
    fn write_segment<B: BufMut>(
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
        let turn_bytes = scheduler.turn_bytes(queue_key, class);
        let Some(entry) = scheduler.first(queue_key) else { return false };
        let QueuedBodies::Segment(segment) = entry.content else { return false };
        let (channel, mode, deadline) = (entry.channel, entry.mode, entry.extras.deadline);
        let is_reliable = mode.needs_id();
        let mut limits = RunLimits { id_count: u64::MAX, turn_bytes, charge_bytes: usize::MAX };
        let (mut order, mut delivery) = (Order::Unordered, unreliable_delivery(mode));
        if is_reliable {
            // No later message may overtake the first one, or it could wait forever for its credit.
            if !self.credit.has(charge(segment.first_bytes.into())) {
                self.credit_deadline = deadline;
                scheduler.set_short_of_credit(true);
                return true;
            }
            let next_id = self.next_id;
            let reliable = self.reliable.get_or_insert_with(|| Box::new(Reliable::new(next_id, self.hash)));
            order = reliable.order_for(channel, mode);
            delivery = reliable.first_delivery(order);
            (limits.id_count, limits.charge_bytes) = (reliable.ids_left(), self.credit.left_bytes());
        }
        // The run is measured before anything is written or taken out of the queue.
        let bodies = self.chunks.bodies(&segment.bodies);
        let Some(mut part) = RunFrame::behind(writer, &Message { channel, delivery, payload: &[] }) else {
            return false;
        };
        part.take_segment(segment, bodies, &limits);
        let Some(bodies) = bodies.get(..part.body_bytes).filter(|_| part.count > 0) else { return false };
        let written = write_bodies(writer, channel, delivery, part.count, bodies);
        if written.is_err() {
            // The frames of the packet are used up.
            return false;
        }
        // Copies of long messages would displace new messages.
        let redundancy =
            if segment.has_long { Redundancy::None } else { scheduler.options_of(channel).redundancy };
        let (chunks, receipts) = (&mut self.chunks, &mut self.receipts);
        if is_reliable && let Some(reliable) = &mut self.reliable {
            // The bodies stay where they are, and the record of the run refers to them until it is acknowledged.
            let mut ids = reliable.next_id()..;
            let taken = scheduler.take_part(queue_key, &part, chunks, |receipt| {
                if let Some(id) = ids.next() {
                    receipts.get_or_insert_default().open(id, receipt);
                }
            });
            let Some(bodies) = taken else { return false };
            let send = SendPriority { class, packet: packet.number, redundancy };
            carry(reliable.keep_part(channel, bodies, &part, deadline, order, send).fate_id());
            // As with single messages, retransmissions are free.
            self.credit.spend(charge_all(part.count, part.payload_bytes));
        } else {
            // Nothing is kept of unreliable messages. Their receipts wait for the fate of the packet.
            let taken = scheduler.take_part(queue_key, &part, chunks, |receipt| {
                carry(receipts.get_or_insert_default().on_sent(receipt));
                filled.receipt_count = filled.receipt_count.saturating_add(1);
            });
            let Some(bodies) = taken else { return false };
            chunks.release(bodies);
            release(&mut self.used_bytes, charge_all(part.count, part.payload_bytes));
        }
        filled.add(part.count, is_reliable, false);
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
        let Some(waiting) = scheduler.first_single(queue_key) else { return false };
        match writer.message(&waiting.unreliable_message()) {
            // Nothing of it is kept. A receipt waits for the fate of the packet.
            Ok(()) => {
                if let Some(receipt) = self.pop(queue_key, Outcome::Lost) {
                    carry(self.receipts.get_or_insert_default().on_sent(receipt));
                    filled.receipt_count = filled.receipt_count.saturating_add(1);
                }
                filled.add(1, false, false);
                true
            }
            Err(error) if must_fragment(error, packet.room_bytes) => {
                let receipt = waiting.extras.receipt;
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
    fn write_next_fragment<B: BufMut>(
        &mut self,
        queue_key: QueueKey,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        self.check_first(queue_key);
        let Some(scheduler) = &mut self.scheduler else { return false };
        let Some(waiting) = scheduler.first_single(queue_key) else { return false };
        let Some(progress) = waiting.extras.progress else { return false };
        let begin = progress.sent_bytes;
        let total = waiting.total_bytes();
        let is_reliable = waiting.mode.needs_id();
        // An unreliable message takes its place in the order from its first fragment that was written.
        let number = if is_reliable || begin > 0 { progress.number } else { packet.number };
        let end = if is_reliable {
            debug_assert!(self.reliable.is_some(), "a fragmented message has an id, and was not registered");
            let Some(reliable) = &mut self.reliable else { return false };
            let written = reliable.write_next_fragment(writer, &self.chunks, progress.number, begin, total);
            let Some((end, id)) = written else { return false };
            carry(id);
            end
        } else {
            let written = write_fragment(writer, &waiting.unreliable_message(), number, begin, total);
            let Some(end) = written else { return false };
            debug_assert!(
                progress.receipt.is_none() || self.receipts.is_some(),
                "a fragment is sent under the receipt {:?}, which was never opened",
                progress.receipt
            );
            if let (Some(id), Some(receipts)) = (progress.receipt, &mut self.receipts) {
                receipts.on_fragment(id, end == total);
                carry(id);
                filled.receipt_count = filled.receipt_count.saturating_add(1);
            }
            end
        };
        filled.add_fragment(is_reliable, end == total);
        scheduler.advance(queue_key, number, end);
        // The last fragment is written. A reliable message stays charged, because `reliable` holds its payload.
        if end == total
            && let Some(done) = scheduler.pop(queue_key, true, &mut self.chunks)
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
fn write_value<B: BufMut>(writer: &mut FrameWriter<B>, waiting: SingleEntry<'_>, number: u64) -> Option<u64> {
    let SingleEntry { channel, payload, extras: &ExtraFields { key, version, .. }, .. } = waiting;
    let version = version.unwrap_or(number);
    writer
        .message(&Message { channel, delivery: Delivery::ReliableLatest { key, version }, payload })
        .ok()?;
    Some(version)
}

/// Writes these bodies as a run, or a single body as a message, which is shorter.
pub(super) fn write_bodies<B: BufMut>(
    writer: &mut FrameWriter<B>,
    channel: ChannelId,
    delivery: Delivery,
    count: u16,
    bodies: &[u8],
) -> Result<(), EncodeError> {
    if count > 1 {
        return writer.run_with(channel, delivery, count, bodies.len(), |out| out.put_slice(bodies));
    }
    let payload = Bodies::split_first(bodies).map_or(&[][..], |(payload, _)| payload);
    writer.message(&Message { channel, delivery, payload })
}
