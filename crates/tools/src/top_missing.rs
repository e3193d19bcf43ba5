//! A build without the live view, which says how to get one with it.

use crate::error::Error;
use crate::program::TopArgs;
use crate::receiver::ReceiverSource;

pub(crate) fn run(_: &TopArgs) -> Result<(), Error> {
    Err(missing("top"))
}

pub(crate) fn check_terminal(_: &str) -> Result<(), Error> {
    Err(missing("--tui"))
}

pub(crate) fn start(_: ReceiverSource) -> Result<fn() -> Result<(), Error>, Error> {
    Err(missing("--tui"))
}

fn missing(what: &str) -> Error {
    let advice = "build it with `cargo build --release -p drumfire-tools --features top`";
    Error::usage(what, "this build has no live view", advice)
}
