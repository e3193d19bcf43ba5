//! Why a connection ended or never was, as a number and a line.
//!
//! What the other side had to say about it comes with the event.

use std::ffi::CStr;

use drumfire::{CloseCode, CloseReason, ConnectError, ReconnectReason, RefuseReason};

/// Why there is no connection. The numbers are part of the ABI; new ones come at the end of their tens.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireReason {
    /// The event has none.
    None = 0,
    /// This application closed it.
    ClosedHere = 1,
    /// The server's application closed it, with a code of its own.
    ClosedByServer = 2,
    /// The server is going away.
    ServerShutdown = 3,
    /// The same player connected anew.
    Replaced = 4,
    /// The session's time is over.
    SessionEnded = 5,
    /// A channel that must not lose anything was full.
    Overflow = 6,
    /// Nothing was heard of the server for the silent timeout.
    Silent = 7,
    /// The server acknowledged nothing for the unacknowledged timeout.
    Unacknowledged = 8,
    /// One of the two broke the protocol: a fault or an attack.
    ProtocolBroken = 9,
    /// The keys are used up, or too many forged packets came: connect again.
    KeyLimit = 10,
    /// The server does not know the connection any more, it was restarted: connect again.
    Reset = 11,
    /// A fault on the server.
    ServerFault = 12,
    /// All keys were invalidated on this side: connect again.
    KeysInvalidated = 13,
    /// This host cannot send to the server's address, or not any more: is it on a network, and is the address of the right family?
    Unreachable = 14,
    /// Nobody answered: is the server there, and are its address, key and protocol id right?
    NoAnswer = 30,
    /// The server speaks other versions of the protocol.
    VersionMismatch = 31,
    /// The server has another protocol id: it is another game's or another build's.
    WrongProtocolId = 32,
    /// The server is full.
    ServerFull = 33,
    /// The server does not admit this player.
    Banned = 34,
    /// The token's time is over: get a new one.
    TokenExpired = 35,
    /// The token is for another server.
    TokenForeign = 36,
    /// The token was used: get a new one.
    TokenUsed = 37,
    /// Another server takes this player; the event's bytes say which.
    TryThere = 38,
    /// The server's public key is not one that anybody has.
    BadServerKey = 39,
    /// The server refuses for a reason of a newer version.
    Refused = 40,
    /// This side has no room or no entropy for a connection.
    LocalFault = 41,
    /// The server admits only players with a token, and there was none.
    TokenMissing = 42,
    /// The server cannot read the token: its issuer needs a token key that the server has.
    TokenUnreadable = 43,
    /// The server takes no tokens: connect without one.
    TokenUnexpected = 44,
}

impl DrumfireReason {
    const ALL: [Self; 30] = [
        Self::None,
        Self::ClosedHere,
        Self::ClosedByServer,
        Self::ServerShutdown,
        Self::Replaced,
        Self::SessionEnded,
        Self::Overflow,
        Self::Silent,
        Self::Unacknowledged,
        Self::ProtocolBroken,
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
        Self::TryThere,
        Self::BadServerKey,
        Self::Refused,
        Self::LocalFault,
        Self::TokenMissing,
        Self::TokenUnreadable,
        Self::TokenUnexpected,
    ];

    /// One line for people, of any number a program may hold.
    pub(crate) fn text_of(number: u32) -> &'static CStr {
        let reason = Self::ALL.into_iter().find(|reason| *reason as u32 == number);
        reason.map_or(c"this number is no reason", Self::text)
    }

    const fn text(self) -> &'static CStr {
        match self {
            Self::None => c"there is no reason",
            Self::ClosedHere => c"this application closed the connection",
            Self::ClosedByServer => c"the server's application closed the connection",
            Self::ServerShutdown => c"the server is going away",
            Self::Replaced => c"the same player connected anew",
            Self::SessionEnded => c"the session's time is over",
            Self::Overflow => c"a channel that must not lose anything was full",
            Self::Silent => c"the server fell silent",
            Self::Unacknowledged => c"the server acknowledged nothing for too long",
            Self::ProtocolBroken => c"the protocol was broken",
            Self::KeyLimit => c"the keys are used up: connect again",
            Self::Reset => c"the server was restarted and does not know the connection: connect again",
            Self::ServerFault => c"the server had a fault",
            Self::KeysInvalidated => c"all keys were invalidated here: connect again",
            Self::Unreachable => {
                c"this host cannot send to the server's address: check its family and the network"
            }
            Self::NoAnswer => c"nobody answered: check the server's address, key and protocol id",
            Self::VersionMismatch => c"the server speaks other versions of the protocol",
            Self::WrongProtocolId => c"the server is another game's or another build's",
            Self::ServerFull => c"the server is full",
            Self::Banned => c"the server does not admit this player",
            Self::TokenExpired => c"the token's time is over: get a new one",
            Self::TokenForeign => c"the token is for another server",
            Self::TokenUsed => c"the token was used: get a new one",
            Self::TryThere => c"another server takes this player",
            Self::BadServerKey => c"the server's public key is not one that anybody has",
            Self::Refused => c"the server refuses for a reason of a newer version",
            Self::LocalFault => c"this side has no room or no entropy for a connection",
            Self::TokenMissing => c"the server admits only players with a token",
            Self::TokenUnreadable => {
                c"the server cannot read the token: its issuer needs a token key that the server has"
            }
            Self::TokenUnexpected => c"the server takes no tokens: connect without one",
        }
    }
}

