//! The reasons why a connection ended or could not be opened, as numbers and texts.

use std::ffi::CStr;

use drumfire::error::{CloseCode, RefuseReason};
use drumfire::{CloseReason, ConnectError, ReconnectReason};

/// The reason why there is no connection. The numbers are part of the ABI. They start at 0 for connections that ended
/// and at 30 for attempts that failed, and new ones are appended to their range.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireReason {
    /// The event has no reason.
    None = 0,
    /// This application closed the connection.
    ClosedByClient = 1,
    /// The server's application closed the connection, with a code of its own.
    ClosedByServer = 2,
    /// The server is going away.
    ServerShutdown = 3,
    /// The same player connected again.
    Replaced = 4,
    /// The lifetime of the session is over.
    SessionEnded = 5,
    /// A channel with the policy `DRUMFIRE_WHEN_FULL_DISCONNECT` was full.
    Overflow = 6,
    /// The server sent no packet for the idle timeout.
    IdleTimeout = 7,
    /// The server did not acknowledge a packet within the unacknowledged timeout.
    Unacknowledged = 8,
    /// One side violated the protocol, because of a bug or an attack.
    ProtocolViolation = 9,
    /// The keys reached their limit of packets or of forged packets: connect again.
    KeyLimit = 10,
    /// The server does not know the connection any more, usually because it was restarted: connect again.
    Reset = 11,
    /// An internal error of the server.
    ServerFault = 12,
    /// All keys were invalidated on this side: connect again.
    KeysInvalidated = 13,
    /// This host cannot send to the server's address, or not any more: check the network and the address family.
    Unreachable = 14,
    /// The server did not answer: check that it is running, and its address, key, and protocol id.
    NoAnswer = 30,
    /// The server supports other versions of the protocol.
    VersionMismatch = 31,
    /// The server has another protocol id: it serves another game or another build.
    WrongProtocolId = 32,
    /// The server is full.
    ServerFull = 33,
    /// The server does not admit this player.
    Banned = 34,
    /// The token is expired: get a new one.
    TokenExpired = 35,
    /// The token is for another server.
    TokenForeign = 36,
    /// The token was already used: get a new one.
    TokenUsed = 37,
    /// The server redirects this player to another server, which `bytes` of the event names.
    Redirect = 38,
    /// The server's public key is invalid.
    BadServerKey = 39,
    /// The server refused for a reason that this version does not know.
    Refused = 40,
    /// This side has no room or no entropy for a connection.
    LocalFault = 41,
    /// The server requires a token, and there was none.
    TokenMissing = 42,
    /// The server cannot decrypt the token: its issuer must use a token key that the server has.
    TokenUnreadable = 43,
    /// The server accepts no tokens: connect without one.
    TokenUnexpected = 44,
}

impl DrumfireReason {
    const ALL: [Self; 30] = [
        Self::None,
        Self::ClosedByClient,
        Self::ClosedByServer,
        Self::ServerShutdown,
        Self::Replaced,
        Self::SessionEnded,
        Self::Overflow,
        Self::IdleTimeout,
        Self::Unacknowledged,
        Self::ProtocolViolation,
        Self::KeyLimit,
        Self::Reset,
        Self::ServerFault,
        Self::KeysInvalidated,
        Self::Unreachable,
        Self::NoAnswer,
        Self::VersionMismatch,
        Self::WrongProtocolId,
        Self::ServerFull,
        Self::Banned,
        Self::TokenExpired,
        Self::TokenForeign,
        Self::TokenUsed,
        Self::Redirect,
        Self::BadServerKey,
        Self::Refused,
        Self::LocalFault,
        Self::TokenMissing,
        Self::TokenUnreadable,
        Self::TokenUnexpected,
    ];

    /// Returns a description of any number.
    pub(crate) fn text_of(number: u32) -> &'static CStr {
        let reason = Self::ALL.into_iter().find(|reason| *reason as u32 == number);
        reason.map_or(c"unknown reason", Self::text)
    }

    const fn text(self) -> &'static CStr {
        match self {
            Self::None => c"no reason",
            Self::ClosedByClient => c"this application closed the connection",
            Self::ClosedByServer => c"the server's application closed the connection",
            Self::ServerShutdown => c"the server is going away",
            Self::Replaced => c"the same player connected again",
            Self::SessionEnded => c"the lifetime of the session is over",
            Self::Overflow => c"a channel that disconnects when it is full was full",
            Self::IdleTimeout => c"the server sent nothing for too long",
            Self::Unacknowledged => c"the server acknowledged nothing for too long",
            Self::ProtocolViolation => c"one side violated the protocol",
            Self::KeyLimit => c"the keys reached their limit: connect again",
            Self::Reset => c"the server was restarted and does not know the connection: connect again",
            Self::ServerFault => c"the server had an internal error",
            Self::KeysInvalidated => c"all keys were invalidated here: connect again",
            Self::Unreachable => {
                c"this host cannot send to the server's address: check the network and the address family"
            }
            Self::NoAnswer => c"the server did not answer: check its address, key, and protocol id",
            Self::VersionMismatch => c"the server supports other versions of the protocol",
            Self::WrongProtocolId => c"the server serves another game or another build",
            Self::ServerFull => c"the server is full",
            Self::Banned => c"the server does not admit this player",
            Self::TokenExpired => c"the token is expired: get a new one",
            Self::TokenForeign => c"the token is for another server",
            Self::TokenUsed => c"the token was already used: get a new one",
            Self::Redirect => c"the server redirects this player to another server",
            Self::BadServerKey => c"the server's public key is invalid",
            Self::Refused => c"the server refused for a reason that this version does not know",
            Self::LocalFault => c"this side has no room or no entropy for a connection",
            Self::TokenMissing => c"the server requires a token",
            Self::TokenUnreadable => {
                c"the server cannot decrypt the token: its issuer must use a token key that the server has"
            }
            Self::TokenUnexpected => c"the server accepts no tokens: connect without one",
        }
    }
}

