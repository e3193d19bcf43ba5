//! Messages on their way: out of the application into packets, and out of packets to the application.
//!
//! Sealing, acks and timers are elsewhere.

pub(crate) mod credit;
pub(crate) mod outbox;
mod ranges;
pub(crate) mod receipt;
pub(crate) mod receive;
pub(crate) mod send;

use std::num::NonZeroU8;
use std::time::Duration;

use crate::limits::{RELIABLE_MESSAGE_MAX_BYTES, UNRELIABLE_MESSAGE_MAX_BYTES, VALUE_MAX_BYTES};

/// How a message is delivered (PROTOCOL 8, "Messages and delivery modes"). Messages of different modes in one channel share the
/// number of the channel and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// At most once, in any order.
    Unreliable,
    /// At most once, never an older one after a newer.
    UnreliableSequenced,
    /// Exactly once, in any order.
    ReliableUnordered,
    /// Exactly once, in the order of the channel.
    ReliableOrdered,
    /// The newest always arrives, and older ones before it or not at all: one is under way, and what comes meanwhile takes
    /// the place of what waits.
    ReliableSequenced,
    /// Of each key the newest value always arrives; a value that a newer one of its key takes the place of is forgotten,
    /// never queued and never sent again. The newest may come twice where a receiver has more than 2,048 keys or is short of
    /// memory. For the state of many things: positions, doors, inventories.
    ReliableLatest,
}

impl Mode {
    /// Whether its messages have ids and are sent again when they are lost.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Unreliable | Self::UnreliableSequenced)
    }

    /// Bytes of the longest message; of reliable ones but values, unless the configuration of either end says otherwise.
    #[must_use]
    pub const fn message_max_bytes(self) -> usize {
        match self {
            Self::ReliableLatest => VALUE_MAX_BYTES,
            Self::Unreliable | Self::UnreliableSequenced => UNRELIABLE_MESSAGE_MAX_BYTES,
            _ => RELIABLE_MESSAGE_MAX_BYTES,
        }
    }

    /// Whether its messages are told apart by ids, of which there may be too many under way.
    pub(crate) const fn needs_id(self) -> bool {
        matches!(self, Self::ReliableUnordered | Self::ReliableOrdered | Self::ReliableSequenced)
    }
}

/// What goes first when not everything can go. A higher class goes before any of a lower one; within one, channels share
/// by bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before everything else.
    Urgent,
    /// As most messages.
    #[default]
    Normal,
    /// When nothing normal waits.
    Low,
    /// When nothing else waits: assets, replays, logs.
    Bulk,
}

impl Priority {
    /// How many there are.
    pub const COUNT: usize = 4;

    const ALL: [Self; Self::COUNT] = [Self::Urgent, Self::Normal, Self::Low, Self::Bulk];

    /// How much of a memory of so many bytes its messages may fill: of low and bulk ones three quarters, so that what is more
    /// urgent finds room.
    #[must_use]
    pub const fn share_of(self, bytes: usize) -> usize {
        match self {
            Self::Urgent | Self::Normal => bytes,
            Self::Low | Self::Bulk => bytes.saturating_sub(bytes / 4),
        }
    }

    pub(crate) fn of_class(class: usize) -> Self {
        Self::ALL.get(class).copied().unwrap_or_default()
    }

    /// Its place among the classes, the first first.
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

/// How often a short reliable message that was not acknowledged rides again in packets that are sent anyway, where it fits:
/// so a lost input is there with the next packet, and not a round trip later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Redundancy {
    /// Not at all.
    #[default]
    None,
    /// In one more packet.
    One,
    /// In two more.
    Two,
    /// In three more.
    Three,
}

