//! Who is there beside the players, and what the server's task does with it.

use drumfire::WhenFull;
use drumfire_benches::Manner;

/// Names for `--only`; the quiet arm is always there to be compared with.
pub(crate) const PARTS: [&str; 3] = ["stalled", "abuser", "spender"];

/// Memory of each connection at either end, for sending and for receiving.
pub(crate) const MEMORY_BYTES: usize = 256 * 1_024;

/// Fills a datagram, so that each message is a packet of its own.
const MESSAGE_BYTES: usize = 1_000;

/// Messages of the stalled one in a second: both memories are full within a hundredth of that.
const STALLED_PER_SECOND: u64 = 100_000;

/// One arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nobody is there beside the players.
    Quiet,
    /// One who sends to a task that takes nothing.
    Stalled(WhenFull),
    /// One who floods a task that takes everything.
    Abuser,
    /// The same with the most expensive packets that there are.
    Spender,
}

impl Role {
    pub(crate) const ALL: [Self; 7] = [
        Self::Quiet,
        Self::Stalled(WhenFull::Block),
        Self::Stalled(WhenFull::DropOldest),
        Self::Stalled(WhenFull::DropNewest),
        Self::Stalled(WhenFull::Disconnect),
        Self::Abuser,
        Self::Spender,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Stalled(WhenFull::Block) => "stalled, block",
            Self::Stalled(WhenFull::DropOldest) => "stalled, drop oldest",
            Self::Stalled(WhenFull::DropNewest) => "stalled, drop newest",
            Self::Stalled(WhenFull::Disconnect) => "stalled, disconnect",
            Self::Abuser => "abuser",
            Self::Spender => "spender",
        }
    }

    pub(crate) const fn part(self) -> Option<&'static str> {
        match self {
            Self::Quiet => None,
            Self::Stalled(_) => Some(PARTS[0]),
            Self::Abuser => Some(PARTS[1]),
            Self::Spender => Some(PARTS[2]),
        }
    }

    /// How the guest sends; nothing where there is none, or where it seals its packets itself.
    pub(crate) const fn manner(self, abuse_per_second: u64) -> Option<Manner> {
        let (per_second, is_reliable, when_full) = match self {
            Self::Quiet | Self::Spender => return None,
            Self::Stalled(when_full) => (STALLED_PER_SECOND, true, when_full),
            Self::Abuser => (abuse_per_second, false, WhenFull::Block),
        };
        let (message_bytes, memory_bytes) = (MESSAGE_BYTES, MEMORY_BYTES);
        Some(Manner { per_second, message_bytes, is_reliable, when_full, memory_bytes })
    }
}
