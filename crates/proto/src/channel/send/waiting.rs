//! A message that waits to be sent, and the properties that few messages have.

use bytes::Bytes;
use drumfire_wire::{ChannelId, MessageId};

use crate::channel::Mode;
use crate::channel::receipt::ReceiptId;
use crate::limits::MESSAGE_MAX_BYTES;
use crate::time::Moment;

/// A message that is added to a queue or removed from it.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub(super) channel: ChannelId,
    pub(super) mode: Mode,
    pub(super) payload: Bytes,
    pub(super) queued_at: Moment,
    pub(super) extras: Extras,
}

/// A message in its queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueEntry<'a> {
    pub(super) channel: ChannelId,
    pub(super) mode: Mode,
    pub(super) payload: &'a Bytes,
    pub(super) queued_at: Moment,
    pub(super) extras: &'a Extras,
}

/// Properties that most messages do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extras {
    pub(super) terms: DeliveryTerms,
    /// The key of a ReliableLatest value.
    pub(super) key: u64,
    /// The version of a ReliableLatest value, if it was sent before.
    pub(super) version: Option<u64>,
    /// The progress of a fragmented message.
    pub(super) progress: Option<Progress>,
}

/// The lifetime and the receipt of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeliveryTerms {
    pub(super) deadline: Option<Moment>,
    pub(super) receipt: Option<ReceiptId>,
}

/// The progress of a fragmented message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// The message id, or the fragment number of an unreliable message.
    pub(super) number: u64,
    pub(super) sent_bytes: u32,
    /// The id by which the fate of an unreliable message is reported, if it has a receipt.
    pub(super) receipt: Option<MessageId>,
}

impl Extras {
    pub(super) const NONE: Self = Self {
        terms: DeliveryTerms { deadline: None, receipt: None },
        key: 0,
        version: None,
        progress: None,
    };
}

impl DeliveryTerms {
    pub(super) fn is_over(self, now: Moment) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl QueueEntry<'_> {
    /// The size of the next part to be sent, at most.
    pub(super) fn next_bytes(&self) -> u32 {
        let sent = self.extras.progress.map_or(0, |progress| progress.sent_bytes);
        let bytes = u32::try_from(self.payload.len()).unwrap_or(u32::MAX).saturating_sub(sent);
        bytes.min(u32::try_from(MESSAGE_MAX_BYTES).unwrap_or(u32::MAX))
    }
}
