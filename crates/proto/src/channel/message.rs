//! A message on its way to a peer, and how it is sent.

use std::time::Duration;

use bytes::Bytes;
use drumfire_wire::ChannelId;

use super::{Mode, Priority};

/// A message to a peer: a channel, a payload, and how to send it.
///
/// ```
/// use drumfire_proto::{ChannelId, Message, Priority};
///
/// let jump = Message::reliable_ordered(ChannelId(1), "jump").priority(Priority::Urgent);
/// assert_eq!(jump.payload, "jump");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The channel that carries the message.
    pub channel: ChannelId,
    /// The bytes that the peer's application receives.
    pub payload: Bytes,
    /// The delivery mode, the priority, and the lifetime of the message.
    pub options: SendOptions,
}

impl Message {
    /// Creates a message with these options.
    #[must_use]
    pub fn new(channel: ChannelId, payload: impl Into<Bytes>, options: SendOptions) -> Self {
        Self { channel, payload: payload.into(), options }
    }

    /// Creates a message that arrives at most once, in any order.
    #[must_use]
    pub fn unreliable(channel: ChannelId, payload: impl Into<Bytes>) -> Self {
        Self::new(channel, payload, SendOptions::unreliable())
    }

    /// Creates a message that arrives at most once, and never after a newer one of its channel.
    #[must_use]
    pub fn unreliable_sequenced(channel: ChannelId, payload: impl Into<Bytes>) -> Self {
        Self::new(channel, payload, SendOptions::unreliable_sequenced())
    }

    /// Creates a message that arrives exactly once, in any order.
    #[must_use]
    pub fn reliable_unordered(channel: ChannelId, payload: impl Into<Bytes>) -> Self {
        Self::new(channel, payload, SendOptions::reliable_unordered())
    }

    /// Creates a message that arrives exactly once, in the order of the channel.
    #[must_use]
    pub fn reliable_ordered(channel: ChannelId, payload: impl Into<Bytes>) -> Self {
        Self::new(channel, payload, SendOptions::reliable_ordered())
    }

    /// Creates a message that arrives unless a newer one of its channel replaces it.
    #[must_use]
    pub fn reliable_sequenced(channel: ChannelId, payload: impl Into<Bytes>) -> Self {
        Self::new(channel, payload, SendOptions::reliable_sequenced())
    }

    /// Creates the newest value of `key`, of at most 1,024 bytes. It arrives unless a newer value of the same key
    /// replaces it.
    #[must_use]
    pub fn reliable_latest(channel: ChannelId, key: u64, payload: impl Into<Bytes>) -> Self {
        Self::new(channel, payload, SendOptions::reliable_latest(key))
    }

    /// Sets the priority, as [`SendOptions::priority`] does.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.options = self.options.priority(priority);
        self
    }

    /// Gives the message up after `lifetime`, as [`SendOptions::lifetime`] does.
    #[must_use]
    pub const fn lifetime(mut self, lifetime: Duration) -> Self {
        self.options = self.options.lifetime(lifetime);
        self
    }
}

/// The options of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendOptions {
    /// The delivery mode.
    pub mode: Mode,
    /// The key of a value in the mode [`Mode::ReliableLatest`]: any number that the application assigns to an object.
    /// Other modes ignore it.
    pub key: u64,
    /// The priority. A message that waits behind others of its channel and kind is sent with their priority, so that
    /// it does not overtake them.
    pub priority: Priority,
    /// The time after which the message is given up and not sent again. Packets that were sent before may still
    /// arrive. `None`, the default, is no limit.
    pub lifetime: Option<Duration>,
}

impl SendOptions {
    /// Creates options with this mode and normal priority.
    #[must_use]
    pub const fn new(mode: Mode) -> Self {
        Self { mode, key: 0, priority: Priority::Normal, lifetime: None }
    }

    /// Returns options for messages that arrive at most once, in any order.
    #[must_use]
    pub const fn unreliable() -> Self {
        Self::new(Mode::Unreliable)
    }

    /// Returns options for messages that arrive at most once, and never after a newer one.
    #[must_use]
    pub const fn unreliable_sequenced() -> Self {
        Self::new(Mode::UnreliableSequenced)
    }

    /// Returns options for messages that arrive exactly once, in any order.
    #[must_use]
    pub const fn reliable_unordered() -> Self {
        Self::new(Mode::ReliableUnordered)
    }

    /// Returns options for messages that arrive exactly once, in the order of the channel.
    #[must_use]
    pub const fn reliable_ordered() -> Self {
        Self::new(Mode::ReliableOrdered)
    }

    /// Returns options for messages of which the newest always arrives. See [`Mode::ReliableSequenced`].
    #[must_use]
    pub const fn reliable_sequenced() -> Self {
        Self::new(Mode::ReliableSequenced)
    }

    /// Returns options for a value of this key of the channel, at most 1,024 bytes long. The newest value always arrives.
    #[must_use]
    pub const fn reliable_latest(key: u64) -> Self {
        let mut options = Self::new(Mode::ReliableLatest);
        options.key = key;
        options
    }

    /// Gives the message up after `lifetime`. In an ordered channel, later messages are then delivered without it,
    /// and the peer's application is notified of the gap.
    #[must_use]
    pub const fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// Sets the priority.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}
