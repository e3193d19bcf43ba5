//! The floor's process: a plain receiver that waits as a worker does.

use std::ffi::OsString;

use drumfire_benches::{Child, Pace, RECEIVE_BUFFER_BYTES, serve_plain};

/// The first argument of the receiver's process.
const MODE: &str = "--idle-raw";

/// Starts the receiver.
pub(crate) fn start() -> Result<Child, String> {
    Child::start("the plain receiver", &[MODE])
}

/// Runs the receiver's process, if the arguments ask for it.
pub(crate) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    if args != [MODE] {
        return None;
    }
    let served = serve_plain(Pace::Worker, RECEIVE_BUFFER_BYTES);
    Some(served.map_err(|error| format!("the plain receiver: {error}")))
}
