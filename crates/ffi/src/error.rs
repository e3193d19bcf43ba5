//! A failure on its way out of a call: the status that the caller gets, and a line that says more.
//!
//! Where the line is kept is the guard's business.

use drumfire::{BindError, CloseError, SendError};

use crate::status::DrumfireStatus;

/// Why a call did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: DrumfireStatus,
    /// What is wrong, for people.
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(status: DrumfireStatus, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// The argument of this name is null.
    pub(crate) fn null(name: &str) -> Self {
        Self::new(DrumfireStatus::NullPointer, format!("{name} is null"))
    }

    /// The argument of this name is a number that means nothing.
    pub(crate) fn unknown(name: &str, number: impl std::fmt::Display) -> Self {
        Self::new(DrumfireStatus::BadArgument, format!("{name}: {number} is none that there is"))
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Self {
        let status = match error {
            BindError::Setting { field: "server", .. } | BindError::DevServer { .. } => {
                DrumfireStatus::BadAddress
            }
            BindError::Setting { field: "key", .. } => DrumfireStatus::BadKey,
            BindError::Setting { .. } | BindError::DevKey => DrumfireStatus::BadArgument,
            _ => DrumfireStatus::System,
        };
        Self::new(status, error.to_string())
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        let status = match error {
            SendError::Closed | SendError::UnknownPeer => DrumfireStatus::Closed,
            SendError::Full => DrumfireStatus::Full,
            SendError::NotConnected => DrumfireStatus::NotConnected,
            SendError::TooLarge { .. } => DrumfireStatus::TooLarge,
        };
        Self::new(status, error.to_string())
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        let status = match error {
            CloseError::TextTooLong { .. } => DrumfireStatus::TextTooLong,
            CloseError::UnknownPeer => DrumfireStatus::Closed,
        };
        Self::new(status, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(DrumfireStatus::System, error.to_string())
    }
}
