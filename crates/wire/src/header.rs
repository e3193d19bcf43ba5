//! The parts of a datagram that are readable without keys: byte 0, which encodes the kind of the datagram, and the
//! header of a protected packet.
//!
//! Decoding a header proves nothing. The whole header is associated data of the packet's protection, so a packet with a
//! changed header fails to open.

use core::fmt;
use core::ops::RangeInclusive;

use bytes::BufMut;

use crate::codec::{EncodeError, Reader, check_room};
use crate::connection_id::ConnectionId;
use crate::limits;
use crate::packet_number::{PacketNumberLength, TruncatedNumber};

/// Set in handshake datagrams, clear in transport packets.
const HANDSHAKE_BIT: u8 = 0x80;

/// Set in every datagram, so that protocols with this bit clear can share the port.
const FIXED_BIT: u8 = 0x08;

/// Bits that are zero in every kind.
const ZERO_BITS: u8 = 0x70;

/// The key phase of a transport packet.
const KEY_PHASE_BIT: u8 = 0x04;

/// The length of the truncated packet number in a transport packet.
const NUMBER_LENGTH_BITS: u8 = 0x03;

pub(crate) const HELLO: u8 = 0x89;
pub(crate) const RETRY: u8 = 0x8a;
pub(crate) const REFUSE: u8 = 0x8b;
pub(crate) const WELCOME: u8 = 0x8c;
pub(crate) const RESET: u8 = 0x8d;

/// The kind of a datagram, by its first byte and its length.
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
    /// A server reports that it does not know a connection.
    Reset,
}

impl DatagramKind {
    /// Returns the kind of a datagram (PROTOCOL 3.1, "Byte 0").
    ///
    /// The fields after byte 0 are not read, so a datagram of any kind may still be invalid.
    ///
    /// # Errors
    ///
    /// Returns an error if the first byte belongs to no kind of this version, or the length is not valid for the kind.
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

    /// Returns the range of lengths that this kind may have, in bytes of UDP payload.
    #[inline]
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

/// The reason why a datagram does not belong to this protocol. The receiver drops such a datagram, counts it, and sends
/// no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramError {
    /// The datagram has no bytes.
    Empty,
    /// The fixed bit of the first byte is clear, or one of the zero bits is set.
    FixedBits,
    /// The first byte is that of a handshake datagram of a kind that this version does not know.
    UnknownKind,
    /// The datagram is of another kind than the caller asked for.
    WrongKind,
    /// The length is not valid for the kind.
    WrongLength,
    /// The length bits of the packet number are zero, which no length has.
    PacketNumberLength,
}

impl DatagramError {
    /// Returns a stable name for counters and logs.
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
            Self::FixedBits => "the first byte does not belong to this protocol",
            Self::UnknownKind => "the handshake kind is unknown",
            Self::WrongKind => "the datagram is of another kind",
            Self::WrongLength => "the length is not valid for the kind",
            Self::PacketNumberLength => "the length bits of the packet number are zero",
        })
    }
}

impl core::error::Error for DatagramError {}

/// Whether the packets that a socket receives carry connection ids. The choice is made when the socket is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionIdLength {
    /// Packets carry no id, because the socket serves one connection. Only clients can choose this.
    Zero,
    /// Packets carry 8-byte ids. This is the choice of servers, and of clients with several connections on one socket.
    Eight,
}

/// The header of a protected packet (PROTOCOL 6.1, "Header").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransportHeader {
    /// The key phase, which changes with each key update and shows which of two consecutive keys sealed the packet.
    pub key_phase: bool,
    /// The receiver's connection id, or `None` if the receiver's socket has one connection.
    pub connection_id: Option<ConnectionId>,
    /// The low bits of the packet number.
    pub number: TruncatedNumber,
}

