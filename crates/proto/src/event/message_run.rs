//! Messages that the application takes together.

use drumfire_wire::{Bodies, ChannelId};

use crate::convert::to_usize;
use crate::peer_id::PeerId;

/// Consecutive messages of one peer and one channel that arrived together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRun<'a> {
    /// The sender of the messages.
    pub peer: PeerId,
    /// The channel of the messages.
    pub channel: ChannelId,
    pub(super) bodies: Bodies<'a>,
}

impl<'a> MessageRun<'a> {
    /// Returns the payloads of the messages in their order.
    pub fn payloads(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bodies.payloads()
    }

    /// Returns the number of messages. There is at least one.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.bodies.count
    }

    /// Returns the sum of the lengths of all payloads, in bytes.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        to_usize(self.bodies.payload_bytes)
    }
}

/// Returns the bodies of a run from the parts of its event.
pub(super) const fn run_of(bytes: &[u8], count: u16, payload_bytes: u32) -> Bodies<'_> {
    Bodies { bytes, count, payload_bytes }
}
