//! How long and how often a run does what it does.
//!
//! The figures of the marks are the same for all sizes. A mark that takes more time or more players than a size has is not judged
//! in it, and the run says which: it passes in part.

use clap::ValueEnum;

/// How much of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// Some seconds, as before a change lands.
    Quick,
    /// A minute or two.
    Default,
    /// The figures that a release is judged by.
    Full,
}

impl Size {
    /// The one of three that is this size's.
    pub(crate) fn of<T>(self, quick: T, default: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Default => default,
            Self::Full => full,
        }
    }
}
