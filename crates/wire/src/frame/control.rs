//! Frames that concern the connection itself: its end, its paths, its ids, and its resumption.
//!
//! Ends that a peer detects by itself, such as timeouts and resets, are not in a close frame, because they do not cross the
//! wire.

use bytes::BufMut;

use super::kinds::frame_type;
use crate::codec::{EncodeError, FrameError, Reader};
use crate::connection_id::ConnectionId;
use crate::limits::{CLOSE_REASON_MAX_BYTES, PATH_CHALLENGE_BYTES, RESET_TOKEN_BYTES, SEALED_TOKEN_BYTES};
use crate::varint;

/// The length in bytes of the pre-shared key of a resume token.
const PSK_BYTES: usize = 32;

/// The reason for the end of a connection. Other codes than these are a protocol error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseCode {
    /// The application closed the connection. Its own code and reason give the details.
    Application,
    /// The server is shutting down.
    Shutdown,
    /// A new connection of the same player replaced this one.
    Replaced,
    /// The session has reached its end time.
    SessionEnded,
    /// The peer violated the protocol.
    Protocol,
    /// The connection's keys have reached their usage limit.
    KeyLimit,
    /// A channel that must not lose messages was full.
    Overflow,
    /// The closing peer has an internal error.
    Internal,
}

impl CloseCode {
    /// Returns a stable name for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Shutdown => "shutdown",
            Self::Replaced => "replaced",
            Self::SessionEnded => "session_ended",
            Self::Protocol => "protocol",
            Self::KeyLimit => "key_limit",
            Self::Overflow => "overflow",
            Self::Internal => "internal",
        }
    }

    /// Returns the code's number on the wire.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Application => 0,
            Self::Shutdown => 1,
            Self::Replaced => 2,
            Self::SessionEnded => 3,
            Self::Protocol => 4,
            Self::KeyLimit => 5,
            Self::Overflow => 6,
            Self::Internal => 7,
        }
    }

    /// Returns the code with this number, or `None` if this version does not know it.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Application),
            1 => Some(Self::Shutdown),
            2 => Some(Self::Replaced),
            3 => Some(Self::SessionEnded),
            4 => Some(Self::Protocol),
            5 => Some(Self::KeyLimit),
            6 => Some(Self::Overflow),
            7 => Some(Self::Internal),
            _ => None,
        }
    }
}

/// A close frame (PROTOCOL 13.2, "Close").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Close<'a> {
    /// The reason for the end of the connection.
    pub code: CloseCode,
    /// A number that the application chose; 0 if it chose none.
    pub application_code: u32,
    /// A line for the peer's log, at most [`CLOSE_REASON_MAX_BYTES`] long. It should be UTF-8, but the decoder does not check
    /// that, and the bytes are not safe to print without escaping.
    pub reason: &'a [u8],
}

impl<'a> Close<'a> {
    /// Decodes the part after the type byte.
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let byte = reader.u8().ok_or(FrameError::Truncated)?;
        let code = CloseCode::from_byte(byte).ok_or(FrameError::BadClose)?;
        let application_code = u32::try_from(reader.varint()?).map_err(|_| FrameError::BadClose)?;
        let bytes = usize::try_from(reader.varint()?).map_err(|_| FrameError::BadClose)?;
        if bytes > CLOSE_REASON_MAX_BYTES {
            return Err(FrameError::BadClose);
        }
        let reason = reader.slice(bytes).ok_or(FrameError::Truncated)?;
        Ok(Self { code, application_code, reason })
    }

    /// Returns the length of the whole frame in bytes.
    pub(super) fn bytes(&self) -> Result<usize, EncodeError> {
        if self.reason.len() > CLOSE_REASON_MAX_BYTES {
            return Err(EncodeError::ReasonTooLong);
        }
        let varints_bytes = varint::encoded_bytes(u64::from(self.application_code))
            .saturating_add(varint::encoded_bytes(self.reason.len() as u64));
        Ok(varints_bytes.saturating_add(self.reason.len()).saturating_add(2))
    }

    /// Writes the frame. The caller has checked that it fits.
    pub(super) fn put(&self, out: &mut impl BufMut) {
        out.put_u8(frame_type::CLOSE);
        out.put_u8(self.code.to_byte());
        varint::put(u64::from(self.application_code), out);
        varint::put(self.reason.len() as u64, out);
        out.put_slice(self.reason);
    }
}

/// Random bytes that only a receiver on the path can return (PROTOCOL 11.5, "Path challenge and Path response").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathData(pub [u8; PATH_CHALLENGE_BYTES]);

/// A spare id for packets to the server (PROTOCOL 11.3, "New connection id and Retire connection id").
///
/// `Debug` omits the reset token, because it is enough to end the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NewConnectionId {
    /// The sequence number of the id in its connection. The id in the Welcome has sequence number 0.
    pub sequence: u64,
    /// The id that the server accepts for this connection from now on.
    pub id: ConnectionId,
    /// The token that a Reset for this id carries.
    pub reset_token: [u8; RESET_TOKEN_BYTES],
}

