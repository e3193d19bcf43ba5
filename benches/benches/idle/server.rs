//! The server's process: an application that has nothing to do with anybody.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire::{Access, AdmissionConfig, Event, Server, ServerConfig, ServerKey, Workers};
use drumfire_benches::{Child, at_end_of_input, counts_of, say, say_counts};

/// The first argument of the server's process.
const MODE: &str = "--idle-server";

/// Room for what all clients send while the server has no core.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 4 * 1_024 * 1_024;

/// How often the server looks up when nothing comes.
const LOOK_UP: Duration = Duration::from_millis(100);

/// The server's key, which stands here for everybody to read.
pub(crate) fn key() -> ServerKey {
    ServerKey::from_bytes([0x1d; 32])
}

/// Starts a server with so many workers, for so many connections.
pub(crate) fn start(workers: u32, connections: u32) -> Result<Child, String> {
    Child::start("the server", &[MODE, &workers.to_string(), &connections.to_string()])
}

/// Runs the server's process, if the arguments ask for it.
pub(crate) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [MODE, workers, connections] = args.as_slice() else { return None };
    Some(run(workers, connections))
}

fn run(workers: &str, connections: &str) -> Result<(), String> {
    let workers = workers.parse().map_err(|_| "not a number of workers".to_owned())?;
    let connections = connections.parse().map_err(|_| "not a number of connections".to_owned())?;
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Count(workers))
        .connections(connections)
        // How busy a worker looks is a matter of who else has its core: here it takes all whom it has room for.
        .admission(AdmissionConfig::default().busy_max_percent(100))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let mut server = Server::bind(config).map_err(|error| error.to_string())?;
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    at_end_of_input(move || flag.store(true, Ordering::Release));
    say(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
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
