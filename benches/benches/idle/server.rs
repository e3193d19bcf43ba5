//! The server's process: an application that has nothing to do with anybody.

use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drumfire::{Event, ServerKey};
use drumfire_benches::{Child, counts_of, open_server, over_at_end_of_input, pin_to, say_counts};

/// The first argument of the server's process.
const MODE: &str = "--idle-server";

/// How often the server looks up when nothing comes.
const LOOK_UP: Duration = Duration::from_millis(100);

/// The server's key, which stands here for everybody to read.
pub(crate) fn key() -> ServerKey {
    ServerKey::from_bytes([0x1d; 32])
}

/// Starts a server with so many workers, for so many connections; on this core, or where it likes.
pub(crate) fn start(workers: u32, connections: u32, core: Option<usize>) -> Result<Child, String> {
    let (workers, connections) = (workers.to_string(), connections.to_string());
    let core = core.map(|core| core.to_string());
    let args = [MODE, &workers, &connections].into_iter().chain(core.as_deref());
    Child::start("the server", &args.collect::<Vec<_>>())
}

/// Runs the server's process, if the arguments ask for it.
pub(crate) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [MODE, workers, connections, core @ ..] = args.as_slice() else { return None };
    Some(core.iter().try_for_each(|core| pin_to(core)).and_then(|()| run(workers, connections)))
}

fn run(workers: &str, connections: &str) -> Result<(), String> {
    let mut server = open_server(key(), workers, connections)?;
    let is_over = over_at_end_of_input();
    let (mut came, mut left) = (0_u64, 0_u64);
    while !is_over.load(Ordering::Acquire) {
        server.wait(LOOK_UP);
        for event in server.poll() {
            match event {
                Event::Connected { .. } => came += 1,
                Event::Disconnected { .. } => left += 1,
                _ => {}
            }
        }
    }
    let mut counts = counts_of(&server.stats());
    counts.insert("came".to_owned(), came);
    counts.insert("left".to_owned(), left);
    say_counts(&counts).map_err(|error| error.to_string())
}
