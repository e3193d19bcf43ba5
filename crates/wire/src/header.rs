//! The outside of a datagram: what kind it is, and why it may be none of ours.
//!
//! Deliberately shallow: nothing here looks past the header, and nothing is believed before a packet opened.

mod kind;
mod transport;

use core::fmt;

pub use kind::DatagramKind;
pub(crate) use kind::{HELLO, REFUSE, RESET, RETRY, WELCOME};
pub use transport::{ConnectionIdLength, TransportHeader};

/// Why a datagram is not one of this protocol. It is dropped and counted, never answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramError {
    /// It has no bytes at all.
    Empty,
    /// Its first byte has a bit that must be set and is not, or the other way round.
    FixedBits,
    /// It claims to be a handshake datagram of a kind this version does not know.
    UnknownKind,
    /// It is of another kind than was asked for.
    WrongKind,
    /// Its length is outside what its kind allows.
    WrongLength,
    /// It claims a packet number of a length that does not exist.
    PacketNumberLength,
}

impl DatagramError {
    /// A stable name for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::FixedBits => "fixed_bits",
            Self::UnknownKind => "unknown_kind",
            Self::WrongKind => "wrong_kind",
            Self::WrongLength => "wrong_length",
            Self::PacketNumberLength => "packet_number_length",
        }
    }
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the datagram is empty",
            Self::FixedBits => "the first byte is not one of this protocol",
            Self::UnknownKind => "the handshake kind is unknown",
            Self::WrongKind => "the datagram is of another kind",
            Self::WrongLength => "the length does not fit the kind",
            Self::PacketNumberLength => "the packet number's length does not exist",
        })
    }
}

impl core::error::Error for DatagramError {}