/// A token with which a client connects to this server again (PROTOCOL 15.4, "Resume token").
///
/// `Debug` omits the key and the token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ResumeToken<'a> {
    /// The lifetime of the token in seconds. The server counts it from the issue of the token, and the client from the
    /// arrival of the frame.
    pub lifetime_seconds: u16,
    /// The pre-shared key of client and server that belongs to the token.
    pub psk: &'a [u8; PSK_BYTES],
    /// The sealed token, which only the server can open.
    pub sealed: &'a [u8; SEALED_TOKEN_BYTES],
}

impl core::fmt::Debug for NewConnectionId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut shown = f.debug_struct("NewConnectionId");
        shown.field("sequence", &self.sequence).field("id", &self.id).finish_non_exhaustive()
    }
}

impl core::fmt::Debug for ResumeToken<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ResumeToken")
            .field("lifetime_seconds", &self.lifetime_seconds)
            .finish_non_exhaustive()
    }
}

impl PathData {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        reader.array().copied().map(Self).ok_or(FrameError::Truncated)
    }
}

impl NewConnectionId {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let sequence = reader.varint()?;
        let id = reader.array().copied().ok_or(FrameError::Truncated)?;
        let reset_token = reader.array().copied().ok_or(FrameError::Truncated)?;
        Ok(Self { sequence, id: ConnectionId::from_bytes(id), reset_token })
    }

    pub(super) fn body_bytes(&self) -> usize {
        varint::encoded_bytes(self.sequence)
            .saturating_add(ConnectionId::BYTES)
            .saturating_add(RESET_TOKEN_BYTES)
    }

    pub(super) fn put_body(&self, out: &mut impl BufMut) {
        varint::put(self.sequence, out);
        out.put_slice(&self.id.to_bytes());
        out.put_slice(&self.reset_token);
    }
}

impl<'a> ResumeToken<'a> {
    pub(super) const BODY_BYTES: usize = 2 + PSK_BYTES + SEALED_TOKEN_BYTES;

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let lifetime = reader.array().copied().ok_or(FrameError::Truncated)?;
        let psk = reader.array().ok_or(FrameError::Truncated)?;
        let sealed = reader.array().ok_or(FrameError::Truncated)?;
        Ok(Self { lifetime_seconds: u16::from_be_bytes(lifetime), psk, sealed })
    }

    pub(super) fn put_body(&self, out: &mut impl BufMut) {
        out.put_u16(self.lifetime_seconds);
        out.put_slice(self.psk);
        out.put_slice(self.sealed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Frames};

    fn decode_one(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
        Frames::new(bytes).next().unwrap()
    }

    #[test]
    fn every_code_has_one_byte() {
        for byte in 0..=u8::MAX {
            let code = CloseCode::from_byte(byte);
            assert_eq!(code.map(CloseCode::to_byte), (byte < 8).then_some(byte));
            let expected = code.is_some().then_some(()).ok_or(FrameError::BadClose);
            assert_eq!(decode_one(&[0x03, byte, 0, 0]).map(|_| ()), expected);
        }
    }

    #[test]
    fn a_reason_has_at_most_128_bytes() {
        for length in [127_usize, 128, 129] {
            let mut bytes = vec![0x03, 0, 0];
            varint::put(length as u64, &mut bytes);
            bytes.extend(vec![b'x'; length]);
            let expected = if length <= 128 { Ok(()) } else { Err(FrameError::BadClose) };
            assert_eq!(decode_one(&bytes).map(|_| ()), expected);
            let reason = vec![b'x'; length];
            let close = Close { code: CloseCode::Application, application_code: 0, reason: &reason };
            let expected = if length <= 128 { Ok(bytes.len()) } else { Err(EncodeError::ReasonTooLong) };
            assert_eq!(close.bytes(), expected);
        }
    }

    #[test]
    fn an_application_code_is_at_most_a_u32() {
        for (code, fits) in [(u64::from(u32::MAX), true), (u64::from(u32::MAX) + 1, false)] {
            let mut bytes = vec![0x03, 0];
            varint::put(code, &mut bytes);
            bytes.push(0);
            assert_eq!(decode_one(&bytes).is_ok(), fits);
        }
    }

    #[test]
    fn a_reason_must_end_inside_the_packet() {
        assert_eq!(decode_one(&[0x03, 0, 0, 2, b'x']), Err(FrameError::Truncated));
        assert_eq!(decode_one(&[0x03]), Err(FrameError::Truncated));
    }

    #[test]
    fn debug_shows_no_token_and_no_key() {
        let id = ConnectionId::from_bytes([1; 8]);
        let new = NewConnectionId { sequence: 3, id, reset_token: [0xee; RESET_TOKEN_BYTES] };
        let shown = format!("{new:?}");
        assert!(
            shown.starts_with("NewConnectionId { sequence: 3, id: ") && !shown.contains("238"),
            "{shown}"
        );
        let (psk, sealed) = ([0xee; PSK_BYTES], [0xee; SEALED_TOKEN_BYTES]);
        let resume = ResumeToken { lifetime_seconds: 60, psk: &psk, sealed: &sealed };
        assert_eq!(format!("{resume:?}"), "ResumeToken { lifetime_seconds: 60, .. }");
    }
}
