//! A program under test, in a process group of its own. It is read line by line, and killed when it is dropped.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
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
    /// The lines so far of both streams, and the channel for the rest.
    seen: Vec<(Stream, String)>,
    next: Receiver<(Stream, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Output,
    Error,
}

/// The exit status of a program and its output.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) what: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: Vec<String>,
}

/// Starts a program with these flags, separated by blanks.
pub(crate) fn start(program: &str, flags: &str) -> Program {
    Program::start(Command::new(program).args(flags.split_whitespace()))
}

/// Starts a receiver with these flags.
pub(crate) fn receiver(flags: &str) -> Program {
    start(RECEIVER, flags)
}

/// Starts a receiver that waits on a free port for a sender, and returns its address.
pub(crate) fn waiting_receiver(flags: &str) -> (Program, SocketAddr) {
    let mut program = receiver(&format!("--bind 127.0.0.1:0 {flags}"));
    let address = program.address();
    (program, address)
}

/// Starts a sender with these flags.
pub(crate) fn sender(to: SocketAddr, flags: &str) -> Program {
    start(SENDER, &format!("--to={to} {flags}"))
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("{command:?}");
        // Ctrl-C on a terminal reaches a whole process group, and so do these tests.
        let mut child = command.process_group(0).spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        let (outbox, next) = channel();
        send_lines(child.stdout.take().unwrap(), Stream::Output, outbox.clone());
        send_lines(child.stderr.take().unwrap(), Stream::Error, outbox);
        Self { child, what, seen: Vec::new(), next }
    }

    /// Waits for a line that contains `text`, on either stream.
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        loop {
            if let Some((_, line)) = self.seen.iter().find(|(_, line)| line.contains(text)) {
                return line.clone();
            }
            let next = self.next.recv_timeout(DEADLINE);
            self.seen.push(next.unwrap_or_else(|_| panic!("{}: no line with {text:?}", self.what)));
        }
    }

    /// Returns the address that a receiver without a local sender prints.
    pub(crate) fn address(&mut self) -> SocketAddr {
        let says = "receiving on udp and tcp ";
        let line = self.line_with(says);
        line.trim_start_matches(says).split(',').next().unwrap().parse().unwrap()
    }

    /// Sends Ctrl-C as a terminal does: to the whole process group.
    pub(crate) fn interrupt(&self) {
        kill_process_group(Pid::from_child(&self.child), Signal::INT).unwrap();
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

    /// Waits for the end of the program and of both streams.
    pub(crate) fn end(mut self) -> Ended {
        loop {
            match self.next.recv_timeout(DEADLINE) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{}: does not end", self.what),
            }
        }
        let status = self.child.wait().unwrap();
        let lines = |stream: Stream| {
            let lines = self.seen.iter().filter(|(from, _)| *from == stream);
            lines.map(|(_, line)| line.clone()).collect()
        };
        Ended { what: self.what.clone(), status, stdout: lines(Stream::Output), stderr: lines(Stream::Error) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // This fails if the group has already ended.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn send_lines(from: impl Read + Send + 'static, stream: Stream, outbox: Sender<(Stream, String)>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // The test may have ended, and the program not yet.
            let _ = outbox.send((stream, line));
        }
    });
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

/// The path of a file in a folder.
pub(crate) fn file(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}
