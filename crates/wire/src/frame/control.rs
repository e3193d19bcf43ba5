//! Frames that speak of the connection itself: paths, ids, and how to come back.
//!
//! Deliberately without a rule on when they are sent or what they answer.

use bytes::BufMut;

use super::FrameError;
use crate::connection_id::ConnectionId;
use crate::limits::{PATH_CHALLENGE_BYTES, RESET_TOKEN_BYTES, SEALED_TOKEN_BYTES};
use crate::reader::Reader;
use crate::varint;

/// Bytes of the pre-shared key that goes with a resume token.
pub(super) const PSK_BYTES: usize = 32;

/// Random bytes that only a receiver on the path can return (PROTOCOL 11.5, "Path challenge and Path response").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathData(pub [u8; PATH_CHALLENGE_BYTES]);

/// Another id for packets to the server (PROTOCOL 11.3, "New connection id and Retire connection id").
///
/// Its `Debug` leaves the reset token out: who has it can end the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NewConnectionId {
    /// Counts the ids of a connection; the Welcome's is 0.
    pub sequence: u64,
    /// The id.
    pub id: ConnectionId,
    /// What a Reset for this id carries.
    pub reset_token: [u8; RESET_TOKEN_BYTES],
}

/// A token with which a client connects to this server again (PROTOCOL 15.4, "Resume token").
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ResumeToken<'a> {
    /// How long it is good, in seconds from its sending.
    pub life_seconds: u16,
    /// The pre-shared key.
    pub psk: &'a [u8; PSK_BYTES],
    /// The sealed token.
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
        f.debug_struct("ResumeToken").field("life_seconds", &self.life_seconds).finish_non_exhaustive()
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
        let life = reader.array().copied().ok_or(FrameError::Truncated)?;
        let psk = reader.array().ok_or(FrameError::Truncated)?;
        let sealed = reader.array().ok_or(FrameError::Truncated)?;
        Ok(Self { life_seconds: u16::from_be_bytes(life), psk, sealed })
    }

    pub(super) fn put_body(&self, out: &mut impl BufMut) {
        out.put_u16(self.life_seconds);
        out.put_slice(self.psk);
        out.put_slice(self.sealed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let resume = ResumeToken { life_seconds: 60, psk: &psk, sealed: &sealed };
        assert_eq!(format!("{resume:?}"), "ResumeToken { life_seconds: 60, .. }");
    }
}
