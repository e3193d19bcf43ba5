//! The datagrams of the handshake, and the Reset, as bytes.
//!
//! This module does no cryptography. Keys, tokens, cookies, Noise messages, and MACs are opaque byte strings here, which
//! `drumfire-crypto` computes and verifies.

mod hello;
mod parameters;
mod refuse;

pub use hello::{Hello, HelloDraft, HelloFields};
pub use parameters::{ClientParameters, ServerParameters, SharedParameters, Suite, SuiteOffer};
pub use refuse::{Refusal, Refuse, RefuseReason};

use bytes::BufMut;

use crate::codec::{EncodeError, Reader, check_room};
use crate::connection_id::ConnectionId;
use crate::header::{DatagramError, DatagramKind, RESET, RETRY, WELCOME};
use crate::limits::{
    COOKIE_BYTES, NOISE_MESSAGE_2_MIN_BYTES, RESET_BYTES, RESET_TOKEN_BYTES, RETRY_MIN_BYTES,
    WELCOME_MAX_BYTES, WELCOME_MIN_BYTES,
};

/// The number of zeros after the cookie of a Retry.
const RETRY_PADDING_BYTES: usize = RETRY_MIN_BYTES - 1 - ClientId::BYTES - COOKIE_BYTES;

/// The length in bytes of the part of a Welcome before the Noise message.
const WELCOME_HEAD_BYTES: usize = 1 + ClientId::BYTES;

const _: () = assert!(WELCOME_HEAD_BYTES + NOISE_MESSAGE_2_MIN_BYTES == WELCOME_MIN_BYTES);
const _: () = assert!(RESET_BYTES == 1 + ConnectionId::BYTES + RESET_TOKEN_BYTES);

/// Eight random bytes by which a client recognizes the replies to its Hello.
///
/// An attacker that is not on the path cannot guess them. A client id is unrelated to a connection id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientId(pub [u8; 8]);

impl ClientId {
    /// The length of a client id in bytes.
    pub const BYTES: usize = 8;
}

/// A Retry, with which a server asks for the same Hello with a cookie (PROTOCOL 5.5, "Retry").
///
/// The cookie proves the client's address before the server computes a key agreement.
///
/// The layout is the same in every version (PROTOCOL 2.2, "Versions").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry<'a> {
    /// The client id of the Hello.
    pub client_id: ClientId,
    /// The cookie, which the client copies into its Hello.
    pub cookie: &'a [u8; COOKIE_BYTES],
}

impl<'a> Retry<'a> {
    /// Decodes a Retry. Ignores the bytes after the cookie, which later versions may use.
    ///
    /// # Errors
    ///
    /// Returns an error if the datagram is not a Retry, or has an invalid length.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, DatagramError> {
        match DatagramKind::of(datagram)? {
            DatagramKind::Retry => Self::read(datagram).ok_or(DatagramError::WrongLength),
            _ => Err(DatagramError::WrongKind),
        }
    }

    fn read(datagram: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        Some(Self { client_id: ClientId(*reader.array()?), cookie: reader.array()? })
    }

    /// Writes the whole datagram, [`RETRY_MIN_BYTES`] long.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if `out` is too short. Nothing is written then.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        check_room(RETRY_MIN_BYTES, out.remaining_mut())?;
        out.put_u8(RETRY);
        out.put_slice(&self.client_id.0);
        out.put_slice(self.cookie);
        out.put_bytes(0, RETRY_PADDING_BYTES);
        Ok(())
    }
}

/// A Welcome, with which a server accepts a client and completes the Noise handshake (PROTOCOL 5.6, "Welcome").
///
/// The server's parameters are sealed in the Noise message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome<'a> {
    /// The client id of the Hello.
    pub client_id: ClientId,
    /// Noise message 2, which extends to the end of the datagram.
    pub noise_message: &'a [u8],
}

impl<'a> Welcome<'a> {
    /// The maximum length in bytes of the Noise message.
    pub const NOISE_MESSAGE_MAX_BYTES: usize = WELCOME_MAX_BYTES - WELCOME_HEAD_BYTES;

