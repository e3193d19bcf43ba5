//! The named choices of the command line that also travel on the control connection and into the reports.
//!
//! One enum per flag, one stable lowercase name per variant. What a choice does is the socket crate's
//! business.

mod mode;

use std::fmt;

use clap::ValueEnum;
pub use mode::Mode;
use serde::{Deserialize, Serialize};

/// How a receiver thread takes datagrams from its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drain {
    /// One call per datagram: the reference and the portable path
    Recv,
    /// Up to 32 datagrams per call, as many as the traffic justifies
    Recvmmsg,
}

/// Whether the kernel may hand over trains of equal-sized datagrams (generic receive offload).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gro {
    /// Off until trains arrive, then on to the end of the run
    Auto,
    /// Always on
    On,
    /// Always off, so that the kernel's drops are counted datagram by datagram
    Off,
}

/// How a datagram finds its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steer {
    /// By the kernel's hash of addresses and ports
    Hash,
    /// By the routing tag in the id, which spreads even a dozen flows evenly
    Tag,
}

/// How a sender thread hands datagrams to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendMode {
    /// One call per datagram, as separate game clients send
    Single,
    /// Many datagrams per call
    Sendmmsg,
    /// One buffer that the kernel cuts into equal datagrams (generic segmentation offload)
    Gso,
}

/// How far a datagram goes through the engine before it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Taken from the socket and counted
    Raw,
    /// Header decoded; loss, duplicates and reordering told apart per flow
    Parse,
    /// Sealed packets of real connections, one per flow: opened, with the replay check, and no further
    Open,
    /// The whole pipeline: opened, acknowledged, delivered
    Deliver,
}

/// What seals the packets of the stages that have connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Suite {
    /// AES-128-GCM, where the processor has instructions for it
    #[value(name = "aes-128-gcm")]
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// ChaCha20-Poly1305, everywhere
    #[value(name = "chacha20-poly1305")]
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

impl Drain {
    /// The best way this platform has.
    #[must_use]
    pub const fn best() -> Self {
        match drumfire_socket::Drain::best() {
            drumfire_socket::Drain::Recv => Self::Recv,
            drumfire_socket::Drain::Recvmmsg => Self::Recvmmsg,
        }
    }

    /// The name on the command line and in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recv => "recv",
            Self::Recvmmsg => "recvmmsg",
        }
    }
}

impl Gro {
    /// The name on the command line and in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl Steer {
    /// The name on the command line and in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Tag => "tag",
        }
    }
}

impl SendMode {
    /// The name on the command line and in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sendmmsg => "sendmmsg",
            Self::Gso => "gso",
        }
    }
}

impl Stage {
    /// The name on the command line and in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Parse => "parse",
            Self::Open => "open",
            Self::Deliver => "deliver",
        }
    }

    /// Whether every flow is a connection, and every datagram one of its packets.
    #[must_use]
    pub const fn is_sealed(self) -> bool {
        matches!(self, Self::Open | Self::Deliver)
    }
}

impl Suite {
    /// The one that two ends of this build on this machine agree on by themselves.
    #[must_use]
    pub fn best() -> Self {
        if drumfire_proto::Config::default().has_aes_gcm { Self::Aes128Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// The name on the command line and in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// The settings of an endpoint that agrees to this one.
    #[must_use]
    pub fn config(self) -> drumfire_proto::Config {
        drumfire_proto::Config::default().has_aes_gcm(self == Self::Aes128Gcm)
    }
}

impl From<Drain> for drumfire_socket::Drain {
    fn from(drain: Drain) -> Self {
        match drain {
            Drain::Recv => Self::Recv,
            Drain::Recvmmsg => Self::Recvmmsg,
        }
    }
}

impl From<Gro> for drumfire_socket::Gro {
    fn from(gro: Gro) -> Self {
        match gro {
            Gro::Auto => Self::Auto,
            Gro::On => Self::On,
            Gro::Off => Self::Off,
        }
    }
}

impl From<SendMode> for drumfire_socket::SendMode {
    fn from(mode: SendMode) -> Self {
        match mode {
            SendMode::Single => Self::Single,
            SendMode::Sendmmsg => Self::Sendmmsg,
            SendMode::Gso => Self::Gso,
        }
    }
}

impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Gro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Steer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for SendMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_one_name<T: ValueEnum + Serialize + fmt::Display>() {
        for choice in T::value_variants() {
            let on_the_command_line = choice.to_possible_value().unwrap().get_name().to_owned();
            assert_eq!(on_the_command_line, choice.to_string());
            assert_eq!(serde_json::to_value(choice).unwrap(), serde_json::Value::from(choice.to_string()));
        }
    }

    #[test]
    fn a_choice_has_one_name_on_the_command_line_in_reports_and_on_the_wire() {
        assert_one_name::<Drain>();
        assert_one_name::<Gro>();
        assert_one_name::<Steer>();
        assert_one_name::<SendMode>();
        assert_one_name::<Stage>();
        assert_one_name::<Suite>();
        assert_one_name::<Mode>();
    }
}
