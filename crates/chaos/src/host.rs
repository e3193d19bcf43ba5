//! The host of a run: programs of the system, and thread priorities.
//!
//! A run changes its own network namespaces only, and leaves the changes in place: they end with the namespaces.

use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;

/// The name of the link's device in either namespace.
pub(crate) const LINK: &str = "veth0";

/// Runs a program of the system. Returns its output.
///
/// # Errors
/// [`Error::Unsupported`] if the program is missing or not permitted, [`Error::Failed`] if it fails otherwise.
pub(crate) fn call(program: &str, arguments: &str) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::Unsupported(format!("the program `{program}`")),
        _ => Error::failed(program, error),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if message.contains("not permitted") || message.contains("Permission denied") {
        let what = format!("the privilege for `{program} {arguments}`, which printed: {message}");
        return Err(Error::Unsupported(what));
    }
    Err(Error::failed(&format!("{program} {arguments}"), message))
}

/// Runs a program of the system in another network namespace. Returns its output.
///
/// # Errors
/// The same as for [`call`].
pub(crate) fn call_in(namespace: u32, program: &str, arguments: &str) -> Result<String, Error> {
    call("nsenter", &format!("{} {program} {arguments}", entry(namespace)))
}

/// Returns the argument by which `nsenter` enters the network namespace of a process.
pub(crate) fn entry(namespace: u32) -> String {
    format!("--net=/proc/{namespace}/ns/net")
}

/// The real-time priority of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Priority {
    /// The players, which other programs of the machine must not delay.
    Players = 1,
    /// A worker, which may share a core with the players.
    Worker = 2,
}

/// Gives a thread a real-time priority, which threads that it starts do not inherit.
pub(crate) fn set_priority(thread: u32, priority: Priority) -> Result<(), Error> {
    call("chrt", &format!("--fifo --reset-on-fork --pid {} {thread}", priority as u8)).map(drop)
}

/// Locks what threads share. A thread that panicked held the lock for whole changes only.
pub(crate) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
