//! Named choices of the command line, which also appear in control messages and in reports.

use std::fmt;

use clap::ValueEnum;
use drumfire_proto::SendOptions;
use drumfire_wire::SuiteOffer;
use serde::{Deserialize, Serialize};

use crate::limits::{SEALED_MAX_SIZE, VALUE_MAX_SIZE, WHOLE_MAX_SIZE};

/// Defines an enum whose variants have one name each, on the command line, in JSON, and in messages. With an `=> Type`, it converts to
/// a type of the same variants.
macro_rules! choice {
    ($(#[$doc:meta])* $choice:ident $(=> $target:ty)? { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
        pub enum $choice {
            $($(#[$variant_doc])* #[value(name = $name)] #[serde(rename = $name)] $variant,)+
        }

        impl $choice {
            /// The name on the command line, in control messages, and in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }

        impl fmt::Display for $choice {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        choice!(@into $choice $($target)?, $($variant)+);
    };
    (@into $choice:ident, $($variant:ident)+) => {};
    (@into $choice:ident $target:ty, $($variant:ident)+) => {
        impl From<$choice> for $target {
            fn from(choice: $choice) -> Self {
                match choice { $($choice::$variant => Self::$variant,)+ }
            }
        }
    };
}

choice! {
    /// How a receiver thread takes datagrams from its socket.
    Drain => drumfire_socket::Drain {
        /// One call per datagram: the reference and the portable path
        Recv = "recv",
        /// Up to 32 datagrams per call, as many as the traffic justifies
        Recvmmsg = "recvmmsg",
    }
}

choice! {
    /// Whether the kernel may hand over trains of equal-sized datagrams (generic receive offload).
    Gro => drumfire_socket::Gro {
        /// Off until trains arrive, then on to the end of the run
        Auto = "auto",
        /// Always on
        On = "on",
        /// Always off, so that the kernel's drops are counted datagram by datagram
        Off = "off",
    }
}

choice! {
    /// How a datagram finds its thread.
    Steer {
        /// By the kernel's hash of addresses and ports
        Hash = "hash",
        /// By the routing tag in the id, which spreads even a dozen flows evenly
        Tag = "tag",
    }
}

choice! {
    /// How a sender thread hands datagrams to the kernel.
    SendMode => drumfire_socket::SendMode {
        /// One call per datagram, as separate game clients send
        Single = "single",
        /// Many datagrams per call
        Sendmmsg = "sendmmsg",
        /// One buffer that the kernel cuts into equal datagrams (generic segmentation offload)
        Gso = "gso",
    }
}

choice! {
    /// How far a datagram goes through the engine before it is counted.
    Stage {
        /// Taken from the socket and counted
        Raw = "raw",
        /// Header decoded; loss, duplicates, and reordering are counted per flow
        Parse = "parse",
        /// Sealed packets of real connections, one per flow: opened, with the replay check, and no further
        Open = "open",
        /// The whole pipeline: opened, acknowledged, delivered
        Deliver = "deliver",
    }
}

choice! {
    /// The cipher suite of the stages that have connections.
    Suite {
        /// AES-128-GCM, where the processor has instructions for it
        Aes128Gcm = "aes-128-gcm",
        /// ChaCha20-Poly1305, everywhere
        ChaCha20Poly1305 = "chacha20-poly1305",
    }
}

choice! {
    /// The payload of the stage `deliver`.
    #[derive(Default)]
    Mode {
        /// Packets of one unreliable message, which the sender seals without an endpoint. It reads no acks and resends nothing,
        /// so that a datagram costs it least
        #[default]
        Packets = "packets",
        /// Messages of real endpoints at both ends: at most once, in any order
        Unreliable = "unreliable",
        /// At most once, never an older one after a newer
        UnreliableSequenced = "unreliable-sequenced",
        /// Exactly once, in any order
        ReliableUnordered = "reliable-unordered",
        /// Exactly once, in order
        ReliableOrdered = "reliable-ordered",
        /// The newest always arrives, older ones before it or not at all
        ReliableSequenced = "reliable-sequenced",
        /// The newest of each of 8 keys always arrives
        ReliableLatest = "reliable-latest",
    }
}

impl Drain {
    /// The fastest way on this platform.
    pub const fn best() -> Self {
        match drumfire_socket::Drain::best() {
            drumfire_socket::Drain::Recv => Self::Recv,
            drumfire_socket::Drain::Recvmmsg => Self::Recvmmsg,
        }
    }
}

impl Stage {
    /// Returns whether every flow is a connection and every datagram one of its packets.
    pub const fn is_sealed(self) -> bool {
        matches!(self, Self::Open | Self::Deliver)
    }
}

impl Suite {
    /// The suite that two endpoints of this build agree on by default.
    pub fn best() -> Self {
        if drumfire_proto::Config::default().has_aes_gcm { Self::Aes128Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// The offer of a client that agrees on this suite.
    pub fn offer(self) -> SuiteOffer {
        let mandatory = SuiteOffer::mandatory();
        if self == Self::Aes128Gcm { mandatory.with(drumfire_wire::Suite::Aes128Gcm) } else { mandatory }
    }

    /// The settings of an endpoint that agrees on this suite.
    pub fn config(self) -> drumfire_proto::Config {
        drumfire_proto::Config::default().has_aes_gcm(self == Self::Aes128Gcm)
    }
}

impl Mode {
    /// The number of keys of a flow in the mode `reliable-latest`. Message `n` has the key `n % KEYS`.
    pub const KEYS: u64 = 8;

    /// Returns whether each flow of the sender keeps an endpoint that sends messages.
    pub(crate) const fn has_messages(self) -> bool {
        !matches!(self, Self::Packets)
    }

    /// The options of message number `sequence` of a flow; `None` for bare packets.
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

    /// The largest packet in bytes. A message of that size is not split.
    pub(crate) const fn max_size(self) -> u32 {
        match self {
            Self::Packets => SEALED_MAX_SIZE,
            Self::ReliableLatest => VALUE_MAX_SIZE,
            _ => WHOLE_MAX_SIZE,
        }
    }

    /// The promise of the mode, in words.
    pub(crate) const fn promise(self) -> &'static str {
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

#[cfg(test)]
mod tests {
    use drumfire_proto::limits::{MESSAGE_MAX_BYTES, VALUE_MAX_BYTES};
    use drumfire_puppet::PacketSealer;

    use super::*;

    fn modes_with_messages() -> impl Iterator<Item = &'static Mode> {
        Mode::value_variants().iter().filter(|mode| mode.has_messages())
    }

    #[test]
    fn every_message_of_the_largest_size_goes_in_one_piece() {
        for mode in modes_with_messages() {
            let bytes = PacketSealer::payload_bytes(mode.max_size() as usize);
            let most = if *mode == Mode::ReliableLatest { VALUE_MAX_BYTES } else { MESSAGE_MAX_BYTES };
            assert_eq!(bytes, Some(most), "{mode}");
        }
    }

    #[test]
    fn each_mode_sends_as_its_name_says() {
        assert_eq!(Mode::Packets.options(0), None);
        for mode in modes_with_messages() {
            let sent = format!("{:?}", mode.options(3).map(|options| options.mode));
            assert_eq!(sent.to_lowercase(), format!("some({})", mode.name().replace('-', "")));
        }
        let keys: Vec<_> = (0..9).filter_map(|n| Mode::ReliableLatest.options(n)).map(|o| o.key).collect();
        assert_eq!(keys, [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    }
}
