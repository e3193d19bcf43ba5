//! A sender in a process of its own: the same executable in its sender mode. Dropping the value ends the process.

use std::cell::RefCell;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::cli::{SENDER_MODE, SenderArgs};
use crate::clock;

/// How long the process may take to end after its books are closed. A process that takes longer hangs, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interval in which the end of the process is polled.
const STEP: Duration = Duration::from_millis(2);

/// The sender's process.
pub struct SenderProcess {
    child: RefCell<Child>,
}

/// How the process of a sender failed.
#[derive(Debug)]
pub enum SenderFailure {
    /// It ended with this exit code, after it printed an error.
    Reported(u8),
    /// A signal ended it.
    Killed(ExitStatus),
    /// It did not end in time and was killed.
    Unresponsive,
}

impl SenderProcess {
    /// Starts the process. The current executable must pass arguments that begin with [`SENDER_MODE`] to [`super::receiver`].
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn start(args: &SenderArgs) -> io::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .arg(SENDER_MODE)
            .args(args.to_flags())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child: child.into() })
    }

    /// Returns whether the process has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.child.borrow_mut().try_wait(), Ok(Some(status)) if !status.success())
    }

    /// Waits for the end of the process, and kills it if it does not end in time.
    ///
    /// # Errors
    ///
    /// How the process failed.
    pub fn finish(self) -> Result<(), SenderFailure> {
        let deadline = clock::now() + PATIENCE;
        loop {
            match self.child.borrow_mut().try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(SenderFailure::of(status)),
                Ok(None) if clock::now() < deadline => {}
                // Dropping the value kills the process.
                Ok(None) | Err(_) => return Err(SenderFailure::Unresponsive),
            }
            clock::pause(STEP);
        }
    }
}

impl Drop for SenderProcess {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        if matches!(child.try_wait(), Ok(None)) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl SenderFailure {
    fn of(status: ExitStatus) -> Self {
        match status.code().map(u8::try_from) {
            Some(Ok(code)) => Self::Reported(code),
            _ => Self::Killed(status),
        }
    }
}

impl std::fmt::Display for SenderFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reported(code) => write!(f, "the sender failed with exit code {code}; see its error above"),
            Self::Killed(status) => {
                write!(f, "the sender was ended from outside ({status}): start both again")
            }
            Self::Unresponsive => f.write_str("the sender did not end and was stopped"),
        }
    }
}

impl std::error::Error for SenderFailure {}
