//! Reliable messages as they arrive and as they are delivered: alone, or as a run of consecutive ids.

use drumfire_wire::{Bodies, ChannelId, MessageId};

use crate::convert::{saturated, to_usize};
use crate::event::charge_all;

/// Reliable messages from one frame, or their Skips.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedMessages<'a> {
    /// The id of the first message.
    pub(crate) id: MessageId,
    /// The message that must be delivered before the first one, with a smaller id. `None` when the first message is due
    /// immediately.
    pub(crate) after: Option<MessageId>,
    /// The channel of the messages.
    pub(crate) channel: ChannelId,
    /// The messages.
    pub(crate) contents: Contents<'a>,
}

/// The unit of delivery: a message, or consecutive messages of one channel, or a note that messages are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents<'a> {
    /// The payload of a message.
    Message(&'a [u8]),
    /// The messages of a run.
    Run(Bodies<'a>),
    /// The number of messages that the peer gave up.
    Skipped(u16),
}

/// Consecutive messages of a run that are accepted in one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunPart<'a> {
    /// The id of the first message.
    pub(super) id: MessageId,
    /// The message that must be delivered before the first one.
    pub(super) after: Option<MessageId>,
    /// The number of messages.
    pub(super) count: u16,
    /// The sum of the lengths of their payloads.
    pub(super) payload_bytes: usize,
    /// The bodies of the run from the first message on.
    pub(super) bodies: &'a [u8],
    /// Whether this is one message, of which fragments arrived before.
    pub(super) is_begun: bool,
}

impl<'a> RunPart<'a> {
    /// The messages of this part of `run`. `next` are the bodies of the run behind them.
    pub(super) fn contents(&self, run: &ReceivedMessages<'_>, next: &[u8]) -> Contents<'a> {
        let Self { count, payload_bytes, bodies, .. } = *self;
        if let Contents::Skipped(_) = run.contents {
            return Contents::Skipped(count);
        }
        let bytes = bodies.get(..bodies.len().saturating_sub(next.len())).unwrap_or_default();
        Contents::Run(Bodies { bytes, count, payload_bytes: saturated(payload_bytes, u32::MAX) })
    }
}

/// Consecutive ids. There is at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdRange {
    /// The smallest id.
    pub(crate) first: u64,
    /// The largest id.
    pub(crate) last: u64,
}

impl Contents<'_> {
    /// The number of messages.
    pub(crate) const fn count(&self) -> u16 {
        match *self {
            Self::Message(_) => 1,
            Self::Run(Bodies { count, .. }) | Self::Skipped(count) => count,
        }
    }

    /// The memory that the messages are charged, in bytes. A Skip is charged like an empty message.
    pub(crate) fn charge(&self) -> usize {
        let payload_bytes = match *self {
            Self::Message(payload) => payload.len(),
            Self::Run(bodies) => to_usize(bodies.payload_bytes),
            Self::Skipped(_) => 0,
        };
        charge_all(self.count(), payload_bytes)
    }
}

impl ReceivedMessages<'_> {
    pub(super) fn ids(&self) -> IdRange {
        IdRange::new(self.id.0, self.contents.count())
    }
}

impl IdRange {
    /// Returns the range of `count` ids from `first` on.
    pub(crate) fn new(first: u64, count: u16) -> Self {
        Self { first, last: first.saturating_add(count.saturating_sub(1).into()) }
    }
}
