//! Errors, as one small enum for each public operation, and the reasons for the end of a connection.
//!
//! A fault in a single datagram is no error: it is a [`DropReason`](crate::DropReason), which is counted and never
//! returned.

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

/// The reason why a message was not queued. No part of the message was queued.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The connection is closing. Its `Disconnected` event was queued.
    Closed,
    /// The connection's send memory is full. Send less, or again after the peer has acknowledged messages.
    Full,
    /// The client reconnects automatically and is not connected at the moment. Send again after its `Connected`
    /// event.
    NotConnected,
    /// The message is longer than its mode, the configuration, or the peer allows. Split it.
    TooLarge {
        /// The length of the message in bytes.
        bytes: usize,
        /// The longest message that is allowed, in bytes.
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
            Self::TooLarge { bytes, limit_bytes } => {
                write!(f, "the message has {bytes} bytes, and its limit is {limit_bytes} bytes")
            }
            Self::UnknownPeer => f.write_str("the peer is gone"),
        }
    }
}

impl core::error::Error for SendError {}

crate::debug_with_display!(SendError);

/// The reason why a connection was not closed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CloseError {
    /// The text of the reason is longer than this limit.
    TextTooLong {
        /// The longest text in bytes.
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

/// The reason why a client could not connect.
#[derive(Clone, PartialEq, Eq)]
pub enum ConnectError {
    /// No genuine Welcome arrived in time. Check that the server runs, and its address, key, and protocol id.
    Timeout,
    /// The server does not support this client's version. One of the two is too old. Nothing proves that the server said so.
    VersionMismatch {
        /// The oldest wire version that the server supports (PROTOCOL 2.2, "Versions").
        min: u16,
        /// The newest wire version that the server supports.
        max: u16,
    },
    /// The token has expired, or was issued before the server started. Get a new one. The server proved that it said so.
    TokenExpired,
    /// The server refused the connection, for this reason. [`Refusal::is_proved`] is false if an observer of the attempt may have
    /// written the refusal.
    Refused(Box<Refusal>),
    /// The application closed the attempt.
    Closed,
    /// The endpoint belongs to a server.
    NotAClient,
    /// The limit of connections is reached. A socket without connection ids has one.
    TooManyConnections,
    /// The server's public key is not a valid key.
    BadServerKey,
    /// The hello is longer than 256 bytes.
    HelloTooLong,
    /// The entropy source produced no unused connection id.
    BadEntropy,
    /// The application reported that a copy of this process may exist, and the keys of the attempt were forgotten.
    KeysInvalidated,
    /// The operating system cannot send to the server's address from this socket: its address family differs, or this
    /// host has no address to send from.
    Unreachable,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "the server did not answer: check that it is running, its address, and its public key",
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
            Self::TooManyConnections => "this end has its largest number of connections: raise `connections`, or wait until one has ended",
            Self::BadServerKey => "the server's public key is not valid",
            Self::HelloTooLong => "the hello is longer than 256 bytes",
            Self::BadEntropy => "the source of entropy is broken",
            Self::KeysInvalidated => "all keys were invalidated: connect again",
            Self::Unreachable => "this host cannot send to the server's address: check the address and its family, and that the host is on a network",
        })
    }
}

