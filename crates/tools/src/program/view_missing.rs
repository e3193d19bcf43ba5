//! A build without the live view, which says how to get one with it.

use std::path::Path;

use super::Failure;
use crate::cli::{TopArgs, UsageError};

pub(super) fn run(_: &TopArgs) -> Result<(), Failure> {
    Err(missing("top"))
}

pub(super) fn check_terminal(_: &str) -> Result<(), Failure> {
    Err(missing("--tui"))
}

/// There is none.
pub(super) enum View {}

impl View {
    pub(super) fn start(
        _: &Path,
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
    let way_out = "build it with `cargo build --release -p drumfire-tools --features top`";
    UsageError::new(what, "this build has no live view", way_out).into()
}
