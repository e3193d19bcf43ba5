//! A program under test, in a process group of its own. It is read line by line, and killed when it is dropped.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

#[cfg(target_os = "linux")]
use drumfire_tools::{clock, host::ProcessClock};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// No wait is longer. A program that needs more time hangs, even on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

pub(crate) const RECEIVER: &str = env!("CARGO_BIN_EXE_receiver");
pub(crate) const SENDER: &str = env!("CARGO_BIN_EXE_sender");
pub(crate) const DRUMFIRE: &str = env!("CARGO_BIN_EXE_drumfire");

/// A running program.
pub(crate) struct Program {
    child: Child,
    what: String,
    stdout: Lines,
    stderr: Lines,
}

/// The exit status of a program and its output.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) what: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: Vec<String>,
}

/// The lines of one stream so far, and the channel for the rest.
struct Lines {
    seen: Vec<String>,
    next: Receiver<String>,
}

/// Starts a receiver with these flags, separated by blanks.
pub(crate) fn receiver(flags: &str) -> Program {
    Program::start(Command::new(RECEIVER).args(flags.split_whitespace()))
}

/// Starts a receiver that waits on a free port for a sender, and returns its address.
pub(crate) fn waiting_receiver(flags: &str) -> (Program, SocketAddr) {
    let mut program = receiver(&format!("--bind 127.0.0.1:0 {flags}"));
    let address = program.address();
    (program, address)
}

/// Starts a sender with these flags, separated by blanks.
pub(crate) fn sender(to: SocketAddr, flags: &str) -> Program {
    let to = format!("--to={to}");
    Program::start(Command::new(SENDER).arg(to).args(flags.split_whitespace()))
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("{command:?}");
        // Ctrl-C on a terminal reaches a whole process group, and so do these tests.
        let mut child = command.process_group(0).spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self { child, what, stdout, stderr }
    }

    /// Waits for a line on standard output that contains `text`.
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        self.stdout.line_with(text).unwrap_or_else(|| panic!("{}: no line with {text:?}", self.what))
    }

    /// Waits for a line on standard error that contains `text`.
    pub(crate) fn error_line_with(&mut self, text: &str) -> String {
        self.stderr.line_with(text).unwrap_or_else(|| panic!("{}: no line with {text:?}", self.what))
    }

    /// Returns the address that a receiver without a local sender prints.
    pub(crate) fn address(&mut self) -> SocketAddr {
        let says = "receiving on udp and tcp ";
        let line = if self.what.contains("\"--json\" \"-\"") {
            self.error_line_with(says)
        } else {
            self.line_with(says)
        };
        let (_, rest) = line.split_once(says).unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    }

    /// Sends Ctrl-C as a terminal does: to the whole process group.
    pub(crate) fn interrupt(&self) {
        kill_process_group(self.pid(), Signal::INT).unwrap();
    }

    /// Waits until it has used this CPU time.
    #[cfg(target_os = "linux")]
    pub(crate) fn wait_for_cpu(&self, time: Duration) {
        let has_time = clock::within(DEADLINE);
        while u128::from(ProcessClock::sample(self.child.id()).unwrap().run_ns) < time.as_nanos() {
            assert!(has_time(), "{}: idle", self.what);
            clock::pause(Duration::from_millis(5));
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for the end of the program and of both streams.
    pub(crate) fn end(mut self) -> Ended {
        let (stdout, stderr) = (self.stdout.rest(), self.stderr.rest());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else { panic!("{}: does not end", self.what) };
        let status = self.child.wait().unwrap();
        Ended { what: std::mem::take(&mut self.what), status, stdout, stderr }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // This fails if the group has already ended.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Checks the exit code, and that nothing panicked.
    #[track_caller]
    pub(crate) fn with_code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        assert!(!self.stderr.iter().any(|line| line.contains("panicked")), "{self:#?}");
        self
    }

    /// The one line on standard error.
    #[track_caller]
    pub(crate) fn only_error_line(&self) -> &str {
        assert_eq!(self.stderr.len(), 1, "{self:#?}");
        self.error_line()
    }

    /// The one error on standard error, among other lines.
    #[track_caller]
    pub(crate) fn error_line(&self) -> &str {
        let mut errors = self.stderr.iter().filter(|line| line.starts_with("error: "));
        let (Some(line), None) = (errors.next(), errors.next()) else { panic!("not one error: {self:#?}") };
        line
    }

    /// The error of a bad command line on standard error, as one line.
    #[track_caller]
    pub(crate) fn usage_error(&self) -> String {
        let text = self.stderr.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.starts_with("error: "), "{self:#?}");
        text
    }
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let (outbox, next) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if outbox.send(line).is_err() {
                    return;
                }
            }
        });
        Self { seen: Vec::new(), next }
    }

    fn line_with(&mut self, text: &str) -> Option<String> {
        loop {
            if let Some(line) = self.seen.iter().find(|line| line.contains(text)) {
                return Some(line.clone());
            }
            self.seen.push(self.next.recv_timeout(DEADLINE).ok()?);
        }
    }

    /// Returns all lines, once the stream has ended.
    fn rest(&mut self) -> Option<Vec<String>> {
        loop {
            match self.next.recv_timeout(DEADLINE) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return Some(std::mem::take(&mut self.seen)),
                Err(RecvTimeoutError::Timeout) => return None,
            }
        }
    }
}

/// A folder that is removed at the end of its test.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        // Programs of other users may enter it.
        let permissions = Permissions::from_mode(0o755);
        Self(tempfile::Builder::new().permissions(permissions).tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.path().join(name).to_str().unwrap().to_owned()
    }
}
