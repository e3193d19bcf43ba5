//! The close frame: why a connection ends, for the peer's program and for its log.
//!
//! Deliberately without the reasons an end finds by itself, timeouts and resets: those never cross the wire.

use bytes::BufMut;

use super::{FrameError, type_byte};
use crate::encode_error::EncodeError;
use crate::limits::CLOSE_REASON_MAX_BYTES;
use crate::reader::Reader;
use crate::varint;

/// Who or what ended the connection. A closed set: other numbers are a protocol error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseCode {
    /// The application did; its own code and reason say why.
    Application,
    /// The server is going away.
    Shutdown,
    /// The same player connected anew.
    Replaced,
    /// The session's time is over.
    SessionEnded,
    /// The peer broke the protocol.
    Protocol,
    /// The keys protected as much as they may.
    KeyLimit,
    /// A channel that must not lose anything was full.
    Overflow,
    /// A fault on the closing side.
    Internal,
}

impl CloseCode {
    /// A stable name for counters and logs.
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

    /// The code's number on the wire.
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

    /// The code with this number.
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
    /// Who or what ended the connection.
    pub code: CloseCode,
    /// The application's own number; 0 where it has none.
    pub application_code: u32,
    /// A line for the peer's log, up to [`CLOSE_REASON_MAX_BYTES`]. UTF-8 by custom only: show it with care.
    pub reason: &'a [u8],
}

impl<'a> Close<'a> {
    /// Reads what follows the type byte.
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

    /// Bytes of the whole frame.
    pub(super) fn bytes(&self) -> Result<usize, EncodeError> {
        if self.reason.len() > CLOSE_REASON_MAX_BYTES {
            return Err(EncodeError::ReasonTooLong);
        }
        let varints_bytes = varint::encoded_bytes(u64::from(self.application_code))
            .saturating_add(varint::encoded_bytes(self.reason_bytes()));
        Ok(varints_bytes.saturating_add(self.reason.len()).saturating_add(2))
    }

    /// Writes the frame where the caller has made sure of the room.
    pub(super) fn put(&self, out: &mut impl BufMut) {
        out.put_u8(type_byte::CLOSE);
        out.put_u8(self.code.to_byte());
        varint::put(u64::from(self.application_code), out);
        varint::put(self.reason_bytes(), out);
        out.put_slice(self.reason);
    }

    fn reason_bytes(&self) -> u64 {
        u64::try_from(self.reason.len()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Frames};

    fn only(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
        Frames::new(bytes).next().unwrap()
    }

    #[test]
    fn codes_and_bytes_belong_together() {
        for byte in 0..=u8::MAX {
            let code = CloseCode::from_byte(byte);
            assert_eq!(code.map(CloseCode::to_byte), (byte < 8).then_some(byte));
            let wanted = code.is_some().then_some(()).ok_or(FrameError::BadClose);
            assert_eq!(only(&[0x03, byte, 0, 0]).map(|_| ()), wanted);
        }
    }

    #[test]
    fn a_reason_ends_at_128_bytes() {
        for length in [127_usize, 128, 129] {
            let mut bytes = vec![0x03, 0, 0];
            varint::put(length as u64, &mut bytes);
            bytes.extend(vec![b'x'; length]);
            let wanted = if length <= 128 { Ok(()) } else { Err(FrameError::BadClose) };
            assert_eq!(only(&bytes).map(|_| ()), wanted);
            let reason = vec![b'x'; length];
            let close = Close { code: CloseCode::Application, application_code: 0, reason: &reason };
            let wanted = if length <= 128 { Ok(bytes.len()) } else { Err(EncodeError::ReasonTooLong) };
            assert_eq!(close.bytes(), wanted);
        }
    }

    #[test]
    fn an_application_code_ends_at_u32() {
        for (code, fits) in [(u64::from(u32::MAX), true), (u64::from(u32::MAX) + 1, false)] {
            let mut bytes = vec![0x03, 0];
            varint::put(code, &mut bytes);
            bytes.push(0);
            assert_eq!(only(&bytes).is_ok(), fits);
        }
    }

    #[test]
    fn a_reason_must_end_inside_the_packet() {
        assert_eq!(only(&[0x03, 0, 0, 2, b'x']), Err(FrameError::Truncated));
        assert_eq!(only(&[0x03]), Err(FrameError::Truncated));
    }
}
