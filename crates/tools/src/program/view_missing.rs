//! A build without the live view, which says how to get one with it.

use super::Failure;
use crate::cli::{TopArgs, UsageError};
use crate::receiver::ReceiverSource;

pub(super) fn run(_: &TopArgs) -> Result<(), Failure> {
    Err(missing("top"))
}

pub(super) fn check_terminal(_: &str) -> Result<(), Failure> {
    Err(missing("--tui"))
}

/// This build has no view.
pub(super) enum View {}

impl View {
    pub(super) fn start(
        _: ReceiverSource,
        _: impl Fn() -> bool + Send + 'static,
        _: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Failure> {
        Err(missing("--tui"))
    }

    pub(super) fn finish(self) -> Result<(), Failure> {
        match self {}
    }
}

fn missing(what: &str) -> Failure {
    let advice = "build it with `cargo build --release -p drumfire-tools --features top`";
    UsageError::new(what, "this build has no live view", advice).into()
}
