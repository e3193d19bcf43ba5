//! Why a run ends before it could be judged.
//!
//! A mark that was missed is no such reason: the run goes on and says so at its end.

use std::fmt::Display;

/// Why a run stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something went wrong that no run puts there; the text says what.
    Failed(String),
    /// The machine lacks what the text names.
    Needs(String),
}

impl Stop {
    /// A failure of `what`, with the reason.
    pub(crate) fn failed(what: &str, why: impl Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }
}

/// Says what was tried when something fails.
pub(crate) trait Tried<T> {
    /// The value, or a failure of `what`.
    fn tried(self, what: &str) -> Result<T, Stop>;
}

impl<T, E: Display> Tried<T> for Result<T, E> {
    fn tried(self, what: &str) -> Result<T, Stop> {
        self.map_err(|why| Stop::failed(what, why))
    }
}

impl<T> Tried<T> for Option<T> {
    fn tried(self, what: &str) -> Result<T, Stop> {
        self.ok_or_else(|| Stop::failed(what, "there is none"))
    }
}
