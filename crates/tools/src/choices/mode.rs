//! The choice of what is delivered in the stage with delivery: bare packets, or messages of one delivery mode.
//!
//! What the modes promise is the protocol's business, and whether it was kept the receiver's.

use std::fmt;

use clap::ValueEnum;
use drumfire_proto::SendOptions;
use serde::{Deserialize, Serialize};

use crate::limits::{SEALED_MAX_SIZE, VALUE_MAX_SIZE, WHOLE_MAX_SIZE};

/// What is delivered in the stage `deliver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Packets of one unreliable message, which the sender seals without an endpoint: it hears no ack and repeats
    /// nothing, so that a datagram costs it least
    Packets,
    /// Messages of real endpoints at both ends: at most once, in any order
    Unreliable,
    /// At most once, never an older one after a newer
    UnreliableSequenced,
    /// Exactly once, in any order
    ReliableUnordered,
    /// Exactly once, in order
    ReliableOrdered,
    /// The newest always arrives, older ones before it or not at all
    ReliableSequenced,
    /// The newest of each of 8 keys always arrives
    ReliableLatest,
}

impl Mode {
    /// Keys of a flow in the mode `reliable-latest`; its messages go round them.
    pub const KEYS: u64 = 8;

    /// The name on the command line and in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Unreliable => "unreliable",
            Self::UnreliableSequenced => "unreliable-sequenced",
            Self::ReliableUnordered => "reliable-unordered",
            Self::ReliableOrdered => "reliable-ordered",
            Self::ReliableSequenced => "reliable-sequenced",
            Self::ReliableLatest => "reliable-latest",
        }
    }

    /// Whether each flow's sender is an endpoint that keeps messages in mind.
    #[must_use]
    pub const fn has_messages(self) -> bool {
        !matches!(self, Self::Packets)
    }

    /// How to send the message of this place in its flow; `None` for bare packets.
    #[must_use]
    pub const fn options(self, sequence: u64) -> Option<SendOptions> {
        Some(match self {
            Self::Packets => return None,
            Self::Unreliable => SendOptions::unreliable(),
            Self::UnreliableSequenced => SendOptions::unreliable_sequenced(),
            Self::ReliableUnordered => SendOptions::reliable_unordered(),
            Self::ReliableOrdered => SendOptions::reliable_ordered(),
            Self::ReliableSequenced => SendOptions::reliable_sequenced(),
            Self::ReliableLatest => SendOptions::reliable_latest(sequence % Self::KEYS),
        })
    }

    /// The largest size in bytes: of bare packets what a path is taken to carry, of messages what goes in one piece.
    #[must_use]
    pub const fn max_size(self) -> u32 {
        match self {
            Self::Packets => SEALED_MAX_SIZE,
            Self::ReliableLatest => VALUE_MAX_SIZE,
            _ => WHOLE_MAX_SIZE,
        }
    }

    /// What is promised, in words.
    #[must_use]
    pub const fn promise(self) -> &'static str {
        match self {
            Self::Packets | Self::Unreliable => "at most once, in any order",
            Self::UnreliableSequenced => "at most once, never an older one after a newer",
            Self::ReliableUnordered => "exactly once, in any order",
            Self::ReliableOrdered => "exactly once, in order",
            Self::ReliableSequenced => "the newest always arrives, never an older one after it",
            Self::ReliableLatest => "the newest of each key always arrives, never an older one after it",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use drumfire_proto::limits::{MESSAGE_MAX_BYTES, VALUE_MAX_BYTES};
    use drumfire_puppet::PacketSealer;

    use super::*;

    #[test]
    fn every_message_of_the_largest_size_goes_in_one_piece() {
        for mode in Mode::value_variants().iter().filter(|mode| mode.has_messages()) {
            let bytes = PacketSealer::payload_bytes(mode.max_size() as usize);
            let most = if *mode == Mode::ReliableLatest { VALUE_MAX_BYTES } else { MESSAGE_MAX_BYTES };
            assert_eq!(bytes, Some(most), "{mode}");
        }
    }

    #[test]
    fn each_mode_sends_as_its_name_says_and_packets_not_at_all() {
        assert_eq!(Mode::Packets.options(0), None);
        for mode in Mode::value_variants().iter().filter(|mode| mode.has_messages()) {
            let sent = format!("{:?}", mode.options(3).map(|options| options.mode));
            assert_eq!(sent.to_lowercase(), format!("some({})", mode.name().replace('-', "")));
        }
        let keys: Vec<_> = (0..9).filter_map(|n| Mode::ReliableLatest.options(n)).map(|o| o.key).collect();
        assert_eq!(keys, [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    }
}