impl Redundancy {
    pub(crate) const fn copies(self) -> u8 {
        match self {
            Self::None => 0,
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

/// What becomes of a message of a channel when the connection's send memory is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum WhenFull {
    /// It is not taken, and its sender is told so: [`SendError::Full`](crate::SendError::Full).
    #[default]
    Block,
    /// It takes the place of the channel's oldest messages that were not sent yet; where there are none, it is dropped.
    DropOldest,
    /// It is dropped.
    DropNewest,
    /// The connection is closed: a channel that must not lose anything is of no use any more.
    Disconnect,
}

/// How the messages of a channel are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelOptions {
    /// How many bytes the channel may send in its turn, compared to other channels of the same priority. 1 by default.
    pub weight: NonZeroU8,
    /// How often its reliable messages of up to [`REDUNDANT_MAX_BYTES`](crate::limits::REDUNDANT_MAX_BYTES) ride again.
    pub redundancy: Redundancy,
    /// What becomes of its messages when there is no memory for them.
    pub when_full: WhenFull,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self { weight: NonZeroU8::MIN, redundancy: Redundancy::None, when_full: WhenFull::Block }
    }
}

impl ChannelOptions {
    /// With this weight, 1 to 255: so many times the bytes of a channel with weight 1 of the same priority.
    #[must_use]
    pub const fn weight(mut self, weight: NonZeroU8) -> Self {
        self.weight = weight;
        self
    }

    /// With this way of dealing with a full memory. What is dropped is counted, and its receipt says
    /// [`Outcome::Expired`](crate::Outcome::Expired).
    #[must_use]
    pub const fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// With copies in later packets.
    #[must_use]
    pub const fn redundancy(mut self, redundancy: Redundancy) -> Self {
        self.redundancy = redundancy;
        self
    }
}

/// How to send one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendOptions {
    /// What is promised.
    pub mode: Mode,
    /// Whose value it is, in the mode [`Mode::ReliableLatest`]: any number that the application gives a thing. Others have no use
    /// for it.
    pub key: u64,
    /// What it goes before. A message behind others of its channel and kind goes with their priority, so that none
    /// overtakes.
    pub priority: Priority,
    /// After so long it is given up: not sent any more, and not again. What was sent by then may still arrive. `None`, the
    /// default, is never.
    pub lifetime: Option<Duration>,
    /// Whether the sender wants to know what became of it; for the one who draws the receipt's id.
    pub wants_receipt: bool,
    /// Whether it leaves at once, with all that was taken before, and does not wait for the next flush; for shells that
    /// gather messages.
    pub is_flushed: bool,
}

impl SendOptions {
    /// With this mode and normal priority.
    #[must_use]
    pub const fn new(mode: Mode) -> Self {
        Self {
            mode,
            key: 0,
            priority: Priority::Normal,
            lifetime: None,
            wants_receipt: false,
            is_flushed: false,
        }
    }

    /// At most once, in any order.
    #[must_use]
    pub const fn unreliable() -> Self {
        Self::new(Mode::Unreliable)
    }

    /// At most once, never an older one after a newer.
    #[must_use]
    pub const fn unreliable_sequenced() -> Self {
        Self::new(Mode::UnreliableSequenced)
    }

    /// Exactly once, in any order.
    #[must_use]
    pub const fn reliable_unordered() -> Self {
        Self::new(Mode::ReliableUnordered)
    }

    /// Exactly once, in the order of the channel.
    #[must_use]
    pub const fn reliable_ordered() -> Self {
        Self::new(Mode::ReliableOrdered)
    }

    /// The newest always arrives.
    #[must_use]
    pub const fn reliable_sequenced() -> Self {
        Self::new(Mode::ReliableSequenced)
    }

    /// Of this key of the channel, the newest value always arrives. At most 1,024 bytes.
    #[must_use]
    pub const fn reliable_latest(key: u64) -> Self {
        let mut options = Self::new(Mode::ReliableLatest);
        options.key = key;
        options
    }

    /// Given up after so long. Of a reliable channel in order, those behind it are delivered without it, and the peer hears
    /// that something was left out.
    #[must_use]
    pub const fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// With one event to come that tells what became of it.
    #[must_use]
    pub const fn with_receipt(mut self) -> Self {
        self.wants_receipt = true;
        self
    }

    /// Sent at once, with all that was taken before, instead of with the next flush: a packet and a system call of its own.
    #[must_use]
    pub const fn flush_now(mut self) -> Self {
        self.is_flushed = true;
        self
    }

    /// With this priority.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}
