//! What can go wrong on the control connection, each in one line that says what to do.
//!
//! It decides nothing about exit codes or retries.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::{MAX_LINE_BYTES, VERSION};

/// Why the control connection could not be made or came to its end.
#[derive(Debug)]
pub enum ControlError {
    /// No receiver answers at the address.
    Unreachable {
        /// The last address that was tried.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The peer closed the connection while something was still expected of it.
    ClosedEarly {
        /// The message that was under way or expected.
        waiting_for: &'static str,
    },
    /// The caller stopped waiting.
    TimedOut {
        /// The message that was expected.
        waiting_for: &'static str,
    },
    /// A line is longer than [`MAX_LINE_BYTES`].
    LineTooLong,
    /// A line is not the expected message, or a field is out of range.
    Malformed {
        /// The message that was expected.
        expected: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The peer speaks another version.
    VersionDiffers {
        /// The peer's version.
        theirs: u64,
    },
    /// The receiver does not take this sender.
    Refused {
        /// Its reason, made printable.
        reason: String,
    },
    /// The system refused an operation on the connection.
    Io(io::Error),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address, source } => write!(
                f,
                "nothing answers at tcp {address} ({source}): start `receiver` there first, and open TCP and UDP of \
                 that port in the firewall"
            ),
            Self::ClosedEarly { waiting_for } => write!(
                f,
                "the other side closed the control connection before `{waiting_for}`: see what it printed, then \
                 start both again"
            ),
            Self::TimedOut { waiting_for } => write!(
                f,
                "the other side did not say `{waiting_for}` in time: see whether it still runs, then start both again"
            ),
            Self::LineTooLong => write!(
                f,
                "the other side sent a control line of more than {MAX_LINE_BYTES} bytes: only `sender` may connect \
                 to the port of a `receiver`"
            ),
            Self::Malformed { expected, problem } => write!(
                f,
                "the other side did not send a valid `{expected}` ({problem}): build `sender` and `receiver` from \
                 the same source"
            ),
            Self::VersionDiffers { theirs } => write!(
                f,
                "the other side speaks control version {theirs}, this one version {VERSION}: build `sender` and \
                 `receiver` from the same source"
            ),
            Self::Refused { reason } => write!(f, "the receiver refused this sender: {reason}"),
            Self::Io(source) => {
                write!(
                    f,
                    "the control connection failed ({source}): check the network, then start both again"
                )
            }
        }
    }
}

impl Error for ControlError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } | Self::Io(source) => Some(source),
            _ => None,
        }
    }
}
