//! What can go wrong, in small enums: one per public verb, and one for how connections end.
//!
//! What is wrong with a single datagram is not here: that is a [`DropReason`](crate::DropReason), counted and
//! never returned.

use core::fmt;

use drumfire_wire::{CloseCode, FrameError, Refusal, RefuseReason, VERSION};

use crate::loss::AckError;

/// Makes the `Debug` output of an error its `Display` text, because `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_with_display {
    ($error:ty) => {
        impl ::core::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// Why a message was not taken. Nothing of it was.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The connection is closing; its `Disconnected` event is on the way.
    Closed,
    /// The connection's send memory is full. Send less, or again after its peer has acknowledged.
    Full,
    /// The client reconnects by itself and has no connection at the moment. Send again after its `Connected` event.
    NotConnected,
    /// The message is larger than its mode, the configuration or the peer takes. Split it.
    TooLarge {
        /// Bytes of the largest message there may be.
        limit_bytes: usize,
    },
    /// No connection has this id any more.
    UnknownPeer,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the connection is closing"),
            Self::Full => f.write_str("the connection's send memory is full, send less or later"),
            Self::NotConnected => {
                f.write_str("the client is not connected now, send after its next Connected event")
            }
            Self::TooLarge { limit_bytes } => write!(f, "the message is larger than {limit_bytes} bytes"),
            Self::UnknownPeer => f.write_str("the peer is gone"),
        }
    }
}

impl core::error::Error for SendError {}

crate::debug_with_display!(SendError);

/// Why a connection was not closed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CloseError {
    /// The reason's text is longer than this many bytes.
    TextTooLong {
        /// Bytes of the longest text.
        limit_bytes: usize,
    },
    /// No connection has this id any more.
    UnknownPeer,
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TextTooLong { limit_bytes } => {
                write!(f, "the close text is longer than {limit_bytes} bytes")
            }
            Self::UnknownPeer => f.write_str("the peer is gone"),
        }
    }
}

impl core::error::Error for CloseError {}

crate::debug_with_display!(CloseError);

/// Why a client got no connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ConnectError {
    /// No genuine Welcome came in time: is the server there, and are its address, key and protocol id right?
    Timeout,
    /// The server does not speak this client's version: one of the two is too old.
    VersionMismatch {
        /// The oldest wire version the server speaks (PROTOCOL 2.2, "Versions").
        min: u16,
        /// The newest wire version the server speaks.
        max: u16,
    },
    /// The token's time is over, or the server began after it was issued: get a new one.
    TokenExpired,
    /// The server said no, and why.
    Refused(Refusal),
    /// The application closed the attempt.
    Closed,
    /// The endpoint is a server's.
    NotAClient,
    /// There are as many connections as the configuration allows; on a socket without connection ids, one.
    TooManyConnections,
    /// The server's public key is not one that anybody has.
    BadServerKey,
    /// The token is for a game or build with another protocol id.
    TokenForOtherProtocol,
    /// The entropy gave no connection id.
    BadEntropy,
    /// This end was told that there may be a copy of it, and forgot the keys of the attempt.
    KeysInvalidated,
    /// The system cannot send to the server's address from this socket: it is of another family of addresses, or this host has
    /// no address to send from.
    Unreachable,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "the server did not answer: check its address and public key",
            Self::VersionMismatch { min, max } => {
                let advice = if VERSION < *min { "update the client" } else { "update the server" };
                return write!(
                    f,
                    "the server speaks versions {min} to {max} of the protocol, this client {VERSION}: {advice}"
                );
            }
            Self::TokenExpired => "the token is out of date: get a new one, and check the clocks of its issuer and the server",
            Self::Refused(refusal) => return display_refusal(refusal, f),
            Self::Closed => "the attempt was closed",
            Self::NotAClient => "this endpoint is a server's",
            Self::TooManyConnections => "the endpoint has no room for another connection",
            Self::BadServerKey => "the server's public key is not valid",
            Self::TokenForOtherProtocol => "the token is for another protocol id: backend, server and client of one build have the same",
            Self::BadEntropy => "the source of entropy is broken",
            Self::KeysInvalidated => "all keys were invalidated meanwhile: connect again",
            Self::Unreachable => "this host cannot send to the server's address: check the address and its family, and that the host is on a network",
        })
    }
}

