//! The Retry: a server asks for the same Hello again, with a cookie, before it spends anything on it.
//!
//! The cookie is opaque here and to the client. The layout is the same in every version
//! (PROTOCOL 2.2, "Versions").

use bytes::BufMut;

use super::ClientId;
use crate::encode_error::{EncodeError, check_room};
use crate::header::{DatagramError, DatagramKind, RETRY};
use crate::limits::{COOKIE_BYTES, RETRY_MIN_BYTES};
use crate::reader::Reader;

/// Zeros after the cookie.
const PADDING_BYTES: usize = RETRY_MIN_BYTES - 1 - ClientId::BYTES - COOKIE_BYTES;

/// A Retry (PROTOCOL 5.5, "Retry").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry<'a> {
    /// The Hello's client id.
    pub client_id: ClientId,
    /// What the client puts into the cookie section of its Hello.
    pub cookie: &'a [u8; COOKIE_BYTES],
}

impl<'a> Retry<'a> {
    /// Reads a Retry. What follows the cookie is left to later versions.
    ///
    /// # Errors
    ///
    /// When the datagram is not a Retry or of another length.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, DatagramError> {
        match DatagramKind::of(datagram)? {
            DatagramKind::Retry => Self::sections(datagram).ok_or(DatagramError::WrongLength),
            _ => Err(DatagramError::WrongKind),
        }
    }

    fn sections(datagram: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        Some(Self { client_id: ClientId(*reader.array()?), cookie: reader.array()? })
    }

    /// Writes the whole datagram, [`RETRY_MIN_BYTES`] long.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when `out` is too short; then nothing is written.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        check_room(RETRY_MIN_BYTES, out.remaining_mut())?;
        out.put_u8(RETRY);
        out.put_slice(&self.client_id.0);
        out.put_slice(self.cookie);
        out.put_bytes(0, PADDING_BYTES);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_comes_back_and_stands_at_its_offsets() {
        let retry = Retry { client_id: ClientId([0x21; 8]), cookie: &[0x66; COOKIE_BYTES] };
        let mut datagram = Vec::new();
        retry.encode(&mut datagram).unwrap();
        assert_eq!(datagram.len(), 64);
        assert_eq!((datagram[0], &datagram[1..9], &datagram[9..41]), (0x8a, &[0x21; 8][..], &[0x66; 32][..]));
        assert_eq!(datagram[41..], [0; 23]);
        assert_eq!(Retry::decode(&datagram), Ok(retry));
    }

    #[test]
    fn what_follows_the_cookie_is_ignored_up_to_the_longest_retry() {
        let retry = Retry { client_id: ClientId([0x21; 8]), cookie: &[0x66; COOKIE_BYTES] };
        let mut datagram = Vec::new();
        retry.encode(&mut datagram).unwrap();
        assert_eq!(Retry::decode(&datagram[..63]), Err(DatagramError::WrongLength));
        datagram[41..].fill(0xff);
        datagram.resize(96, 0xff);
        assert_eq!(Retry::decode(&datagram), Ok(retry));
        datagram.push(0);
        assert_eq!(Retry::decode(&datagram), Err(DatagramError::WrongLength));
    }

    #[test]
    fn another_kind_is_refused_and_without_room_nothing_is_written() {
        let mut welcome = [0; 64];
        welcome[0] = 0x8c;
        assert_eq!(Retry::decode(&welcome), Err(DatagramError::WrongKind));
        let retry = Retry { client_id: ClientId([1; 8]), cookie: &[1; COOKIE_BYTES] };
        let mut buffer = [0; 63];
        assert!(retry.encode(&mut buffer.as_mut_slice()).is_err());
        assert_eq!(buffer, [0; 63]);
    }
}
