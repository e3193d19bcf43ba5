//! Messages between the application and packets, in both directions.
//!
//! Encryption, acks, and timers are in other modules.

pub(crate) mod block;
pub(crate) mod credit;
pub(crate) mod message;
mod ranges;
pub(crate) mod receipt;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod send_state;

use std::num::NonZeroU8;

use crate::limits::{
    ITEM_CHARGE_BYTES, RELIABLE_MESSAGE_MAX_BYTES, UNRELIABLE_MESSAGE_MAX_BYTES, VALUE_MAX_BYTES,
};

/// The delivery mode of a message (PROTOCOL 8, "Messages and delivery modes"). Messages of different modes in one channel
/// share nothing except the channel number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// A message is delivered at most once, in any order.
    Unreliable,
    /// A message is delivered at most once, and never after a newer one.
    UnreliableSequenced,
    /// A message is delivered exactly once, in any order.
    ReliableUnordered,
    /// A message is delivered exactly once, in the order of the channel.
    ReliableOrdered,
    /// The newest message always arrives. Older ones arrive before it or not at all. One message is in flight at a
    /// time, and a newer one replaces the one that waits.
    ReliableSequenced,
    /// The newest value of each key always arrives. A value that a newer one of its key replaces is dropped: neither
    /// queued nor sent again. The newest value may arrive twice when a receiver has more than 2,048 keys or little
    /// memory. For the state of many objects: positions, doors, inventories.
    ReliableLatest,
}

impl Mode {
    /// Returns whether messages of this mode are sent again when they are lost.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Unreliable | Self::UnreliableSequenced)
    }

    /// Returns the maximum length of a message in bytes. For reliable messages, except values, the configuration of
    /// either end may set another limit.
    #[must_use]
    pub const fn message_max_bytes(self) -> usize {
        match self {
            // A value is never fragmented, and an unreliable message is lost with any of its fragments, so both are
            // short.
            Self::ReliableLatest => VALUE_MAX_BYTES,
            Self::Unreliable | Self::UnreliableSequenced => UNRELIABLE_MESSAGE_MAX_BYTES,
            _ => RELIABLE_MESSAGE_MAX_BYTES,
        }
    }

    /// Whether messages of this mode are identified by ids, of which a limited number may be in flight.
    pub(crate) const fn needs_id(self) -> bool {
        // A value is identified by its key and version, and an unreliable message by its packet.
        matches!(self, Self::ReliableUnordered | Self::ReliableOrdered | Self::ReliableSequenced)
    }

    /// Whether consecutive messages of this mode may be sent as one run.
    pub(crate) const fn has_runs(self) -> bool {
        // The other modes have one message in flight per channel or key.
        !matches!(self, Self::ReliableSequenced | Self::ReliableLatest)
    }
}

/// The class of a message, which decides what is sent first when not everything can be sent. A higher class precedes
/// all lower ones. Within a class, channels share the bandwidth by bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// The message is sent before all other messages.
    Urgent,
    /// The message is sent when no urgent message waits. This suits most messages.
    #[default]
    Normal,
    /// The message is sent when no urgent or normal message waits.
    Low,
    /// The message is sent when no other message waits. This suits assets, replays, and logs.
    Bulk,
}

impl Priority {
    /// The number of priorities.
    pub const COUNT: usize = 4;

    const ALL: [Self; Self::COUNT] = [Self::Urgent, Self::Normal, Self::Low, Self::Bulk];

    /// Returns the part of a memory of `bytes` that messages of this priority may fill, in bytes. Low and bulk messages
    /// may fill three quarters, so that urgent messages always have room.
    #[must_use]
    pub const fn share_of(self, bytes: usize) -> usize {
        match self {
            Self::Urgent | Self::Normal => bytes,
            // Messages of these classes wait for the others, so they would fill all of the memory under load.
            Self::Low | Self::Bulk => bytes.saturating_sub(bytes / 4),
        }
    }

    /// Returns the priority with this index.
    pub(crate) fn of_class(class: usize) -> Self {
        debug_assert!(class < Self::COUNT, "there is no class {class}");
        Self::ALL.get(class).copied().unwrap_or_default()
    }

    /// Returns the index of this class, from 0 for the highest.
    #[must_use]
    pub const fn class(self) -> usize {
        match self {
            Self::Urgent => 0,
            Self::Normal => 1,
            Self::Low => 2,
            Self::Bulk => 3,
        }
    }
}

/// The number of later packets that repeat a short reliable message while it is not acknowledged, where it fits. A lost
/// input then arrives with the next packet, and not a round trip later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Redundancy {
    /// The message is not repeated in advance.
    #[default]
    None,
    /// The message is repeated in one later packet.
    One,
    /// The message is repeated in two later packets.
    Two,
    /// The message is repeated in three later packets.
    Three,
}