/// What to do about a refusal, in one line.
fn display_refusal(refusal: &Refusal, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match refusal.reason {
        RefuseReason::Version => "the server refuses this client's version of the protocol",
        RefuseReason::Full => "the server is full",
        RefuseReason::Banned => "the server does not admit this player",
        RefuseReason::TokenExpired => "the token has expired: get a new one",
        RefuseReason::TokenForeign => "the token is for another server: get one for this server",
        RefuseReason::TokenUsed => "the token has been used: get a new one",
        RefuseReason::TryThere => "another server takes this player",
        RefuseReason::Protocol => {
            "the server has another protocol id: it is another game's or another build's"
        }
        RefuseReason::TokenMissing => {
            "the server admits only players with a token: get one from the game's backend, and connect with it"
        }
        RefuseReason::TokenUnreadable => {
            "the server cannot read the token: its issuer needs a token key that the server has, with the same key id and server id"
        }
        RefuseReason::TokenUnexpected => "the server takes no tokens: connect without one",
        RefuseReason::Other(_) => "the server refuses for a reason of a newer version",
    })?;
    if let Some(address) = refusal.address {
        write!(f, ": connect to {address}")?;
    }
    match refusal.retry_after {
        Some(after) => write!(f, "; try again in {} s", after.as_secs()),
        None => Ok(()),
    }
}

impl core::error::Error for ConnectError {}

crate::debug_with_display!(ConnectError);

/// How the peer broke the protocol (PROTOCOL 13.4, "Protocol errors").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    /// A packet did not consist of frames.
    Frame(FrameError),
    /// An ack was a lie.
    Ack(AckError),
    /// A packet had a second ack.
    SecondAck,
    /// A reliable message's id was too far ahead.
    MessageTooFarAhead,
    /// It gave or retired connection ids that it may not.
    ConnectionIds,
    /// It sent a frame that only the other side sends.
    WrongSide,
    /// It changed its keys again before it could know that the last change had arrived.
    KeyChange,
    /// It sent more reliable messages than it had credit for.
    CreditExceeded,
    /// A message was longer than this end takes.
    MessageTooLong,
    /// More reliable messages than allowed were under way in pieces.
    TooManyInPieces,
    /// Pieces of a message did not agree, too often.
    PiecesDisagree,
}

impl ProtocolError {
    /// A stable name for counters and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Frame(error) => error.name(),
            Self::Ack(AckError::Unsent) => "ack_of_unsent",
            Self::Ack(AckError::Skipped) => "ack_of_skipped",
            Self::SecondAck => "second_ack",
            Self::MessageTooFarAhead => "message_too_far_ahead",
            Self::ConnectionIds => "connection_ids",
            Self::WrongSide => "wrong_side",
            Self::KeyChange => "key_change",
            Self::CreditExceeded => "credit_exceeded",
            Self::MessageTooLong => "message_too_long",
            Self::TooManyInPieces => "too_many_in_pieces",
            Self::PiecesDisagree => "pieces_disagree",
        }
    }
}

/// How a connection ended: by a Close of either end (PROTOCOL 13.2, "Close"), or without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// This end closed it.
    Local {
        /// Who or what did.
        code: CloseCode,
        /// The application's own number.
        application_code: u32,
    },
    /// The peer closed it.
    Remote {
        /// Who or what did.
        code: CloseCode,
        /// The application's own number.
        application_code: u32,
    },
    /// No packet came from the peer for the silent timeout.
    Silent,
    /// A packet waited for its ack for the unacknowledged timeout.
    Unacknowledged,
    /// The peer broke the protocol, and was told so.
    Protocol(ProtocolError),
    /// The keys protected as much as they may, or too many forged packets came.
    KeyLimit,
    /// The server does not know the connection any more: it was restarted, or closed it and its word was lost. Connect
    /// again, with the resume token where there is one.
    Reset,
    /// This end was told that there may be a copy of it, and forgot all keys without a word to anybody.
    KeysInvalidated,
    /// The system cannot send to the peer's address from this socket any more: this host lost the address it sent from, or the
    /// family of addresses. The peer could not be told.
    Unreachable,
}

