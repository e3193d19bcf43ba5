//! Errors inside the crate: the status that the call returns, and a text for `drumfire_last_error`.

use drumfire::{ConnectError, Error, SendError};

use crate::status::DrumfireStatus;

/// The reason why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: DrumfireStatus,
    /// A description for developers.
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(status: DrumfireStatus, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Returns the failure of a null argument with this name.
    pub(crate) fn null(name: &str) -> Self {
        Self::new(DrumfireStatus::NullPointer, format!("{name} is null"))
    }

    /// Returns the failure of an argument whose value is not defined.
    pub(crate) fn unknown(name: &str, number: impl std::fmt::Display) -> Self {
        Self::new(DrumfireStatus::BadArgument, format!("{name}: {number} is not a valid value"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Setting { field: "server", .. } | Error::DevelopmentServer { .. } => {
                DrumfireStatus::BadAddress
            }
            Error::Connect(ConnectError::BadServerKey) => DrumfireStatus::BadKey,
            Error::Setting { .. } | Error::DevelopmentKey => DrumfireStatus::BadArgument,
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

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(DrumfireStatus::System, error.to_string())
    }
}
