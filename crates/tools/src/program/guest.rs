//! A sender in a process of its own: the same executable in its sender mode, so that one command shows both
//! sides. It does not outlive the value that stands for it.

use std::cell::RefCell;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::cli::{SENDER_MODE, SenderArgs};
use crate::clock;

/// How long it may take to end after its books are closed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The step in which its end is waited for.
const STEP: Duration = Duration::from_millis(2);

/// The sender's process.
pub struct Guest {
    child: RefCell<Child>,
}

/// How a sender's process ended without success.
#[derive(Debug)]
pub enum GuestFailure {
    /// With this exit code, after it said why.
    Told(u8),
    /// By a signal.
    Killed(ExitStatus),
    /// Not at all: it was stopped.
    Stuck,
}

impl Guest {
    /// Starts it. The executable that runs must hand arguments that begin with [`SENDER_MODE`] to
    /// [`super::receiver`].
    ///
    /// # Errors
    ///
    /// What the system answers.
    pub fn start(args: &SenderArgs) -> io::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .arg(SENDER_MODE)
            .args(args.to_flags())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child: child.into() })
    }

    /// Whether it ended without success.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.child.borrow_mut().try_wait(), Ok(Some(status)) if !status.success())
    }

    /// Waits for its end, and ends it when it does not come.
    ///
    /// # Errors
    ///
    /// How it ended without success.
    pub fn finish(self) -> Result<(), GuestFailure> {
        let deadline = clock::now() + PATIENCE;
        loop {
            match self.child.borrow_mut().try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(GuestFailure::of(status)),
                Ok(None) if clock::now() < deadline => {}
                // Dropping ends it.
                Ok(None) | Err(_) => return Err(GuestFailure::Stuck),
            }
            clock::pause(STEP);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        if matches!(child.try_wait(), Ok(None)) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl GuestFailure {
    fn of(status: ExitStatus) -> Self {
        match status.code().map(u8::try_from) {
            Some(Ok(code)) => Self::Told(code),
            _ => Self::Killed(status),
        }
    }
}

impl std::fmt::Display for GuestFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Told(code) => write!(f, "the sender failed with exit code {code}; its line stands above"),
            Self::Killed(status) => {
                write!(f, "the sender was ended from outside ({status}): start both again")
            }
            Self::Stuck => f.write_str("the sender did not end and was stopped"),
        }
    }
}

impl std::error::Error for GuestFailure {}