/// Returns why a connection ended, and the code of the application that closed it.
pub(crate) fn from_close(reason: CloseReason) -> (DrumfireReason, u32) {
    match reason {
        CloseReason::Local { code: CloseCode::Application, application_code } => {
            (DrumfireReason::ClosedByClient, application_code)
        }
        CloseReason::Remote { code: CloseCode::Application, application_code } => {
            (DrumfireReason::ClosedByServer, application_code)
        }
        CloseReason::Local { code, application_code } | CloseReason::Remote { code, application_code } => {
            (from_code(code), application_code)
        }
        CloseReason::IdleTimeout => (DrumfireReason::IdleTimeout, 0),
        CloseReason::Unacknowledged => (DrumfireReason::Unacknowledged, 0),
        CloseReason::Protocol(_) => (DrumfireReason::ProtocolViolation, 0),
        CloseReason::KeyLimit => (DrumfireReason::KeyLimit, 0),
        CloseReason::Reset => (DrumfireReason::Reset, 0),
        CloseReason::KeysInvalidated => (DrumfireReason::KeysInvalidated, 0),
        CloseReason::Unreachable => (DrumfireReason::Unreachable, 0),
    }
}

const fn from_code(code: CloseCode) -> DrumfireReason {
    match code {
        CloseCode::Application => DrumfireReason::ClosedByClient,
        CloseCode::Shutdown => DrumfireReason::ServerShutdown,
        CloseCode::Replaced => DrumfireReason::Replaced,
        CloseCode::SessionEnded => DrumfireReason::SessionEnded,
        CloseCode::Protocol => DrumfireReason::ProtocolViolation,
        CloseCode::KeyLimit => DrumfireReason::KeyLimit,
        CloseCode::Overflow => DrumfireReason::Overflow,
        CloseCode::Internal => DrumfireReason::ServerFault,
    }
}

/// Returns why an attempt to connect failed.
pub(crate) fn from_connect(error: &ConnectError) -> DrumfireReason {
    match error {
        ConnectError::Timeout => DrumfireReason::NoAnswer,
        ConnectError::VersionMismatch { .. } => DrumfireReason::VersionMismatch,
        ConnectError::TokenExpired => DrumfireReason::TokenExpired,
        ConnectError::Refused(refusal) => from_refusal(refusal.reason),
        ConnectError::Closed => DrumfireReason::ClosedByClient,
        ConnectError::KeysInvalidated => DrumfireReason::KeysInvalidated,
        ConnectError::Unreachable => DrumfireReason::Unreachable,
        ConnectError::BadServerKey => DrumfireReason::BadServerKey,
        ConnectError::NotAClient
        | ConnectError::TooManyConnections
        | ConnectError::HelloTooLong
        | ConnectError::BadEntropy => DrumfireReason::LocalFault,
    }
}

const fn from_refusal(reason: RefuseReason) -> DrumfireReason {
    match reason {
        RefuseReason::Version => DrumfireReason::VersionMismatch,
        RefuseReason::Full => DrumfireReason::ServerFull,
        RefuseReason::Banned => DrumfireReason::Banned,
        RefuseReason::TokenExpired => DrumfireReason::TokenExpired,
        RefuseReason::TokenForeign => DrumfireReason::TokenForeign,
        RefuseReason::TokenUsed => DrumfireReason::TokenUsed,
        RefuseReason::Redirect => DrumfireReason::Redirect,
        RefuseReason::Protocol => DrumfireReason::WrongProtocolId,
        RefuseReason::TokenMissing => DrumfireReason::TokenMissing,
        RefuseReason::TokenUnreadable => DrumfireReason::TokenUnreadable,
        RefuseReason::TokenUnexpected => DrumfireReason::TokenUnexpected,
        RefuseReason::Other(_) => DrumfireReason::Refused,
    }
}

/// Returns why a client connects again, and the code of the application that closed the connection.
pub(crate) fn from_reconnect(reason: &ReconnectReason) -> (DrumfireReason, u32) {
    match reason {
        ReconnectReason::Ended(closed) => from_close(closed.reason),
        ReconnectReason::Failed(error) => (from_connect(error), 0),
        // The enumeration is non-exhaustive.
        _ => (DrumfireReason::None, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_its_own_number_and_text() {
        let texts: HashSet<_> =
            DrumfireReason::ALL.map(|reason| DrumfireReason::text_of(reason as u32)).into();
        assert_eq!(texts.len(), DrumfireReason::ALL.len());
        assert_eq!(DrumfireReason::text_of(29), c"unknown reason");
    }

    #[test]
    fn a_close_by_either_side_has_its_own_reason() {
        let close = |is_here: bool, code| match is_here {
            true => from_close(CloseReason::Local { code, application_code: 7 }),
            false => from_close(CloseReason::Remote { code, application_code: 7 }),
        };
        assert_eq!(close(true, CloseCode::Application), (DrumfireReason::ClosedByClient, 7));
        assert_eq!(close(false, CloseCode::Application), (DrumfireReason::ClosedByServer, 7));
        assert_eq!(close(false, CloseCode::Shutdown), (DrumfireReason::ServerShutdown, 7));
    }
}
