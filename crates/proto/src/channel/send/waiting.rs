//! A message that waits to be sent, and what few of them have beside payload and channel.

use bytes::Bytes;
use drumfire_wire::{ChannelId, MessageId};

use crate::channel::Mode;
use crate::channel::receipt::ReceiptId;
use crate::limits::MESSAGE_MAX_BYTES;
use crate::time::Moment;

/// A message on its way into a line or out of one.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) channel: ChannelId,
    pub(super) mode: Mode,
    pub(super) payload: Bytes,
    pub(super) queued_at: Moment,
    pub(super) extras: Extras,
}

/// A message as it stands in its line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing<'a> {
    pub(super) channel: ChannelId,
    pub(super) mode: Mode,
    pub(super) payload: &'a Bytes,
    pub(super) queued_at: Moment,
    pub(super) extras: &'a Extras,
}

/// What most messages have nothing of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extras {
    pub(super) terms: Terms,
    /// Whose value it is, and the version it was sent with, if it was: of ReliableLatest channels.
    pub(super) key: u64,
    pub(super) version: Option<u64>,
    /// How far it has come, if it is sent in pieces.
    pub(super) progress: Option<Progress>,
}

/// Until when a message is worth sending, and who wants to know what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) deadline: Option<Moment>,
    pub(super) receipt: Option<ReceiptId>,
}

/// How far a message in pieces has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// Its id, or the number of an unreliable one.
    pub(super) number: u64,
    pub(super) sent_bytes: u32,
    /// By which the fate of an unreliable one is told, if somebody wants to hear of it.
    pub(super) receipt: Option<MessageId>,
}

impl Extras {
    pub(super) const NONE: Self =
        Self { terms: Terms { deadline: None, receipt: None }, key: 0, version: None, progress: None };
}

impl Terms {
    pub(super) fn is_over(self, now: Moment) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Standing<'_> {
    /// What of it may go next, at most.
    pub(super) fn next_bytes(&self) -> u32 {
        let sent = self.extras.progress.map_or(0, |progress| progress.sent_bytes);
        let bytes = u32::try_from(self.payload.len()).unwrap_or(u32::MAX).saturating_sub(sent);
        bytes.min(u32::try_from(MESSAGE_MAX_BYTES).unwrap_or(u32::MAX))
    }
}