    /// Decodes a Welcome.
    ///
    /// # Errors
    ///
    /// Returns an error if the datagram is not a Welcome, or has an invalid length.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, DatagramError> {
        match DatagramKind::of(datagram)? {
            DatagramKind::Welcome => Self::read(datagram).ok_or(DatagramError::WrongLength),
            _ => Err(DatagramError::WrongKind),
        }
    }

    fn read(datagram: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        Some(Self { client_id: ClientId(*reader.array()?), noise_message: reader.rest() })
    }

    /// Writes the whole datagram.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoiseMessageLength`] if the Noise message is too short or too long, [`EncodeError::NoRoom`] if `out` is
    /// too short. Nothing is written then.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        let bytes = self.noise_message.len().saturating_add(WELCOME_HEAD_BYTES);
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

/// A Reset, with which a server reports that it does not know a connection (PROTOCOL 14, "Reset").
///
/// Only the server that made the connection id can compute the token. The client compares the token with the one that it
/// received together with the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reset {
    /// The connection id of the packet that the server received.
    pub connection_id: ConnectionId,
    /// The reset token of that id.
    pub token: [u8; RESET_TOKEN_BYTES],
}

impl Reset {
    /// Decodes a Reset.
    ///
    /// # Errors
    ///
    /// Returns an error if the datagram is not a Reset, or has an invalid length.
    pub fn decode(datagram: &[u8]) -> Result<Self, DatagramError> {
        match DatagramKind::of(datagram)? {
            DatagramKind::Reset => Self::read(datagram).ok_or(DatagramError::WrongLength),
            _ => Err(DatagramError::WrongKind),
        }
    }

    fn read(datagram: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        let connection_id = ConnectionId::from_bytes(*reader.array()?);
        Some(Self { connection_id, token: *reader.array()? })
    }

    /// Writes the whole datagram, [`RESET_BYTES`] long.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if `out` is too short. Nothing is written then.
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
    fn a_retry_round_trips_with_its_fields_at_their_offsets() {
        let retry = Retry { client_id: ClientId([0x21; 8]), cookie: &[0x66; COOKIE_BYTES] };
        let mut datagram = Vec::new();
        retry.encode(&mut datagram).unwrap();
        assert_eq!(datagram.len(), 64);
        assert_eq!((datagram[0], &datagram[1..9], &datagram[9..41]), (0x8a, &[0x21; 8][..], &[0x66; 32][..]));
        assert_eq!(datagram[41..], [0; 23]);
        assert_eq!(Retry::decode(&datagram), Ok(retry));
    }

    #[test]
    fn bytes_after_the_cookie_of_a_retry_are_ignored() {
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
    fn a_retry_is_neither_read_from_another_kind_nor_truncated() {
        let mut welcome = [0; 64];
        welcome[0] = 0x8c;
        assert_eq!(Retry::decode(&welcome), Err(DatagramError::WrongKind));
        let retry = Retry { client_id: ClientId([1; 8]), cookie: &[1; COOKIE_BYTES] };
        let mut buffer = [0; 63];
        assert!(retry.encode(&mut buffer.as_mut_slice()).is_err());
        assert_eq!(buffer, [0; 63]);
    }

    #[test]
    fn welcomes_of_every_valid_length_round_trip() {
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
    fn a_noise_message_of_invalid_length_is_not_written() {
        for bytes in [0, 47, Welcome::NOISE_MESSAGE_MAX_BYTES + 1] {
            let noise_message = vec![0x77; bytes];
            let welcome = Welcome { client_id: ClientId([0x21; 8]), noise_message: &noise_message };
            let mut datagram = Vec::new();
            assert_eq!(welcome.encode(&mut datagram), Err(EncodeError::NoiseMessageLength));
            assert!(datagram.is_empty());
        }
    }

    #[test]
    fn a_welcome_is_neither_read_from_another_kind_nor_truncated() {
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

    #[test]
    fn a_reset_round_trips_and_has_one_length() {
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