impl Redundancy {
    /// The number of packets that repeat a message.
    pub(crate) const fn copies(self) -> u8 {
        match self {
            Self::None => 0,
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

/// The treatment of a message when the connection's send memory is full. A message that replaces an older one takes over its
/// memory, and needs room only for the bytes by which it is longer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum WhenFull {
    /// The message is refused with [`SendError::Full`](crate::SendError::Full).
    #[default]
    Block,
    /// The message replaces the oldest messages of its channel that were not sent yet. If it has no room even without
    /// them, it is dropped alone.
    DropOldest,
    /// The new message is dropped. Messages that already wait stay.
    DropNewest,
    /// The connection is closed. This suits channels in which no message may be lost.
    Disconnect,
}

/// The treatment of a message by [`Endpoint::send_with`](crate::Endpoint::send_with) when the send memory is full and the
/// channel of the message has [`WhenFull::Block`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum IfFull {
    /// The message is refused. [`Event::Writable`](crate::Event::Writable) follows.
    #[default]
    Notify,
    /// The message is refused, and no event follows. This suits senders that do not try again.
    Refuse,
    /// The message is accepted, for a caller that has counted the memory of its messages itself.
    Accept,
}

/// Returns the number of used bytes below which a refused sender is notified. `room_bytes` is the memory that its messages
/// may use, and `payload_bytes` the length of the refused message.
///
/// At that point one of `parts` equal parts of the memory is free, so that each notification serves many messages, and the
/// refused message fits.
#[must_use]
pub const fn notify_below_bytes(room_bytes: usize, payload_bytes: usize, parts: usize) -> usize {
    let part_bytes = match room_bytes.checked_div(parts) {
        Some(bytes) => bytes,
        None => room_bytes,
    };
    let used_bytes = room_bytes.saturating_sub(part_bytes);
    let fitting_bytes = room_bytes.saturating_sub(payload_bytes.saturating_add(ITEM_CHARGE_BYTES));
    // A message that is longer than all of the memory is refused even by an empty queue. Its sender is notified of the empty one.
    (if used_bytes < fitting_bytes { used_bytes } else { fitting_bytes }).saturating_add(1)
}

/// The options of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelOptions {
    /// The share of the bandwidth, relative to other channels of the same priority, from 1 to 255. The default is 1.
    pub weight: NonZeroU8,
    /// The number of times that reliable messages of up to
    /// [`REDUNDANT_MAX_BYTES`](crate::limits::REDUNDANT_MAX_BYTES) bytes are repeated
    /// in later packets. The default is [`Redundancy::None`].
    pub redundancy: Redundancy,
    /// The treatment of messages for which there is no memory. The default is [`WhenFull::Block`].
    pub when_full: WhenFull,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self { weight: NonZeroU8::MIN, redundancy: Redundancy::None, when_full: WhenFull::Block }
    }
}

impl ChannelOptions {
    /// Sets the weight, from 1 to 255. A channel with weight 3 sends three times the bytes of a channel with weight 1 and
    /// the same priority, while both have messages to send.
    #[must_use]
    pub const fn weight(mut self, weight: NonZeroU8) -> Self {
        self.weight = weight;
        self
    }

    /// Sets how messages are treated when the send memory is full. Dropped messages are counted, and their receipts
    /// report [`Outcome::Expired`](crate::Outcome::Expired).
    #[must_use]
    pub const fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Sets how often short reliable messages are repeated in later packets.
    #[must_use]
    pub const fn redundancy(mut self, redundancy: Redundancy) -> Self {
        self.redundancy = redundancy;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_reliability_and_its_longest_message() {
        for (mode, is_reliable, needs_id, message_max_bytes) in [
            (Mode::Unreliable, false, false, UNRELIABLE_MESSAGE_MAX_BYTES),
            (Mode::UnreliableSequenced, false, false, UNRELIABLE_MESSAGE_MAX_BYTES),
            (Mode::ReliableUnordered, true, true, RELIABLE_MESSAGE_MAX_BYTES),
            (Mode::ReliableOrdered, true, true, RELIABLE_MESSAGE_MAX_BYTES),
            (Mode::ReliableSequenced, true, true, RELIABLE_MESSAGE_MAX_BYTES),
            (Mode::ReliableLatest, true, false, VALUE_MAX_BYTES),
        ] {
            assert_eq!(
                (mode.is_reliable(), mode.needs_id(), mode.message_max_bytes()),
                (is_reliable, needs_id, message_max_bytes),
                "{mode:?}"
            );
        }
    }
}