impl fmt::Display for CloseReason {
    /// One line for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { code, application_code } => close_text(f, "this end", *code, *application_code),
            Self::Remote { code, application_code } => close_text(f, "the peer", *code, *application_code),
            Self::Silent => f.write_str("the peer fell silent"),
            Self::Unacknowledged => f.write_str("the peer acknowledged nothing for too long"),
            Self::Protocol(error) => write!(f, "the peer broke the protocol: {}", error.name()),
            Self::KeyLimit => {
                f.write_str("the keys are used up, or too many forged packets came: connect again")
            }
            Self::Reset => f.write_str("the server does not know the connection any more: connect again"),
            Self::KeysInvalidated => f.write_str("this end invalidated all keys: connect again"),
            Self::Unreachable => f.write_str("this host cannot send to the peer's address any more"),
        }
    }
}

fn close_text(f: &mut fmt::Formatter<'_>, who: &str, code: CloseCode, number: u32) -> fmt::Result {
    match code {
        CloseCode::Application => write!(f, "{who} closed it, with the application's code {number}"),
        code => write!(f, "{who} closed it: {code:?}"),
    }
}

impl CloseReason {
    /// A stable name for counters and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Local { .. } => "local",
            Self::Remote { .. } => "remote",
            Self::Silent => "silent",
            Self::Unacknowledged => "unacknowledged",
            Self::Protocol(_) => "protocol",
            Self::KeyLimit => "key_limit",
            Self::Reset => "reset",
            Self::KeysInvalidated => "keys_invalidated",
            Self::Unreachable => "unreachable",
        }
    }
}

/// Why a configuration was refused: which field, and what it may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// What it must be.
    pub must_be: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.field, self.must_be)
    }
}

impl core::error::Error for ConfigError {}

crate::debug_with_display!(ConfigError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_token_names_the_problem_and_the_way_out() {
        let text = |reason| {
            let (version_min, version_max) = (VERSION, VERSION);
            let refusal = Refusal { reason, version_min, version_max, retry_after: None, address: None };
            ConnectError::Refused(refusal).to_string()
        };
        for (reason, problem, way_out) in [
            (RefuseReason::TokenMissing, "only players with a token", "get one from the game's backend"),
            (RefuseReason::TokenUnreadable, "cannot read the token", "a token key that the server has"),
            (RefuseReason::TokenUnexpected, "takes no tokens", "connect without one"),
            (RefuseReason::TokenForeign, "for another server", "get one for this server"),
        ] {
            let text = text(reason);
            assert!(text.contains(problem) && text.contains(way_out), "{text}");
        }
    }

    #[test]
    fn a_reason_says_who_ended_it_and_what_to_do() {
        let remote = |code| CloseReason::Remote { code, application_code: 7 };
        for (reason, text) in [
            (remote(CloseCode::Application), "the peer closed it, with the application's code 7"),
            (remote(CloseCode::Shutdown), "the peer closed it: Shutdown"),
            (CloseReason::Silent, "the peer fell silent"),
            (
                CloseReason::Protocol(ProtocolError::MessageTooFarAhead),
                "the peer broke the protocol: message_too_far_ahead",
            ),
            (CloseReason::Reset, "the server does not know the connection any more: connect again"),
            (CloseReason::Unreachable, "this host cannot send to the peer's address any more"),
        ] {
            assert_eq!(reason.to_string(), text);
        }
    }
}
