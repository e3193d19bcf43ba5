//! A process of a bench: this executable again, with a hidden first argument. It talks in lines, is told to end by the end of
//! its standard input, and does not outlive the value that stands for it.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// A process that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that are read of all its lines together: half an hour of one every ten seconds and more.
const LINES_MAX_BYTES: u64 = 1 << 20;

/// Counts under their names, as a process tells them.
pub type Counts = BTreeMap<String, u64>;

/// A running process.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    input: Option<std::process::ChildStdin>,
    lines: Receiver<String>,
    name: &'static str,
}

impl Child {
    /// Starts this executable with these arguments; `name` is for error lines.
    ///
    /// # Errors
    ///
    /// One line: what the system answered.
    pub fn start(name: &'static str, args: &[&str]) -> Result<Self, String> {
        let program =
            std::env::current_exe().map_err(|error| format!("{name} cannot be started: {error}"))?;
        Self::start_program(name, &program, args)
    }

    /// Starts another program that talks in the same way. It runs where the calling thread may run.
    ///
    /// # Errors
    ///
    /// As [`Child::start`].
    pub fn start_program(name: &'static str, program: &Path, args: &[&str]) -> Result<Self, String> {
        let fail = |error: io::Error| format!("{name} cannot be started: {error}");
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("a process without output")?;
        let (said, lines) = sync_channel(16);
        std::thread::spawn(move || {
            for line in BufReader::new(output.take(LINES_MAX_BYTES)).lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, lines, name })
    }

    /// The system's number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says a line to it, without waiting for an answer.
    ///
    /// # Errors
    ///
    /// One line: what the system answered.
    pub fn tell(&self, line: &str) -> Result<(), String> {
        let told = self.input.as_ref().map(|mut input| writeln!(input, "{line}"));
        told.unwrap_or(Ok(())).map_err(|error| format!("{} cannot be told anything: {error}", self.name))
    }

    /// The next line it says.
    ///
    /// # Errors
    ///
    /// One line, when it says nothing for half a minute, or has ended.
    pub fn line(&self) -> Result<String, String> {
        self.line_within(PATIENCE)?
            .ok_or_else(|| format!("{} has said nothing for {} s", self.name, PATIENCE.as_secs()))
    }

    /// The address that is its next line.
    ///
    /// # Errors
    ///
    /// As [`Child::line`], and when the line is something else.
    pub fn address(&self) -> Result<SocketAddr, String> {
        self.line()?.parse().map_err(|_| format!("{} named no address", self.name))
    }

    /// The next line it says within this time; nothing when there is none yet.
    ///
    /// # Errors
    ///
    /// One line, when it has ended.
    pub fn line_within(&self, time: Duration) -> Result<Option<String>, String> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("{} has ended: its line stands above", self.name))
            }
        }
    }

    /// Tells it to end. Lines that it says before its last one are still to be read.
    pub fn end(&mut self) {
        drop(self.input.take());
    }

    /// The next line it says, which is counts, see [`say_counts`].
    ///
    /// # Errors
    ///
    /// As [`Child::line`], and when its line is something else.
    pub fn counts(&self) -> Result<Counts, String> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|_| format!("{}: its counts cannot be read: {line}", self.name))
    }

    /// Tells it to end and answers its last line.
    ///
    /// # Errors
    ///
    /// As [`Child::line`].
    pub fn finish(mut self) -> Result<String, String> {
        self.end();
        self.line()
    }

    /// Tells it to end and answers what it counted, see [`say_counts`].
    ///
    /// # Errors
    ///
    /// As [`Child::line`], and when its last line is something else.
    pub fn finish_counts(mut self) -> Result<Counts, String> {
        self.end();
        self.counts()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.input.take());
        // Its last line is read, or it failed: nothing is lost by ending it here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a line to the process that started this one.
///
/// # Errors
///
/// What the system answered.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Writes counts as a line to the process that started this one.
///
/// # Errors
///
/// What the system answered.
pub fn say_counts(counts: &Counts) -> io::Result<()> {
    say(&serde_json::to_string(counts)?)
}

/// A flag that is set when the standard input ends.
#[must_use]
pub fn over_at_end_of_input() -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    at_end_of_input(move || flag.store(true, Ordering::Release));
    is_over
}

/// Calls `then` on a thread of its own when the standard input ends.
pub fn at_end_of_input(then: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        // An input that cannot be read has ended too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        then();
    });
}