/// Why a connection ended, and the closing application's own code.
pub(crate) fn of_close(reason: CloseReason) -> (DrumfireReason, u32) {
    match reason {
        CloseReason::Local { code: CloseCode::Application, application_code } => {
            (DrumfireReason::ClosedHere, application_code)
        }
        CloseReason::Remote { code: CloseCode::Application, application_code } => {
            (DrumfireReason::ClosedByServer, application_code)
        }
        CloseReason::Local { code, application_code } | CloseReason::Remote { code, application_code } => {
            (of_code(code), application_code)
        }
        CloseReason::Silent => (DrumfireReason::Silent, 0),
        CloseReason::Unacknowledged => (DrumfireReason::Unacknowledged, 0),
        CloseReason::Protocol(_) => (DrumfireReason::ProtocolBroken, 0),
        CloseReason::KeyLimit => (DrumfireReason::KeyLimit, 0),
        CloseReason::Reset => (DrumfireReason::Reset, 0),
        CloseReason::KeysInvalidated => (DrumfireReason::KeysInvalidated, 0),
        CloseReason::Unreachable => (DrumfireReason::Unreachable, 0),
    }
}

const fn of_code(code: CloseCode) -> DrumfireReason {
    match code {
        CloseCode::Application => DrumfireReason::ClosedHere,
        CloseCode::Shutdown => DrumfireReason::ServerShutdown,
        CloseCode::Replaced => DrumfireReason::Replaced,
        CloseCode::SessionEnded => DrumfireReason::SessionEnded,
        CloseCode::Protocol => DrumfireReason::ProtocolBroken,
        CloseCode::KeyLimit => DrumfireReason::KeyLimit,
        CloseCode::Overflow => DrumfireReason::Overflow,
        CloseCode::Internal => DrumfireReason::ServerFault,
    }
}

/// Why there never was a connection.
pub(crate) fn of_connect(error: &ConnectError) -> DrumfireReason {
    match error {
        ConnectError::Timeout => DrumfireReason::NoAnswer,
        ConnectError::VersionMismatch { .. } => DrumfireReason::VersionMismatch,
        ConnectError::TokenExpired => DrumfireReason::TokenExpired,
        ConnectError::Refused(refusal) => of_refusal(refusal.reason),
        ConnectError::Closed => DrumfireReason::ClosedHere,
        ConnectError::KeysInvalidated => DrumfireReason::KeysInvalidated,
        ConnectError::Unreachable => DrumfireReason::Unreachable,
        ConnectError::BadServerKey => DrumfireReason::BadServerKey,
        ConnectError::TokenForOtherProtocol => DrumfireReason::WrongProtocolId,
        ConnectError::NotAClient | ConnectError::TooManyConnections | ConnectError::BadEntropy => {
            DrumfireReason::LocalFault
        }
    }
}

const fn of_refusal(reason: RefuseReason) -> DrumfireReason {
    match reason {
        RefuseReason::Version => DrumfireReason::VersionMismatch,
        RefuseReason::Full => DrumfireReason::ServerFull,
        RefuseReason::Banned => DrumfireReason::Banned,
        RefuseReason::TokenExpired => DrumfireReason::TokenExpired,
        RefuseReason::TokenForeign => DrumfireReason::TokenForeign,
        RefuseReason::TokenUsed => DrumfireReason::TokenUsed,
        RefuseReason::TryThere => DrumfireReason::TryThere,
        RefuseReason::Protocol => DrumfireReason::WrongProtocolId,
        RefuseReason::TokenMissing => DrumfireReason::TokenMissing,
        RefuseReason::TokenUnreadable => DrumfireReason::TokenUnreadable,
        RefuseReason::TokenUnexpected => DrumfireReason::TokenUnexpected,
        RefuseReason::Other(_) => DrumfireReason::Refused,
    }
}

/// Why a client begins anew.
pub(crate) fn of_reconnect(reason: &ReconnectReason) -> (DrumfireReason, u32) {
    match reason {
        ReconnectReason::Ended(reason) => of_close(*reason),
        ReconnectReason::Failed(error) => (of_connect(error), 0),
        // The enumeration may grow.
        _ => (DrumfireReason::None, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_a_number_and_a_text_of_its_own() {
        let texts: HashSet<_> =
            DrumfireReason::ALL.map(|reason| DrumfireReason::text_of(reason as u32)).into();
        assert_eq!(texts.len(), DrumfireReason::ALL.len());
        assert_eq!(DrumfireReason::text_of(29), c"this number is no reason");
    }

    #[test]
    fn the_one_who_closed_is_told_from_the_other() {
        let close = |is_here: bool, code| match is_here {
            true => of_close(CloseReason::Local { code, application_code: 7 }),
            false => of_close(CloseReason::Remote { code, application_code: 7 }),
        };
        assert_eq!(close(true, CloseCode::Application), (DrumfireReason::ClosedHere, 7));
        assert_eq!(close(false, CloseCode::Application), (DrumfireReason::ClosedByServer, 7));
        assert_eq!(close(false, CloseCode::Shutdown), (DrumfireReason::ServerShutdown, 7));
    }
}