/// Writes one line that says what to do about a refusal.
fn display_refusal(refusal: &Refusal, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match refusal.reason {
        RefuseReason::Version => "the server refuses this client's version of the protocol",
        RefuseReason::Full => "the server is full",
        RefuseReason::Banned => "the server does not admit this player",
        RefuseReason::TokenExpired => "the token has expired: get a new one",
        RefuseReason::TokenForeign => "the token is for another server: get one for this server",
        RefuseReason::TokenUsed => "the token has been used: get a new one",
        RefuseReason::Redirect => "the server redirects the client to another server",
        RefuseReason::Protocol => {
            "the server has another protocol id: it is another game's or another build's"
        }
        RefuseReason::TokenMissing => {
            "the server admits only players with a token: get one from the game's backend, and connect with it"
        }
        RefuseReason::TokenUnreadable => {
            "the server cannot read the token: its issuer needs a token key that the server has, from the same master key, key id, and name"
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

/// The violation of the protocol by the peer (PROTOCOL 13.4, "Protocol errors").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    /// A packet contained invalid frames.
    Frame(FrameError),
    /// An ack named packets that were not sent.
    Ack(AckError),
    /// A packet contained a second ack.
    SecondAck,
    /// The id of a reliable message was too far ahead.
    MessageTooFarAhead,
    /// The peer issued or retired connection ids that it may not.
    ConnectionIds,
    /// The peer sent a frame that only the other side may send.
    WrongSide,
    /// The peer changed its keys again before it could know that the last change had arrived.
    KeyChange,
    /// The peer sent more reliable messages than it had credit for.
    CreditExceeded,
    /// A message was longer than this end accepts.
    MessageTooLong,
    /// Too many fragmented reliable messages were in flight.
    TooManyFragmented,
    /// Fragments of a message contradicted each other too often.
    FragmentMismatch,
}

impl ProtocolError {
    /// Returns a stable name for counters and logs.
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
            Self::TooManyFragmented => "too_many_fragmented",
            Self::FragmentMismatch => "fragment_mismatch",
        }
    }
}

/// The reason why a connection ended: by a Close of either end (PROTOCOL 13.2, "Close"), or without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// This end closed the connection.
    Local {
        /// The kind of close.
        code: CloseCode,
        /// The application's own code.
        application_code: u32,
    },
    /// The peer closed the connection.
    Remote {
        /// The kind of close.
        code: CloseCode,
        /// The application's own code.
        application_code: u32,
    },
    /// No packet of the peer arrived for the idle timeout.
    IdleTimeout,
    /// A packet was unacknowledged for the unacknowledged timeout.
    Unacknowledged,
    /// The peer violated the protocol, and was notified.
    Protocol(ProtocolError),
    /// The keys reached their limit of packets, or too many forged packets arrived.
    KeyLimit,
    /// The server no longer knows the connection: it was restarted, or it closed the connection and its close was
    /// lost. Connect again, with the resume token if there is one.
    Reset,
    /// The application reported that a copy of this process may exist. All keys were forgotten, and the peer was not
    /// notified.
    KeysInvalidated,
    /// The operating system can no longer send to the peer's address from this socket: this host lost its own address
    /// or the address family. The peer could not be notified.
    Unreachable,
}

impl fmt::Display for CloseReason {
    /// Writes one line for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { code, application_code } => close_text(f, "this end", *code, *application_code),
            Self::Remote { code, application_code } => close_text(f, "the peer", *code, *application_code),
            Self::IdleTimeout => f.write_str("no packet of the peer arrived for the idle timeout"),
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
    /// Returns a stable name for counters and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Local { .. } => "local",
            Self::Remote { .. } => "remote",
            Self::IdleTimeout => "idle_timeout",
            Self::Unacknowledged => "unacknowledged",
            Self::Protocol(_) => "protocol",
            Self::KeyLimit => "key_limit",
            Self::Reset => "reset",
            Self::KeysInvalidated => "keys_invalidated",
            Self::Unreachable => "unreachable",
        }
    }
}

/// The reason why a configuration was refused: the field, and its permitted values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConfigError {
    /// The name of the field, as in the configuration.
    pub field: &'static str,
    /// The permitted values, as they follow "must be" in the text of the error.
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
    fn a_refused_token_names_the_problem_and_the_remedy() {
        let text = |reason| {
            let (version_min, version_max) = (VERSION, VERSION);
            let (retry_after, address, is_proved) = (None, None, false);
            let refusal = Refusal { reason, version_min, version_max, retry_after, address, is_proved };
            ConnectError::Refused(Box::new(refusal)).to_string()
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
            (CloseReason::IdleTimeout, "no packet of the peer arrived for the idle timeout"),
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
