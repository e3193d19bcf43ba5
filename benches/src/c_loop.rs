//! The yardstick in C: compiled with the system's compiler, run in a process of its own, fed by the same sender.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use drumfire_tools::choices::{Stage, Steer};
use drumfire_tools::cli::Traffic;
use drumfire_tools::clock;
use drumfire_tools::control::{self, ControlPort, ReceiverBooks, Welcome};
use drumfire_tools::datagram::RouteId;
use drumfire_tools::host::{self, ProcessClock};
use drumfire_tools::report::{Books, Counted, Flags, KERNEL_RECEIVE_QUEUE, Report, ThreadCount};

use crate::run::start_sender;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/c/epoll_recvfrom.c");

const PATIENCE: Duration = Duration::from_secs(60);

const STEP: Duration = Duration::from_millis(20);

/// A compiled C program that receives with epoll and recvfrom.
pub struct CLoop {
    program: PathBuf,
}

impl CLoop {
    /// Compiles it into `folder`.
    ///
    /// # Errors
    ///
    /// One line, when there is no compiler or it fails.
    pub fn compile(folder: &Path) -> Result<Self, String> {
        let program = folder.join("epoll_recvfrom");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let status = Command::new(compiler)
            .args(["-O2", "-Wall", "-Werror", "-o"])
            .arg(&program)
            .arg(SOURCE)
            .status()
            .map_err(|error| format!("no C compiler ({error}): the C loop is missing from the table"))?;
        if status.success() { Ok(Self { program }) } else { Err("the C loop does not compile".to_owned()) }
    }

    /// Runs it on `core` with this traffic.
    ///
    /// # Errors
    ///
    /// One line: what could not be started or compared.
    pub fn run(&self, core: usize, buffer_bytes: usize, traffic: &Traffic) -> Result<Report, String> {
        let mut receiver = Process::start(&self.program, core, buffer_bytes)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, receiver.port));
        let mut port = ControlPort::bind(address).map_err(|error| format!("the control port: {error}"))?;
        let sender = start_sender(address, traffic)?;
        let deadline = clock::now() + PATIENCE;
        let keep_waiting = || clock::now() < deadline;
        let mut end = loop {
            match port.next_sender(clock::now(), &mut |_| {}) {
                Some(end) => break end,
                None if keep_waiting() => clock::pause(STEP),
                None => return Err("the sender did not connect".to_owned()),
            }
        };
        let fail = |error: control::ControlError| error.to_string();
        end.welcome(Welcome {
            version: control::VERSION,
            session: 0,
            ids: vec![RouteId::default(); end.hello.flows as usize],
            stage: Stage::Raw,
            sealed: None,
            steer: Steer::Hash,
            threads: 1,
        })
        .map_err(fail)?;
        end.wait_for_start(keep_waiting).map_err(fail)?;
        let before = ProcessClock::sample(receiver.child.id());
        let finished = end.wait_for_finish(keep_waiting).map_err(fail)?;
        // The sender's own clock: its message comes a little after its last datagram.
        let window = Duration::from_nanos(finished.elapsed_ns);
        clock::pause(STEP);
        let cpu = ProcessClock::sample(receiver.child.id()).zip(before).map(|(now, then)| now.since(&then));
        let (received, drops) = receiver.finish()?;
        let books = Books::new(finished.sent, received).dropped(KERNEL_RECEIVE_QUEUE, drops);
        end.close(ReceiverBooks { datagrams: books.clone(), ..ReceiverBooks::default() }).map_err(fail)?;
        sender.finish().map_err(|error| error.to_string())?;
        let mut report = Report::of(Counted {
            name: "C epoll + recvfrom".to_owned(),
            command: String::new(),
            flags: Flags::new(),
            machine: host::machine(),
            window,
            books,
            threads: vec![ThreadCount {
                received,
                kernel_drops: Some(drops),
                cpu: cpu.map(|cpu| cpu.cpu_time()),
                ..ThreadCount::default()
            }],
            ..Counted::default()
        });
        report.offered = (traffic.rate > 0).then_some(finished.offered);
        report.sender_cpu_s = Some(finished.cpu_ns as f64 / 1e9);
        report.run_delay_share = cpu.and_then(|cpu| cpu.run_delay_share(window));
        Ok(report)
    }
}

/// The running program; it ends when its standard input does.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    port: u16,
}

impl Process {
    fn start(program: &Path, core: usize, buffer_bytes: usize) -> Result<Self, String> {
        let mut child = Command::new(program)
            .args([core.to_string(), buffer_bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the C loop cannot be started: {error}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("the C loop has no output")?;
        let mut process = Self { child, input, output: BufReader::new(output), port: 0 };
        process.port = process.line()?.trim().parse().map_err(|_| "the C loop named no port".to_owned())?;
        Ok(process)
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| format!("the C loop: {error}"))?;
        Ok(line)
    }

    /// Ends it; answers what it received and what the kernel dropped.
    fn finish(&mut self) -> Result<(u64, u64), String> {
        drop(self.input.take());
        let line = self.line()?;
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(received)), Some(Ok(drops))) => Ok((received, drops)),
            _ => Err(format!("the C loop said {line:?}")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
