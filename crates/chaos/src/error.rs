//! Reasons why a run ends before it can be judged. After a missed mark, a run continues and reports the mark.

use std::fmt::Display;

/// The reason why a run ended early.
#[derive(Debug)]
pub(crate) enum Error {
    /// An operation failed, and the run did not cause the failure on purpose.
    Failed(String),
    /// The machine lacks what the text names.
    Unsupported(String),
}

impl Error {
    /// Returns a failure of `what`, with the reason.
    pub(crate) fn failed(what: &str, reason: impl Display) -> Self {
        Self::Failed(format!("{what}: {reason}"))
    }
}

/// Names the operation that failed.
pub(crate) trait ErrorContext<T> {
    /// Returns the value, or a failure of `what`.
    fn context(self, what: &str) -> Result<T, Error>;
}

impl<T, E: Display> ErrorContext<T> for Result<T, E> {
    fn context(self, what: &str) -> Result<T, Error> {
        self.map_err(|reason| Error::failed(what, reason))
    }
}

impl<T> ErrorContext<T> for Option<T> {
    fn context(self, what: &str) -> Result<T, Error> {
        self.ok_or_else(|| Error::failed(what, "missing"))
    }
}
