//! Room for a new message when the memory is full: what it replaces, and what the options of its channel drop for it.

use drumfire_wire::ChannelId;

use super::{PushResult, SendQueue, charge, release};
use crate::channel::message::SendOptions;
use crate::channel::receipt::Outcome;
use crate::channel::{Mode, WhenFull};

impl SendQueue {
    /// Applies the channel's options when a message of this charge exceeds the limit. A message that replaces an older one
    /// needs only the difference.
    #[cold]
    pub(super) fn make_room(
        &mut self,
        limit_bytes: usize,
        bytes: usize,
        channel: ChannelId,
        options: &SendOptions,
    ) -> PushResult {
        let missing_bytes = self.missing_bytes(limit_bytes, bytes, channel, options);
        if missing_bytes == 0 {
            return PushResult::Taken(0);
        }
        match self.options_of(channel).when_full {
            WhenFull::Block => return PushResult::Full,
            WhenFull::Disconnect => return PushResult::Overflow,
            WhenFull::DropNewest => return PushResult::Dropped(1),
            WhenFull::DropOldest => {}
        }
        // One long message may take the memory of several short ones. Nothing is dropped for a message that has no room even
        // without them.
        let scheduler = self.scheduler.as_deref();
        if !scheduler.is_some_and(|scheduler| scheduler.may_drop(channel, options.mode, missing_bytes)) {
            return PushResult::Dropped(1);
        }
        let mut count = 0_u32;
        // The message that would be replaced may be among those that are dropped. It is then no longer replaced.
        while self.missing_bytes(limit_bytes, bytes, channel, options) > 0 {
            let chunks = &mut self.chunks;
            let oldest = self
                .scheduler
                .as_mut()
                .and_then(|scheduler| scheduler.drop_oldest(channel, options.mode, chunks));
            count = count.saturating_add(1);
            debug_assert!(oldest.is_some(), "{channel:?} has fewer messages to drop than were counted");
            let Some(oldest) = oldest else { return PushResult::Dropped(count) };
            self.recheck_credit();
            release(&mut self.used_bytes, charge(oldest.payload_bytes));
            if let Some(receipt) = oldest.receipt {
                self.receipts.get_or_insert_default().resolve(receipt, Outcome::Expired);
            }
        }
        PushResult::Taken(count)
    }

    /// The memory that a message of this charge lacks, after it has replaced an older one.
    fn missing_bytes(
        &self,
        limit_bytes: usize,
        bytes: usize,
        channel: ChannelId,
        options: &SendOptions,
    ) -> usize {
        let replaced_bytes = self.replaced_bytes(channel, options);
        // A replacement that takes no more memory than the older message is never refused, even above the limit.
        if bytes <= replaced_bytes {
            return 0;
        }
        let used_bytes = self.used_bytes.saturating_sub(replaced_bytes);
        used_bytes.saturating_add(bytes).saturating_sub(limit_bytes)
    }

    /// The charge of the older message that a new one with these options replaces. 0 if it replaces none.
    fn replaced_bytes(&self, channel: ChannelId, options: &SendOptions) -> usize {
        let scheduler = self.scheduler.as_deref();
        let charge_at = |index| scheduler.map_or(0, |scheduler| scheduler.charge_at(index));
        match (options.mode, &self.latest) {
            (Mode::ReliableLatest, Some(latest)) => latest.replaced_bytes((channel, options.key), charge_at),
            (Mode::ReliableSequenced, _) => scheduler.map_or(0, |queues| queues.replaced_bytes(channel)),
            _ => 0,
        }
    }
}
