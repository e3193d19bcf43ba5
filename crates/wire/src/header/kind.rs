//! Byte 0: which kind of datagram this is, and whether its length fits the kind.
//!
//! Deliberately no field beyond byte 0; a kind with a fitting length may still be nonsense.

use core::ops::RangeInclusive;

use super::DatagramError;
use crate::limits;

/// Set in handshake datagrams, clear in transport packets.
const HANDSHAKE_BIT: u8 = 0x80;

/// Always set: other protocols can share the port where they leave it clear.
pub(super) const FIXED_BIT: u8 = 0x08;

/// Bits that are zero in every kind.
pub(super) const ZERO_BITS: u8 = 0x70;

pub(crate) const HELLO: u8 = 0x89;
pub(crate) const RETRY: u8 = 0x8a;
pub(crate) const REFUSE: u8 = 0x8b;
pub(crate) const WELCOME: u8 = 0x8c;
pub(crate) const RESET: u8 = 0x8d;

/// What a datagram claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatagramKind {
    /// A protected packet of a connection.
    Transport,
    /// A client asks for a connection.
    Hello,
    /// A server asks a client to prove its address.
    Retry,
    /// A server refuses a client.
    Refuse,
    /// A server accepts a client.
    Welcome,
    /// A server says that it does not know a connection any more.
    Reset,
}

impl DatagramKind {
    /// Determines the kind of a datagram from its first byte and its length (PROTOCOL 3.1, "Byte 0").
    ///
    /// # Errors
    ///
    /// When the first byte is none of ours, or the length is none of its kind's.
    #[inline]
    pub fn of(datagram: &[u8]) -> Result<Self, DatagramError> {
        let &byte = datagram.first().ok_or(DatagramError::Empty)?;
        if byte & (FIXED_BIT | ZERO_BITS) != FIXED_BIT {
            return Err(DatagramError::FixedBits);
        }
        let kind = match byte {
            _ if byte & HANDSHAKE_BIT == 0 => Self::Transport,
            HELLO => Self::Hello,
            RETRY => Self::Retry,
            REFUSE => Self::Refuse,
            WELCOME => Self::Welcome,
            RESET => Self::Reset,
            _ => return Err(DatagramError::UnknownKind),
        };
        if kind.lengths_bytes().contains(&datagram.len()) {
            Ok(kind)
        } else {
            Err(DatagramError::WrongLength)
        }
    }

    /// The lengths this kind may have, in bytes of UDP payload.
    pub fn lengths_bytes(self) -> RangeInclusive<usize> {
        match self {
            Self::Transport => limits::TRANSPORT_MIN_BYTES..=limits::DATAGRAM_MAX_BYTES,
            Self::Hello => limits::HELLO_BYTES..=limits::HELLO_BYTES,
            Self::Retry => limits::RETRY_MIN_BYTES..=limits::RETRY_MAX_BYTES,
            Self::Refuse => limits::REFUSE_MIN_BYTES..=limits::REFUSE_MAX_BYTES,
            Self::Welcome => limits::WELCOME_MIN_BYTES..=limits::WELCOME_MAX_BYTES,
            Self::Reset => limits::RESET_BYTES..=limits::RESET_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [(u8, DatagramKind); 6] = [
        (0x09, DatagramKind::Transport),
        (0x89, DatagramKind::Hello),
        (0x8a, DatagramKind::Retry),
        (0x8b, DatagramKind::Refuse),
        (0x8c, DatagramKind::Welcome),
        (0x8d, DatagramKind::Reset),
    ];

    fn datagram(first: u8, bytes: usize) -> Vec<u8> {
        let mut datagram = vec![0; bytes];
        datagram[0] = first;
        datagram
    }

    #[test]
    fn every_kind_is_held_to_its_lengths() {
        for (byte, kind) in KINDS {
            let lengths = kind.lengths_bytes();
            for (bytes, fits) in [
                (lengths.start() - 1, false),
                (*lengths.start(), true),
                (*lengths.end(), true),
                (lengths.end() + 1, false),
            ] {
                let wanted = if fits { Ok(kind) } else { Err(DatagramError::WrongLength) };
                assert_eq!(DatagramKind::of(&datagram(byte, bytes)), wanted, "{kind:?} of {bytes}");
            }
        }
    }

    #[test]
    fn every_first_byte_has_exactly_one_meaning() {
        let mut transport = 0;
        for byte in 0..=u8::MAX {
            let found = DatagramKind::of(&datagram(byte, 1_200));
            let named = KINDS.iter().find(|(first, _)| *first == byte).map(|(_, kind)| *kind);
            match named {
                _ if byte & 0x78 != 0x08 => assert_eq!(found, Err(DatagramError::FixedBits), "{byte:#x}"),
                _ if byte < 0x10 => {
                    assert_eq!(found, Ok(DatagramKind::Transport));
                    transport += 1;
                }
                Some(kind) if kind.lengths_bytes().contains(&1_200) => assert_eq!(found, Ok(kind)),
                Some(_) => assert_eq!(found, Err(DatagramError::WrongLength), "{byte:#x}"),
                None => assert_eq!(found, Err(DatagramError::UnknownKind), "{byte:#x}"),
            }
        }
        assert_eq!(transport, 8);
    }

    #[test]
    fn an_empty_datagram_is_refused_by_name() {
        assert_eq!(DatagramKind::of(&[]), Err(DatagramError::Empty));
    }
}
