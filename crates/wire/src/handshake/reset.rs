//! The Reset: a server that does not know a connection any more says so, to whoever holds the token of its id.
//!
//! Whether the token is genuine is the client's business; only the server that made the id can compute it.

use bytes::BufMut;

use crate::connection_id::ConnectionId;
use crate::encode_error::{EncodeError, check_room};
use crate::header::{DatagramError, DatagramKind, RESET};
use crate::limits::{RESET_BYTES, RESET_TOKEN_BYTES};
use crate::reader::Reader;

const _: () = assert!(RESET_BYTES == 1 + ConnectionId::BYTES + RESET_TOKEN_BYTES);

/// A Reset (PROTOCOL 14, "Reset").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reset {
    /// The id of the packet it answers.
    pub connection_id: ConnectionId,
    /// The reset token of that id.
    pub token: [u8; RESET_TOKEN_BYTES],
}

impl Reset {
    /// Reads a Reset.
    ///
    /// # Errors
    ///
    /// When the datagram is not a Reset or not exactly as long as one.
    pub fn decode(datagram: &[u8]) -> Result<Self, DatagramError> {
        match DatagramKind::of(datagram)? {
            DatagramKind::Reset => Self::sections(datagram).ok_or(DatagramError::WrongLength),
            _ => Err(DatagramError::WrongKind),
        }
    }

    fn sections(datagram: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        let connection_id = ConnectionId::from_bytes(*reader.array()?);
        Some(Self { connection_id, token: *reader.array()? })
    }

    /// Writes the whole datagram, [`RESET_BYTES`] long.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when `out` is too short; then nothing is written.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        check_room(RESET_BYTES, out.remaining_mut())?;
        out.put_u8(RESET);
        out.put_slice(&self.connection_id.to_bytes());
        out.put_slice(&self.token);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_comes_back_and_no_other_length_is_one() {
        let reset = Reset { connection_id: ConnectionId::from_bytes([7; 8]), token: [9; 16] };
        let mut datagram = Vec::new();
        reset.encode(&mut datagram).unwrap();
        assert_eq!((datagram.len(), Reset::decode(&datagram)), (25, Ok(reset)));
        for length in (0..60).filter(|length| *length != 25) {
            let mut other = datagram.clone();
            other.resize(length, 0);
            assert!(Reset::decode(&other).is_err(), "{length}");
        }
        let mut buffer = [0; 24];
        assert_eq!(reset.encode(&mut buffer.as_mut_slice()), Err(EncodeError::NoRoom { needed_bytes: 25 }));
        assert_eq!(buffer, [0; 24]);
    }
}