impl TransportHeader {
    /// Decodes the header of a packet that arrived on a socket with ids of length `ids`.
    ///
    /// The rest of the packet, from [`Self::encoded_bytes`] on, consists of sealed frames and the tag.
    ///
    /// # Errors
    ///
    /// Returns an error if the datagram is not a packet, is too short or too long for one, or has an invalid packet
    /// number length.
    pub fn decode(datagram: &[u8], ids: ConnectionIdLength) -> Result<Self, DatagramError> {
        if DatagramKind::of(datagram)? != DatagramKind::Transport {
            return Err(DatagramError::WrongKind);
        }
        let mut reader = Reader::new(datagram);
        let byte = reader.u8().ok_or(DatagramError::Empty)?;
        let length = PacketNumberLength::from_bits(byte & NUMBER_LENGTH_BITS)
            .ok_or(DatagramError::PacketNumberLength)?;
        let connection_id = match ids {
            ConnectionIdLength::Zero => None,
            ConnectionIdLength::Eight => {
                let &bytes = reader.array().ok_or(DatagramError::WrongLength)?;
                Some(ConnectionId::from_bytes(bytes))
            }
        };
        let number = TruncatedNumber::read(length, &mut reader).ok_or(DatagramError::WrongLength)?;
        // The shortest packet is one byte too short for the longest header and a tag.
        if reader.rest().len() < limits::TAG_BYTES {
            return Err(DatagramError::WrongLength);
        }
        Ok(Self { key_phase: byte & KEY_PHASE_BIT != 0, connection_id, number })
    }

