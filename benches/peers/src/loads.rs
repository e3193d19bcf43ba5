//! The loads: the connections, the messages, the path, and the rounds.

use std::time::Duration;

use drumfire_benches::traffic::{Polling, Shape, Traffic};
use drumfire_benches::{Extent, Plan};

use crate::adapter::KEEP_ALIVE;

/// The time between the last connect and the window of idle connections. The clients of drumfire send their first keep-alive after
/// 2.5 s, and 5 s later its server gives working memory back.
const QUIET: Duration = Duration::from_secs(8);

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) connections: usize,
    /// Bytes of a message, a multiple of 8.
    pub(crate) bytes: usize,
    /// Bytes of an answer, a multiple of 8, or 0 for an echo.
    pub(crate) answer_bytes: usize,
    /// The number of channels that the messages of a connection use in turn.
    pub(crate) channels: u8,
    /// Whether a connection sends several datagrams at a time.
    pub(crate) has_trains: bool,
    /// Whether all datagrams go through the relay.
    pub(crate) is_relayed: bool,
    /// Whether only unreliable messages are measured, where a library has them.
    pub(crate) is_unreliable_only: bool,
}

/// The rounds of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounds {
    pub(crate) plan: Plan,
    /// The load runs this long before it is counted.
    pub(crate) warm_up: Duration,
    pub(crate) counted: Duration,
    pub(crate) connections_max: usize,
}

const fn load(name: &'static str, connections: usize, shape: Shape) -> Load {
    Load {
        name,
        shape,
        connections,
        bytes: 64,
        answer_bytes: 0,
        channels: 1,
        has_trains: false,
        is_relayed: false,
        is_unreliable_only: false,
    }
}

const fn relayed(name: &'static str, load: Load) -> Load {
    Load { name, is_relayed: true, ..load }
}

const A: Load = load("A", 100, Shape::Open { rate: 60 });
const B: Load = load("B", 1_000, Shape::Open { rate: 10 });
const C: Load = load("C", 64, Shape::Closed { outstanding: 16 });
const D: Load = Load { bytes: 1_024, has_trains: true, ..load("D", 64, Shape::Closed { outstanding: 16 }) };
const E: Load = Load { is_unreliable_only: true, ..load("E", 2_000, Shape::IDLE) };
const F: Load = load("F", 500, Shape::Closed { outstanding: 1 });
const S: Load = Load {
    bytes: 32,
    answer_bytes: 64,
    channels: 4,
    is_unreliable_only: true,
    ..load("S", 2_000, Shape::Open { rate: 10 })
};

impl Load {
    /// All loads.
    pub(crate) const ALL: [Self; 12] = [
        A,
        B,
        C,
        D,
        E,
        F,
        S,
        relayed("A-lossy", A),
        relayed("B-lossy", B),
        relayed("C-lossy", C),
        relayed("D-lossy", D),
        relayed("F-lossy", F),
    ];

    pub(crate) fn named(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|load| load.name == name).ok_or_else(|| format!("{name}: not a load"))
    }

    /// The traffic of a client with this number of connections, of which `per_client` share a socket.
    pub(crate) const fn traffic(&self, connections: usize, per_client: usize, may_lose: bool) -> Traffic {
        let settle = match (may_lose, self.is_relayed) {
            // Unreliable messages return soon, or never.
            (true, _) => 1,
            (false, false) => 5,
            (false, true) => 10,
        };
        let is_idle = matches!(self.shape, Shape::IDLE);
        Traffic {
            per_client,
            answer_bytes: if self.answer_bytes == 0 { self.bytes } else { self.answer_bytes },
            channels: self.channels,
            may_lose,
            polling: if self.is_relayed || is_idle { Polling::Paused } else { Polling::Batch },
            late_ns: 20_000,
            settle: Duration::from_secs(settle),
            ..Traffic::echo(self.shape, connections, self.bytes)
        }
    }

    /// The rounds of a run with this extent.
    pub(crate) fn rounds(&self, extent: Extent) -> Rounds {
        let millis = Duration::from_millis;
        let of = |rounds, counted| Rounds {
            plan: Plan { warm_up: 1, rounds, may_void: true },
            warm_up: millis(300),
            counted: millis(counted),
            connections_max: usize::MAX,
        };
        match extent {
            Extent::Quick => {
                Rounds { plan: Plan::once(), warm_up: millis(50), connections_max: 64, ..of(1, 100) }
            }
            // Each connection sends one keep-alive in the window. There is nothing to warm up.
            _ if self.shape == Shape::IDLE => {
                let plan = Plan { warm_up: 0, rounds: 3, may_void: true };
                Rounds { plan, warm_up: QUIET, counted: KEEP_ALIVE, connections_max: usize::MAX }
            }
            // The latencies of this load are compared round by round.
            Extent::Default if self.name == "A" => of(7, 1_000),
            Extent::Default => of(5, 1_000),
            Extent::Full => of(if self.is_relayed { 5 } else { 7 }, 1_500),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::{CHANNELS, MESSAGE_MAX_BYTES};

    #[test]
    fn loads_have_names_and_room_for_message_numbers() {
        for load in Load::ALL {
            assert_eq!(Load::named(load.name), Ok(load));
            for bytes in [load.bytes, load.answer_bytes] {
                assert!(bytes % 8 == 0 && bytes <= MESSAGE_MAX_BYTES, "{load:?}");
            }
            assert!((1..=CHANNELS).contains(&load.channels) && load.bytes > 0, "{load:?}");
        }
    }
}
