//! The loads: who sends what, how often, and on which path.

use std::time::Duration;

use drumfire_benches::traffic::{Polling, Shape, Traffic};

/// All connections stand after this long, or never.
const PATIENCE: Duration = Duration::from_secs(60);

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Its name in the table.
    pub(crate) name: &'static str,
    /// How it is sent.
    pub(crate) shape: Shape,
    /// How many connections.
    pub(crate) connections: usize,
    /// Bytes of a message, a multiple of 8.
    pub(crate) bytes: usize,
    /// Bytes of an answer, a multiple of 8; 0 for an echo.
    pub(crate) answer_bytes: usize,
    /// Channels that a connection's messages take in turn.
    pub(crate) channels: u8,
    /// Whether what a connection sends in one go takes several datagrams.
    pub(crate) has_trains: bool,
    /// Whether all datagrams go through the relay.
    pub(crate) is_relayed: bool,
    /// Whether only messages that may be lost are measured.
    pub(crate) is_unreliable_only: bool,
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
const E: Load = Load { is_unreliable_only: true, ..load("E", 2_000, Shape::Idle) };
const F: Load = load("F", 500, Shape::Closed { outstanding: 1 });
const S: Load = Load {
    bytes: 32,
    answer_bytes: 64,
    channels: 4,
    is_unreliable_only: true,
    ..load("S", 2_000, Shape::Open { rate: 10 })
};

impl Load {
    /// All of them.
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

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|load| load.name == name)
    }

    /// What a client does with so many connections, of which one socket has `per_client`.
    pub(crate) const fn play(&self, connections: usize, per_client: usize, may_lose: bool) -> Traffic {
        Traffic {
            shape: self.shape,
            connections,
            per_client,
            bytes: self.bytes,
            answer_bytes: if self.answer_bytes == 0 { self.bytes } else { self.answer_bytes },
            channels: self.channels,
            may_lose,
            may_refuse: true,
            polling: if self.is_relayed { Polling::Rest } else { Polling::Single },
            patience: PATIENCE,
            settle: self.settle(may_lose),
        }
    }

    /// What is still out at the window's end has this long to come back: what may be lost comes soon or never.
    pub(crate) const fn settle(&self, may_lose: bool) -> Duration {
        let seconds = match (may_lose, self.is_relayed) {
            (true, _) => 1,
            (false, false) => 5,
            (false, true) => 10,
        };
        Duration::from_secs(seconds)
    }

    /// For people.
    pub(crate) fn words(&self) -> String {
        let Self { connections, bytes, answer_bytes, channels, .. } = self;
        let what = match self.shape {
            Shape::Closed { outstanding } => format!("x {outstanding} outstanding, closed loop, {bytes} B"),
            Shape::Open { rate } => {
                format!("x {rate}/s, open loop, {bytes} B, latency from the intended send time")
            }
            Shape::Idle => "that say nothing".to_owned(),
        };
        let answers = if *answer_bytes == 0 {
            String::new()
        } else {
            format!(", answers of {answer_bytes} B, {channels} channels in turn")
        };
        let path = if self.is_relayed { ", through the relay" } else { "" };
        format!("{connections} connections {what}{answers}{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::{CHANNELS, MESSAGE_MAX_BYTES};

    #[test]
    fn every_load_has_a_name_of_its_own_and_messages_that_hold_their_number() {
        for load in Load::ALL {
            assert_eq!(Load::named(load.name), Some(load));
            for bytes in [load.bytes, load.answer_bytes] {
                assert!(bytes % 8 == 0 && bytes <= MESSAGE_MAX_BYTES, "{load:?}");
            }
            assert!((1..=CHANNELS).contains(&load.channels) && load.bytes > 0, "{load:?}");
        }
    }
}
