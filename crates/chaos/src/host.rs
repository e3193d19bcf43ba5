//! The host of a run: programs of the system, thread priorities, and stalls of a core.
//!
//! A run changes its own network namespaces only, and leaves the changes in place: they end with the namespaces.

use std::fmt;
use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use drumfire_tools::clock::{now, pause};
use drumfire_tools::host::{CpuTicks, cpu_ticks, current_thread_id, pin_current_thread};
use drumfire_tools::report::STEAL_LIMIT;

use crate::error::{Error, ErrorContext};
use crate::traffic::millis;

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
    /// The stall monitor, which runs for microseconds and shows whether a thread could run at all.
    Monitor = 3,
}

/// Gives a thread a real-time priority, which threads that it starts do not inherit.
pub(crate) fn set_priority(thread: u32, priority: Priority) -> Result<(), Error> {
    call("chrt", &format!("--fifo --reset-on-fork --pid {} {thread}", priority as u8)).map(drop)
}

/// Locks what threads share. A thread that panicked held the lock for whole changes only.
pub(crate) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that runs until it is ended or dropped.
pub(crate) struct BackgroundThread<T> {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> BackgroundThread<T> {
    /// Starts a thread, which must return soon after the flag becomes true.
    pub(crate) fn spawn(run: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&is_over);
        Self { is_over, thread: Some(thread::spawn(move || run(&flag))) }
    }

    /// Ends the thread, and returns its result.
    pub(crate) fn end(mut self) -> Result<T, Error> {
        self.is_over.store(true, Ordering::Release);
        let thread = self.thread.take().context("a thread")?;
        thread.join().map_err(|_| Error::failed("a thread", "it panicked"))
    }
}

impl<T> Drop for BackgroundThread<T> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // A run that needs the thread's work notices that the thread has failed.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A stall of this length explains late timers.
const STALL_LIMIT: Duration = Duration::from_millis(10);

/// A thread that measures how long its core runs no thread at all: the host of a virtual machine stops a core for milliseconds when
/// its own cores are busy. The thread has the highest priority on the core, so that only a stall of the machine delays it.
pub(crate) struct StallMonitor {
    thread: BackgroundThread<Result<Duration, Error>>,
    /// The ticks of all cores at the start.
    ticks: Option<CpuTicks>,
}

/// The stalls of a machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalls {
    /// The longest time in which the core ran no thread.
    longest: Duration,
    /// The share of the time of all cores that the host took, where the system reports it.
    stolen: f64,
}

impl Stalls {
    /// Returns whether the machine's stalls explain late timers.
    pub(crate) fn are_excessive(self) -> bool {
        self.longest >= STALL_LIMIT || self.stolen > STEAL_LIMIT
    }
}

impl fmt::Display for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (longest, stolen) = (millis(self.longest), 100.0 * self.stolen);
        write!(f, "the server's core stalled for {longest}, and the host took {stolen:.1} % of all cores")
    }
}

impl StallMonitor {
    /// Starts a monitor on `core` that wakes up after every `sleep`.
    pub(crate) fn start(core: usize, sleep: Duration) -> Self {
        let thread = BackgroundThread::spawn(move |is_over| {
            pin_current_thread(core).context("a core")?;
            set_priority(current_thread_id().context("a thread id")?, Priority::Monitor)?;
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Acquire) {
                let before = now();
                pause(sleep);
                longest = longest.max(now().duration_since(before).saturating_sub(sleep));
            }
            Ok(longest)
        });
        Self { thread, ticks: cpu_ticks() }
    }

    /// Ends the monitor, and returns the stalls since its start.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if real-time priorities are not permitted, [`Error::Failed`] if the core is not allowed.
    pub(crate) fn end(self) -> Result<Stalls, Error> {
        let stolen = cpu_ticks().zip(self.ticks).and_then(|(now, then)| now.steal_share_since(&then));
        let longest = self.thread.end()??;
        Ok(Stalls { longest, stolen: stolen.unwrap_or(0.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_stalls_and_stolen_time_are_excessive() {
        let are_excessive = |longest, stolen| Stalls { longest, stolen }.are_excessive();
        assert!(!are_excessive(STALL_LIMIT - Duration::from_nanos(1), STEAL_LIMIT));
        assert!(are_excessive(STALL_LIMIT, 0.0) && are_excessive(Duration::ZERO, STEAL_LIMIT + 0.001));
    }
}
