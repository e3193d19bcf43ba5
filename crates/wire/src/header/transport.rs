//! The header of a protected packet: key phase, connection id, truncated packet number.
//!
//! All of it is associated data of the packet's protection, so a changed header fails to open. Decoding it is
//! deliberately cheap and proves nothing.

use bytes::BufMut;

use super::DatagramError;
use super::kind::{DatagramKind, FIXED_BIT};
use crate::connection_id::ConnectionId;
use crate::encode_error::{EncodeError, check_room};
use crate::limits;
use crate::packet_number::{PacketNumberLength, TruncatedNumber};
use crate::reader::Reader;

const KEY_PHASE_BIT: u8 = 0x04;
const NUMBER_LENGTH_BITS: u8 = 0x03;

/// Whether the packets a socket receives carry connection ids; fixed when the socket is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionIdLength {
    /// None: the socket serves one connection, which needs no name. Only clients may choose this.
    Zero,
    /// Eight bytes each: every server, and clients with many connections on one socket.
    Eight,
}

/// The header of a protected packet (PROTOCOL 6.1, "Header").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransportHeader {
    /// Which of two consecutive keys sealed the packet.
    pub key_phase: bool,
    /// The receiver's connection, where its socket asks for ids.
    pub connection_id: Option<ConnectionId>,
    /// The low bits of the packet's number.
    pub number: TruncatedNumber,
}

impl TransportHeader {
    /// Reads the header of a packet that arrived on a socket with ids of this length. What follows it, from
    /// [`Self::encoded_bytes`] to the end, is sealed frames and the tag.
    ///
    /// # Errors
    ///
    /// When the datagram is not a packet, too short or too long for one, or claims a number of no length.
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
        // The longest header and a tag do not fit the shortest packet.
        if reader.rest().len() < limits::TAG_BYTES {
            return Err(DatagramError::WrongLength);
        }
        Ok(Self { key_phase: byte & KEY_PHASE_BIT != 0, connection_id, number })
    }

    /// Writes the header.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when `out` is too short; then nothing is written.
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

    /// Bytes of the header, 3 to [`limits::TRANSPORT_HEADER_MAX_BYTES`].
    pub fn encoded_bytes(&self) -> usize {
        let id_bytes = if self.connection_id.is_some() { ConnectionId::BYTES } else { 0 };
        usize::from(self.number.length().bytes()).saturating_add(id_bytes).saturating_add(1)
    }

    /// Bytes of frames a packet with this header needs, so that it is not shorter than
    /// [`limits::TRANSPORT_MIN_BYTES`]; padding makes up for what is missing.
    pub fn min_frames_bytes(&self) -> usize {
        limits::TRANSPORT_MIN_BYTES.saturating_sub(limits::TAG_BYTES).saturating_sub(self.encoded_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet_number::PacketNumber;
    use proptest::prelude::*;

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
    fn the_shortest_packet_has_its_least_length_with_one_byte_of_frames() {
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
    fn one_byte_less_than_a_packet_is_refused() {
        let number = PacketNumber(7).truncate(PacketNumberLength::Two);
        let bytes = packet(TransportHeader { key_phase: true, connection_id: None, number });
        assert_eq!(bytes.len(), 28);
        assert!(TransportHeader::decode(&bytes, ConnectionIdLength::Zero).is_ok());
        let short = TransportHeader::decode(&bytes[..27], ConnectionIdLength::Zero);
        assert_eq!(short, Err(DatagramError::WrongLength));
    }

    #[test]
    fn behind_the_longest_header_there_is_room_for_a_tag_or_an_error() {
        let number = PacketNumber(7).truncate(PacketNumberLength::Four);
        let id = Some(ConnectionId::from_bytes([1; 8]));
        let bytes = packet(TransportHeader { key_phase: false, connection_id: id, number });
        assert_eq!(bytes.len(), 29);
        assert!(TransportHeader::decode(&bytes, ConnectionIdLength::Eight).is_ok());
        let short = TransportHeader::decode(&bytes[..28], ConnectionIdLength::Eight);
        assert_eq!(short, Err(DatagramError::WrongLength));
    }

    #[test]
    fn a_number_of_no_length_and_a_handshake_kind_are_refused() {
        let refused = |first| {
            let mut datagram = [0; 1_200];
            datagram[0] = first;
            TransportHeader::decode(&datagram, ConnectionIdLength::Eight).unwrap_err()
        };
        assert_eq!(refused(0x08), DatagramError::PacketNumberLength);
        assert_eq!(refused(0x0c), DatagramError::PacketNumberLength);
        assert_eq!(refused(0x89), DatagramError::WrongKind);
        assert_eq!(refused(0x01), DatagramError::FixedBits);
        assert_eq!(refused(0x19), DatagramError::FixedBits);
    }

    #[test]
    fn without_room_nothing_is_written() {
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
        fn every_header_comes_back(key_phase: bool, id: Option<[u8; 8]>, number: u64, length in 0..3_usize) {
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
