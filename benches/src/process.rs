//! Child processes of a bench: this executable with a hidden first argument, or another program. They exchange lines of text.
//!
//! A child ends when its standard input does, and never outlives its [`Child`] value.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

use drumfire::ServerKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first argument of a child process of a bench.
pub const ROLE_FLAG: &str = "--role";

/// A child that prints nothing for this long is stuck.
const DEADLINE: Duration = Duration::from_secs(30);

/// The bytes that are read from a child at most. This is enough for half an hour with several lines per second.
const LINES_MAX_BYTES: u64 = 1 << 20;

/// Counters by name, as a child prints them.
pub type Counts = BTreeMap<String, u64>;

/// The private key of all servers of benches. It is public, and protects nothing.
pub fn key() -> ServerKey {
    ServerKey::from_bytes([0x10; 32])
}

/// The interval in which a server that waits checks whether it has to stop.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The time in which a server that was asked for its last counts receives the last datagrams.
pub(crate) const LAST_WAIT: Duration = Duration::from_millis(20);

/// Reads the arguments of a role, see [`Child::role`].
pub fn arguments<T: DeserializeOwned>(args: &str) -> Result<T, String> {
    serde_json::from_str(args).map_err(|error| format!("the arguments {args}: {error}"))
}

/// Makes counts of names and values.
pub fn named_counts<const N: usize>(counts: [(&str, u64); N]) -> Counts {
    counts.map(|(name, count)| (name.to_owned(), count)).into()
}

/// Makes counts of the fields of a struct.
///
/// # Panics
///
/// When a field is no count.
pub fn counts_from(counters: &impl Serialize) -> Counts {
    let counts = serde_json::to_value(counters).and_then(serde_json::from_value);
    counts.expect("every field is a count")
}

/// A running child process.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    input: Option<std::process::ChildStdin>,
    lines: Receiver<String>,
    name: &'static str,
}

impl Child {
    /// Starts a role of this bench on this core, or on any core. The role reads its arguments with [`arguments`].
    pub fn role(name: &'static str, core: Option<usize>, args: &impl Serialize) -> Result<Self, String> {
        let json = |value: serde_json::Result<String>| value.map_err(|error| error.to_string());
        let (core, args) = (json(serde_json::to_string(&core))?, json(serde_json::to_string(args))?);
        let program =
            std::env::current_exe().map_err(|error| format!("{name} cannot be started: {error}"))?;
        Self::start_program(name, &program, &[ROLE_FLAG, name, &core, &args])
    }

    /// Starts another program that exchanges lines in the same way. It may use the cores of the calling thread.
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
        let lines = lines_of(output.take(LINES_MAX_BYTES));
        Ok(Self { child, input, lines, name })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to the child, without waiting for an answer.
    pub fn send_line(&self, line: &str) -> Result<(), String> {
        let sent = self.input.as_ref().map(|mut input| writeln!(input, "{line}"));
        sent.unwrap_or(Ok(())).map_err(|error| format!("{} cannot be written to: {error}", self.name))
    }

    /// Returns the next line that the child prints.
    pub fn line(&self) -> Result<String, String> {
        self.line_within(DEADLINE)?
            .ok_or_else(|| format!("{} printed nothing for {} s", self.name, DEADLINE.as_secs()))
    }

    /// Returns the next line as an address.
    pub fn address(&self) -> Result<SocketAddr, String> {
        self.line()?.parse().map_err(|_| format!("{} printed no address", self.name))
    }

    /// Returns the next line within this time, or `None` when there is no line yet.
    ///
    /// # Errors
    ///
    /// The child has ended.
    pub fn line_within(&self, time: Duration) -> Result<Option<String>, String> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("{} has ended: its error is printed above", self.name))
            }
        }
    }

    /// Asks the child to end. Lines that it printed before can still be read.
    pub fn end(&mut self) {
        drop(self.input.take());
    }

    /// Returns the next line as a value, see [`print_json`].
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|_| format!("{} printed what cannot be read: {line}", self.name))
    }

    /// Asks the child to end and returns its last line.
    pub fn finish(mut self) -> Result<String, String> {
        self.end();
        self.line()
    }

    /// Asks the child to end and returns its counts.
    pub fn finish_counts(mut self) -> Result<Counts, String> {
        self.end();
        self.read()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.input.take());
        // The last line was read, or the round has failed. Nothing is lost when the child is killed here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program of the system to its end, and returns its output.
pub fn output_of(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", errors.lines().last().unwrap_or("it failed without a message")))
}

/// Prints a line for the parent process.
pub fn print_line(line: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// Prints a value, such as counts, as one line for the parent process.
pub fn print_json(value: &impl Serialize) -> Result<(), String> {
    print_line(&serde_json::to_string(value).map_err(|error| error.to_string())?)
}

/// The lines of the standard input of a role. They are read without waiting.
pub struct InputLines(Receiver<String>);

impl InputLines {
    /// Begins to read the standard input.
    pub fn read() -> Self {
        Self(lines_of(io::stdin()))
    }

    /// Waits for each further line. Ends with the standard input.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        self.0.iter()
    }

    /// Calls `take` for each waiting line. Returns whether the input is still open.
    pub(crate) fn take_waiting(
        &self,
        mut take: impl FnMut(&str) -> Result<(), String>,
    ) -> Result<bool, String> {
        loop {
            match self.0.try_recv() {
                Ok(line) => take(&line)?,
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    /// Whether the standard input has ended. Ignores its lines.
    pub fn has_ended(&self) -> bool {
        self.take_waiting(|_| Ok(())) == Ok(false)
    }
}

/// Returns the lines of an input, which a thread reads.
fn lines_of(input: impl io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = sync_channel(16);
    std::thread::spawn(move || {
        for line in BufReader::new(input).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
