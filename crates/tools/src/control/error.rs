//! Errors of the control connection, each in one line that says what to do.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::{MAX_LINE_BYTES, VERSION};

/// The reason why a control connection could not be made, or ended.
#[derive(Debug)]
pub enum ControlError {
    /// No receiver accepts connections at the address.
    Unreachable {
        /// The last address that was tried.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The peer closed the connection before this message was sent or received.
    ClosedEarly {
        /// The message that was expected next.
        waiting_for: &'static str,
    },
    /// The caller stopped waiting.
    TimedOut {
        /// The message that was expected next.
        waiting_for: &'static str,
    },
    /// A line is longer than [`MAX_LINE_BYTES`].
    LineTooLong,
    /// A line is not the expected message, or a field is out of range.
    Malformed {
        /// The message that was expected.
        expected: &'static str,
        /// The problem with it, made printable.
        problem: String,
    },
    /// The peer uses another version.
    VersionDiffers {
        /// The version of the peer.
        theirs: u64,
    },
    /// The receiver refused this sender.
    Refused {
        /// The reason of the receiver, made printable.
        reason: String,
    },
    /// The system refused an operation on the connection.
    Io(io::Error),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BUILD: &str = "build `sender` and `receiver` from the same source";
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
            Self::Malformed { expected, problem } => {
                write!(f, "the other side did not send a valid `{expected}` ({problem}): {BUILD}")
            }
            Self::VersionDiffers { theirs } => write!(
                f,
                "the other side speaks control version {theirs}, this one version {VERSION}: {BUILD}"
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

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
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
