//! The parameters of a run: the server, the number of clients, their messages, and the times.

use std::time::Duration;

use drumfire::SendOptions;

/// A server, and how messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    pub(crate) is_tcp: bool,
    pub(crate) is_reliable: bool,
}

/// drumfire with reliable ordered messages, which gather for 50 ms before they are broadcast.
pub(crate) const ORDERED: Arm = Arm { name: "reliable-ordered, 50 ms", is_tcp: false, is_reliable: true };

/// As [`ORDERED`], with unreliable messages.
pub(crate) const UNRELIABLE: Arm = Arm { name: "unreliable, 50 ms", is_tcp: false, is_reliable: false };

/// The baseline of the journal over TCP, not encrypted.
pub(crate) const TCP: Arm = Arm { name: "TCP, a write per message", is_tcp: true, is_reliable: true };

impl Arm {
    /// The options of messages in both directions.
    pub(crate) const fn options(self) -> SendOptions {
        if self.is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() }
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
