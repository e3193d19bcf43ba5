//! A setting that cannot be used, named. Who checks is whoever owns the setting.

use std::io;

/// A setting that cannot be used, by the name of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: &'static str,
    problem: &'static str,
}

impl ConfigError {
    pub(crate) fn new(field: &'static str, problem: &'static str) -> Self {
        Self { field, problem }
    }

    /// The field that has to change.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// What is wrong with it, and what to do.
    #[must_use]
    pub fn problem(&self) -> &'static str {
        self.problem
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for ConfigError {}

impl From<ConfigError> for io::Error {
    fn from(error: ConfigError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}
