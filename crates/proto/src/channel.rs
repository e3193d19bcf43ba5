//! Messages on their way: out of the application into packets, and out of packets to the application.
//!
//! Unreliable and ReliableOrdered; no fragments and no priorities. Sealing, acks and timers are elsewhere.

pub(crate) mod receive;
pub(crate) mod send;

/// How a message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// At most once, in any order.
    Unreliable,
    /// Exactly once, in the order of the channel.
    ReliableOrdered,
}

/// How to send one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendOptions {
    /// What is promised.
    pub mode: Mode,
}

impl SendOptions {
    /// At most once, in any order.
    #[must_use]
    pub const fn unreliable() -> Self {
        Self { mode: Mode::Unreliable }
    }

    /// Exactly once, in the order of the channel.
    #[must_use]
    pub const fn reliable_ordered() -> Self {
        Self { mode: Mode::ReliableOrdered }
    }
}
