//! The floor's process: a plain receiver that waits as a worker does.

use std::ffi::OsString;

use drumfire_benches::{Child, Pace, RECEIVE_BUFFER_BYTES, pin_to, serve_plain};

/// The first argument of the receiver's process.
const MODE: &str = "--idle-raw";

/// Starts the receiver; on this core, or where it likes.
pub(crate) fn start(core: Option<usize>) -> Result<Child, String> {
    let core = core.map(|core| core.to_string());
    let args = [MODE].into_iter().chain(core.as_deref());
    Child::start("the plain receiver", &args.collect::<Vec<_>>())
}

/// Runs the receiver's process, if the arguments ask for it.
pub(crate) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [MODE, core @ ..] = args.as_slice() else { return None };
    let serve = || serve_plain(Pace::Worker, RECEIVE_BUFFER_BYTES).map_err(|error| error.to_string());
    let served = core.iter().try_for_each(|core| pin_to(core)).and_then(|()| serve());
    Some(served.map_err(|error| format!("the plain receiver: {error}")))
}
