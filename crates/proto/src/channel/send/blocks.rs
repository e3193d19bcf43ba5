//! Messages of blocks that connections share: a segment refers to the block, and nothing is copied until a packet is filled.

use std::ops::Range;
use std::sync::Arc;

use super::scheduler::ChannelScheduler;
use super::segment::Segment;
use super::{SendQueue, charge};
use crate::channel::block::{BlockOptions, MessageBlock};
use crate::channel::message::SendOptions;
use crate::limits::{ITEM_CHARGE_BYTES, REDUNDANT_MAX_BYTES};
use crate::time::Moment;

impl SendQueue {
    /// Queues messages from the front of a range of a block, as many as `limit_bytes` of memory have room for. Returns their
    /// number. The channel's options are not applied: the caller must push the next message alone.
    pub(crate) fn push_block(
        &mut self,
        limit_bytes: usize,
        now: Moment,
        options: &BlockOptions,
        block: &Arc<MessageBlock>,
        range: Range<usize>,
    ) -> usize {
        let &BlockOptions { channel, options: SendOptions { mode, priority, lifetime, .. } } = options;
        let scheduler = self.scheduler.get_or_insert_with(|| Box::new(ChannelScheduler::new(self.hash)));
        // The messages of other modes are queued one by one. Short messages are repeated for redundancy and long ones are not,
        // so they are in different segments.
        let has_copies = scheduler.options_of(channel).redundancy.copies() > 0;
        if !mode.has_runs() || (has_copies && block.longest_bytes() > REDUNDANT_MAX_BYTES) {
            return 0;
        }
        // A message of a block is charged as any other: the block stays until its last receiver has acknowledged it.
        let left_bytes = priority.share_of(limit_bytes).saturating_sub(self.used_bytes);
        let charge_of = |count: usize| {
            let messages = range.start..range.start.saturating_add(count);
            let payload_bytes = block.payload_bytes(&messages);
            payload_bytes.saturating_add(count.saturating_mul(ITEM_CHARGE_BYTES))
        };
        let count = if charge_of(range.len()) <= left_bytes {
            range.len()
        } else {
            // The segment is cut where the memory ends.
            let mut left_bytes = left_bytes;
            let fits = range.clone().map_while(|index| {
                left_bytes = left_bytes.checked_sub(charge(block.payload(index).len()))?;
                Some(())
            });
            fits.count()
        };
        let messages = range.start..range.start.saturating_add(count);
        let Some(segment) = Segment::of_block(block, &messages) else { return 0 };
        let deadline = lifetime.map(|lifetime| now.after(lifetime));
        let bytes = charge_of(count);
        // A segment of a block is in the same queue as single messages, so the order is that of the calls.
        scheduler.push_segment(channel, mode, segment, now, deadline, priority);
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        self.reported_bytes = self.reported_bytes.saturating_add(bytes);
        count
    }
}
