//! The messages at the front of a queue that can be sent as a run.

use bytes::BufMut;
use drumfire_wire::{Bodies, FrameWriter, Message};

use super::{ChannelQueue, ChannelScheduler, QueueKey};
use crate::channel::Mode;
use crate::channel::send::sent_run::RunFrame;
use crate::channel::send::waiting::QueueEntry;
use crate::convert::to_u64;
use crate::event::charge;
use crate::limits::REDUNDANT_MAX_BYTES;

/// The length in bytes of the shortest payload that is never part of a run. Few such messages fit a packet, and their
/// payloads are better shared with the application than copied.
const ALONE_MIN_BYTES: usize = 512;

/// The limits of a run besides the room in its packet.
#[derive(Debug, Clone, Copy)]
pub(in crate::channel::send) struct RunLimits {
    /// The class of priority that has its turn.
    pub(in crate::channel::send) class: usize,
    /// The number of ids that may be given.
    pub(in crate::channel::send) id_count: u64,
    /// The peer's credit in bytes.
    pub(in crate::channel::send) charge_bytes: usize,
    /// Short messages are repeated, and long ones are not.
    pub(in crate::channel::send) has_copies: bool,
}

impl ChannelScheduler {
    /// Whether the first two messages of the current queue can be in one run.
    pub(in crate::channel::send) fn begins_run(&self, key: QueueKey) -> bool {
        // In the usual case one message waits.
        if self.queue(key).is_none_or(|queue| queue.first == queue.last) {
            return false;
        }
        let mut entries = self.entries(key);
        let (Some(first), Some(second)) = (entries.next(), entries.next()) else { return false };
        can_join(first, first) && can_join(first, second)
    }

    /// Adds messages from the front of the current queue to a run, as far as the limits allow.
    pub(in crate::channel::send) fn fit_run(
        &self,
        key: QueueKey,
        limits: &RunLimits,
        mut fit: RunFrame,
    ) -> RunFrame {
        let Some(first) = self.first(key) else { return fit };
        // The first message has its turn. The others go with it as far as they would have the turn too.
        let is_alone =
            self.only.is_some() || self.turns.get(limits.class).is_some_and(|turns| turns.len() == 1);
        let turn_bytes =
            if is_alone { u32::MAX } else { self.queue(key).map_or(0, |queue| queue.credit_bytes) };
        let is_short = |entry: QueueEntry<'_>| entry.payload.len() <= REDUNDANT_MAX_BYTES;
        let (mut bytes, mut charge_bytes) = (0_u32, 0_usize);
        for entry in self.entries(key) {
            let payload_bytes = entry.payload.len();
            bytes = bytes.saturating_add(entry.next_bytes());
            charge_bytes = charge_bytes.saturating_add(charge(payload_bytes));
            let is_alike =
                can_join(first, entry) && (!limits.has_copies || is_short(first) == is_short(entry));
            let has_turn = fit.count == 0 || bytes <= turn_bytes;
            let has_id = u64::from(fit.count) < limits.id_count;
            if !(is_alike && has_turn && has_id)
                || charge_bytes > limits.charge_bytes
                || !fit.take(Bodies::encoded_bytes(payload_bytes), payload_bytes)
            {
                break;
            }
        }
        fit
    }

    /// The payloads of the current queue, oldest first.
    pub(in crate::channel::send) fn payloads(&self, key: QueueKey) -> impl Iterator<Item = &[u8]> {
        self.entries(key).map(|entry| &**entry.payload)
    }

    /// Writes the first messages of a queue without ids as a run. Returns their number, or `None` if there is only one
    /// that fits, which is shorter as a message.
    pub(in crate::channel::send) fn write_unreliable_run<B: BufMut>(
        &self,
        key: QueueKey,
        class: usize,
        writer: &mut FrameWriter<B>,
    ) -> Option<u16> {
        if !self.begins_run(key) {
            return None;
        }
        let Message { channel, delivery, .. } = self.first(key)?.unreliable_message();
        let head = Message { channel, delivery, payload: &[] };
        let limits =
            RunLimits { class, id_count: to_u64(usize::MAX), charge_bytes: usize::MAX, has_copies: false };
        let fit = self.fit_run(key, &limits, RunFrame::behind(writer, &head)?);
        if fit.count < 2 {
            return None;
        }
        // Nothing is kept of unreliable messages, so their bodies need no memory besides the packet.
        let written = writer.run_with(channel, delivery, fit.count, fit.body_bytes, |out| {
            let payloads = self.payloads(key).take(fit.count.into());
            payloads.for_each(|payload| Bodies::put(payload, out));
        });
        debug_assert!(written.is_ok(), "a run of {fit:?} was measured to fit: {written:?}");
        written.ok().map(|()| fit.count)
    }

    /// The messages of the current queue, oldest first.
    fn entries(&self, key: QueueKey) -> impl Iterator<Item = QueueEntry<'_>> {
        let mut index = self.queue(key).map(|queue| queue.first);
        std::iter::from_fn(move || {
            let entry = self.messages.get(index?);
            index = index.map(|index| self.messages.next_of(index));
            entry
        })
    }

    /// Returns the current queue.
    #[inline]
    fn queue(&self, key: QueueKey) -> Option<&ChannelQueue> {
        match &self.only {
            Some((_, queue)) => Some(queue),
            None => self.queues.get(&key),
        }
    }
}

/// Whether a message can follow `first` in a run. They have one mode and expire together.
fn can_join(first: QueueEntry<'_>, entry: QueueEntry<'_>) -> bool {
    let has_runs = !matches!(entry.mode, Mode::ReliableSequenced | Mode::ReliableLatest);
    // A message that has a longer lifetime must not be skipped with the others.
    has_runs
        && entry.mode == first.mode
        && entry.payload.len() < ALONE_MIN_BYTES
        && entry.extras.terms.deadline == first.extras.terms.deadline
        && entry.extras.progress.is_none()
}
