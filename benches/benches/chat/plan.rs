//! The parameters of a run: the server, the number of clients, their messages, and the times.

use std::time::Duration;

use drumfire::SendOptions;

/// A server, and how messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// drumfire with reliable ordered messages, which gather for 50 ms before they are broadcast.
    Ordered,
    /// As [`Arm::Ordered`], with unreliable messages.
    Unreliable,
    /// The baseline of the journal over TCP, not encrypted.
    Tcp,
}

impl Arm {
    pub(crate) const ALL: [Self; 3] = [Self::Ordered, Self::Unreliable, Self::Tcp];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ordered => "reliable-ordered, 50 ms",
            Self::Unreliable => "unreliable, 50 ms",
            Self::Tcp => "TCP, a write per message",
        }
    }

    pub(crate) const fn is_reliable(self) -> bool {
        !matches!(self, Self::Unreliable)
    }

    /// The options of messages in both directions.
    pub(crate) const fn options(self) -> SendOptions {
        if self.is_reliable() { SendOptions::reliable_ordered() } else { SendOptions::unreliable() }
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) arm: Arm,
    /// The number of clients that speak.
    pub(crate) clients: u32,
    /// The rate of messages, in percent of the journal's.
    pub(crate) speed: u32,
    pub(crate) seed: u64,
    /// The time between two status lines. The first interval with load is the warm-up.
    pub(crate) interval_ns: u64,
    /// The measured time, which is a multiple of the interval.
    pub(crate) window: Duration,
    /// Whether there is one more client, which says nothing and stops reading within the window.
    pub(crate) has_stalled: bool,
}

impl Plan {
    /// All connections.
    pub(crate) const fn connections(&self) -> u32 {
        self.clients + self.has_stalled as u32
    }
}
