//! The Welcome: a server's half of the Noise handshake, and by it the client's connection.
//!
//! Everything of worth is inside the seal, opaque here; in clear stands only whose Hello it answers.

use bytes::BufMut;

use super::ClientId;
use crate::encode_error::{EncodeError, check_room};
use crate::header::{DatagramError, DatagramKind, WELCOME};
use crate::limits::{NOISE_MESSAGE_2_MIN_BYTES, WELCOME_MAX_BYTES, WELCOME_MIN_BYTES};
use crate::reader::Reader;

/// Bytes before the Noise message.
const HEAD_BYTES: usize = 1 + ClientId::BYTES;

const _: () = assert!(HEAD_BYTES + NOISE_MESSAGE_2_MIN_BYTES == WELCOME_MIN_BYTES);

/// A Welcome (PROTOCOL 5.6, "Welcome").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome<'a> {
    /// The Hello's client id.
    pub client_id: ClientId,
    /// The server's Noise message, to the end of the datagram.
    pub noise_message: &'a [u8],
}

impl<'a> Welcome<'a> {
    /// Bytes of the longest Noise message a Welcome can carry.
    pub const NOISE_MESSAGE_MAX_BYTES: usize = WELCOME_MAX_BYTES - HEAD_BYTES;

    /// Reads a Welcome.
    ///
    /// # Errors
    ///
    /// When the datagram is not a Welcome or of another length.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, DatagramError> {
        match DatagramKind::of(datagram)? {
            DatagramKind::Welcome => Self::sections(datagram).ok_or(DatagramError::WrongLength),
            _ => Err(DatagramError::WrongKind),
        }
    }

    fn sections(datagram: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        Some(Self { client_id: ClientId(*reader.array()?), noise_message: reader.rest() })
    }

    /// Writes the whole datagram.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoiseMessageLength`] when the Noise message is shorter or longer than a Welcome's can be,
    /// [`EncodeError::NoRoom`] when `out` is too short; then nothing is written.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        let bytes = self.noise_message.len().saturating_add(HEAD_BYTES);
        if !DatagramKind::Welcome.lengths_bytes().contains(&bytes) {
            return Err(EncodeError::NoiseMessageLength);
        }
        check_room(bytes, out.remaining_mut())?;
        out.put_u8(WELCOME);
        out.put_slice(&self.client_id.0);
        out.put_slice(self.noise_message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn welcomes_of_every_allowed_length_come_back() {
        for bytes in 48..=1_191 {
            let noise_message = vec![0x77; bytes];
            let welcome = Welcome { client_id: ClientId([0x21; 8]), noise_message: &noise_message };
            let mut datagram = Vec::new();
            welcome.encode(&mut datagram).unwrap();
            assert_eq!((datagram.len(), datagram[0], &datagram[1..9]), (bytes + 9, 0x8c, &[0x21; 8][..]));
            assert_eq!(Welcome::decode(&datagram), Ok(welcome));
        }
    }

    #[test]
    fn a_noise_message_too_short_or_too_long_is_not_written() {
        for bytes in [0, 47, Welcome::NOISE_MESSAGE_MAX_BYTES + 1] {
            let noise_message = vec![0x77; bytes];
            let welcome = Welcome { client_id: ClientId([0x21; 8]), noise_message: &noise_message };
            let mut datagram = Vec::new();
            assert_eq!(welcome.encode(&mut datagram), Err(EncodeError::NoiseMessageLength));
            assert!(datagram.is_empty());
        }
    }

    #[test]
    fn another_kind_or_length_is_refused_and_without_room_nothing_is_written() {
        let mut datagram = [0; 1_200];
        datagram[0] = 0x89;
        assert_eq!(Welcome::decode(&datagram), Err(DatagramError::WrongKind));
        datagram[0] = 0x8c;
        assert!(Welcome::decode(&datagram).is_ok());
        assert_eq!(Welcome::decode(&datagram[..56]), Err(DatagramError::WrongLength));
        let welcome = Welcome { client_id: ClientId([1; 8]), noise_message: &[1; 48] };
        let mut buffer = [0; 56];
        assert_eq!(welcome.encode(&mut buffer.as_mut_slice()), Err(EncodeError::NoRoom { needed_bytes: 57 }));
        assert_eq!(buffer, [0; 56]);
    }
}