    /// Writes the header.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if `out` is too short. Nothing is written then.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        check_room(self.encoded_bytes(), out.remaining_mut())?;
        let phase = if self.key_phase { KEY_PHASE_BIT } else { 0 };
        out.put_u8(FIXED_BIT | phase | self.number.length().to_bits());
        if let Some(id) = self.connection_id {
            out.put_slice(&id.to_bytes());
        }
        self.number.put(out);
        Ok(())
    }

    /// Returns the encoded length of the header in bytes, 3 to [`limits::TRANSPORT_HEADER_MAX_BYTES`].
    pub fn encoded_bytes(&self) -> usize {
        let id_bytes = if self.connection_id.is_some() { ConnectionId::BYTES } else { 0 };
        usize::from(self.number.length().bytes()).saturating_add(id_bytes).saturating_add(1)
    }

    /// Returns the minimum length in bytes of the frames in a packet with this header.
    ///
    /// A shorter packet would be below [`limits::TRANSPORT_MIN_BYTES`], so its sender adds padding.
    pub fn min_frames_bytes(&self) -> usize {
        limits::TRANSPORT_MIN_BYTES.saturating_sub(limits::TAG_BYTES).saturating_sub(self.encoded_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet_number::PacketNumber;
    use proptest::prelude::*;

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

    const LENGTHS: [PacketNumberLength; 3] =
        [PacketNumberLength::Two, PacketNumberLength::Three, PacketNumberLength::Four];

    fn packet(header: TransportHeader) -> Vec<u8> {
        let mut bytes = Vec::new();
        header.encode(&mut bytes).unwrap();
        assert_eq!(bytes.len(), header.encoded_bytes());
        bytes.resize(bytes.len() + header.min_frames_bytes() + limits::TAG_BYTES, 0xff);
        bytes
    }

    #[test]
    fn every_kind_is_rejected_outside_its_lengths() {
        for (byte, kind) in KINDS {
            let lengths = kind.lengths_bytes();
            for (bytes, fits) in [
                (lengths.start() - 1, false),
                (*lengths.start(), true),
                (*lengths.end(), true),
                (lengths.end() + 1, false),
            ] {
                let expected = if fits { Ok(kind) } else { Err(DatagramError::WrongLength) };
                assert_eq!(DatagramKind::of(&datagram(byte, bytes)), expected, "{kind:?} of {bytes}");
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
    fn an_empty_datagram_has_its_own_error() {
        assert_eq!(DatagramKind::of(&[]), Err(DatagramError::Empty));
    }

    #[test]
    fn the_shortest_packet_has_one_byte_of_frames() {
        let number = PacketNumber(7).truncate(PacketNumberLength::Two);
        let id = Some(ConnectionId::from_bytes([1; 8]));
        let header = TransportHeader { key_phase: false, connection_id: id, number };
        assert_eq!((header.encoded_bytes(), header.min_frames_bytes()), (11, 1));
        let bare = TransportHeader { connection_id: None, ..header };
        assert_eq!((bare.encoded_bytes(), bare.min_frames_bytes()), (3, 9));
        let long = PacketNumber(7).truncate(PacketNumberLength::Four);
        let header = TransportHeader { number: long, ..header };
        assert_eq!(header.encoded_bytes(), limits::TRANSPORT_HEADER_MAX_BYTES);
        assert_eq!(header.min_frames_bytes(), 0);
    }

    #[test]
    fn a_datagram_below_the_shortest_packet_is_rejected() {
        let number = PacketNumber(7).truncate(PacketNumberLength::Two);
        let bytes = packet(TransportHeader { key_phase: true, connection_id: None, number });
        assert_eq!(bytes.len(), 28);
        assert!(TransportHeader::decode(&bytes, ConnectionIdLength::Zero).is_ok());
        let short = TransportHeader::decode(&bytes[..27], ConnectionIdLength::Zero);
        assert_eq!(short, Err(DatagramError::WrongLength));
    }

    #[test]
    fn the_longest_header_needs_room_for_a_tag() {
        let number = PacketNumber(7).truncate(PacketNumberLength::Four);
        let id = Some(ConnectionId::from_bytes([1; 8]));
        let bytes = packet(TransportHeader { key_phase: false, connection_id: id, number });
        assert_eq!(bytes.len(), 29);
        assert!(TransportHeader::decode(&bytes, ConnectionIdLength::Eight).is_ok());
        let short = TransportHeader::decode(&bytes[..28], ConnectionIdLength::Eight);
        assert_eq!(short, Err(DatagramError::WrongLength));
    }

    #[test]
    fn invalid_number_lengths_and_handshake_kinds_are_rejected() {
        let error = |first| {
            let mut datagram = [0; 1_200];
            datagram[0] = first;
            TransportHeader::decode(&datagram, ConnectionIdLength::Eight).unwrap_err()
        };
        assert_eq!(error(0x08), DatagramError::PacketNumberLength);
        assert_eq!(error(0x0c), DatagramError::PacketNumberLength);
        assert_eq!(error(0x89), DatagramError::WrongKind);
        assert_eq!(error(0x01), DatagramError::FixedBits);
        assert_eq!(error(0x19), DatagramError::FixedBits);
    }

    #[test]
    fn nothing_is_written_without_room() {
        let number = PacketNumber(7).truncate(PacketNumberLength::Three);
        let header = TransportHeader { key_phase: true, connection_id: None, number };
        let mut buffer = [0; 4];
        assert_eq!(header.encode(&mut &mut buffer[..3]), Err(EncodeError::NoRoom { needed_bytes: 4 }));
        assert_eq!(buffer, [0; 4]);
        assert_eq!(header.encode(&mut &mut buffer[..]), Ok(()));
        assert_eq!(buffer, [0x0e, 0, 0, 7]);
    }

    proptest! {
        #[test]
        fn every_header_round_trips(key_phase: bool, id: Option<[u8; 8]>, number: u64, length in 0..3_usize) {
            let connection_id = id.map(ConnectionId::from_bytes);
            let number = PacketNumber(number).truncate(LENGTHS[length]);
            let header = TransportHeader { key_phase, connection_id, number };
            let ids = if id.is_some() { ConnectionIdLength::Eight } else { ConnectionIdLength::Zero };
            prop_assert_eq!(TransportHeader::decode(&packet(header), ids), Ok(header));
        }

        #[test]
        fn any_bytes_are_a_header_or_an_error(first: u8, rest in prop::collection::vec(any::<u8>(), 0..64)) {
            let datagram: Vec<u8> = core::iter::once(first).chain(rest).collect();
            for ids in [ConnectionIdLength::Zero, ConnectionIdLength::Eight] {
                if let Ok(header) = TransportHeader::decode(&datagram, ids) {
                    prop_assert!(header.encoded_bytes() + limits::TAG_BYTES <= datagram.len());
                    let mut bytes = Vec::new();
                    header.encode(&mut bytes).unwrap();
                    prop_assert_eq!(&bytes[..], &datagram[..bytes.len()]);
                }
            }
        }
    }
}
