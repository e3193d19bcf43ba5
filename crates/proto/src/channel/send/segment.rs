//! A message that waits to be sent, and the properties that few messages have.

use bytes::Bytes;
use drumfire_wire::{ChannelId, Delivery, Message, MessageId};

use crate::channel::Mode;
use crate::channel::receipt::ReceiptId;
use crate::convert::saturated;
use crate::limits::MESSAGE_MAX_BYTES;
use crate::time::Moment;

/// The most bytes that count against a queue in one step: the longest message that is sent whole.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it is less than a datagram, and a constant cannot be converted otherwise"
)]
const TURN_MAX_BYTES: u32 = MESSAGE_MAX_BYTES as u32;

/// A message that is added to a queue or removed from it.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    /// The channel.
    pub(super) channel: ChannelId,
    /// The delivery mode.
    pub(super) mode: Mode,
    /// The content.
    pub(super) payload: Bytes,
    /// When the application sent the message.
    pub(super) queued_at: Moment,
    /// The properties that most messages do not have.
    pub(super) extras: Extras,
}

/// A message in its queue, with the fields of [`QueuedMessage`].
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
    /// The lifetime and the receipt.
    pub(super) terms: DeliveryTerms,
    /// The key of a ReliableLatest value, and 0 in other modes.
    pub(super) key: u64,
    /// The version of a ReliableLatest value. `None` for a value that was not sent before, and in other modes.
    pub(super) version: Option<u64>,
    /// The progress of a fragmented message. `None` for a message that is not, or not yet, fragmented.
    pub(super) progress: Option<Progress>,
}

/// The lifetime and the receipt of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeliveryTerms {
    /// When the message is given up. `None` for a message without a lifetime.
    pub(super) deadline: Option<Moment>,
    /// The receipt that reports the fate of the message. `None` without one, and after it was answered.
    pub(super) receipt: Option<ReceiptId>,
}

/// The progress of a fragmented message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// The message id, or the fragment number of an unreliable message.
    pub(super) number: u64,
    /// The number of bytes that were written into packets. The next fragment begins behind them.
    pub(super) sent_bytes: u32,
    /// The id by which the fate of an unreliable message is reported. `None` for a message without a receipt.
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
    /// Whether the lifetime has ended.
    pub(super) fn is_over(self, now: Moment) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl<'a> QueueEntry<'a> {
    /// The length of the whole payload in bytes.
    pub(super) fn total_bytes(&self) -> u32 {
        // The endpoint refuses messages of more than 16 MiB before they are queued.
        debug_assert!(u32::try_from(self.payload.len()).is_ok(), "{} bytes are queued", self.payload.len());
        saturated(self.payload.len(), u32::MAX)
    }

    /// Returns an unreliable message as it would be sent whole.
    pub(super) fn unreliable_message(self) -> Message<'a> {
        let is_sequenced = self.mode == Mode::UnreliableSequenced;
        let delivery = if is_sequenced { Delivery::UnreliableSequenced } else { Delivery::Unreliable };
        Message { channel: self.channel, delivery, payload: self.payload }
    }

    /// The size of the next part to be sent, at most.
    pub(super) fn next_bytes(&self) -> u32 {
        // A turn costs what one packet carries, so a long message does not save up credit for all of its bytes.
        let sent = self.extras.progress.map_or(0, |progress| progress.sent_bytes);
        self.total_bytes().saturating_sub(sent).min(TURN_MAX_BYTES)
    }
}
