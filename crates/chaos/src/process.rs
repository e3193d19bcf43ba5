//! The processes of a run: the server, and another process on its port.
//!
//! The server's keys belong to the run, so that a killed server can be started again with them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use drumfire::tokens::{TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{ConnectToken, PlayerId, ServerKey};
use drumfire_tools::clock::{now, pause};
use drumfire_tools::host::ProcessClock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::error::{Error, ErrorContext};
use crate::host::entry;

/// The time between two looks at a process that is about to end.
const POLL_PERIOD: Duration = Duration::from_millis(1);

/// A child process that reads lines and answers them. It is killed on drop.
struct LineProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl LineProcess {
    fn spawn(command: &mut Command) -> Result<Self, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("another process")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = (input.context("a pipe")?, output.context("a pipe")?);
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    fn write(&mut self, line: &str) -> Result<(), Error> {
        writeln!(self.input, "{line}").context("a process's standard input")
    }

    fn read(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("a process's answer").map(|_| line)
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        // Both fail for a process that has ended, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How to start a server, as often as needed.
pub(crate) struct ServerSpec {
    key: ServerKey,
    token_key: TokenKey,
    address: SocketAddr,
    flags: Vec<String>,
    /// The process whose network namespace the server shares.
    namespace: Option<u32>,
}

impl ServerSpec {
    /// Returns a server with new keys at `address`.
    pub(crate) fn new(address: SocketAddr, workers: u16) -> Result<Self, Error> {
        let master = TokenMasterKey::generate().context("a key")?;
        Ok(Self {
            key: ServerKey::generate().context("a key")?,
            token_key: master.token_key(1, "chaos").context("a key")?,
            address,
            flags: vec!["--workers".to_owned(), workers.to_string()],
            namespace: None,
        })
    }

    /// Moves the server into the network namespace of a process.
    pub(crate) const fn within(mut self, namespace: u32) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// Adds a flag with a value.
    pub(crate) fn flag(mut self, name: &str, value: u64) -> Self {
        self.flags.extend([name.to_owned(), value.to_string()]);
        self
    }

    /// Adds a flag without a value.
    pub(crate) fn switch(mut self, name: &str) -> Self {
        self.flags.push(name.to_owned());
        self
    }

    /// Returns a second server with the same keys and flags, at another port.
    pub(crate) fn twin(&self) -> Result<Self, Error> {
        Ok(Self {
            key: self.key.to_text().parse().context("a key")?,
            token_key: self.token_key.clone(),
            address: (self.address.ip(), 0).into(),
            flags: self.flags.clone(),
            namespace: self.namespace,
        })
    }

    /// Returns a player's token for the server's address.
    pub(crate) fn token(&self, player: usize) -> Result<ConnectToken, Error> {
        self.token_via(player, self.address)
    }

    /// Returns a player's token for another address that leads to the server.
    pub(crate) fn token_via(&self, player: usize, address: SocketAddr) -> Result<ConnectToken, Error> {
        let request = TokenRequest::new(PlayerId(player as u128), address, self.key.public());
        request.issue(&self.token_key).context("a token")
    }

    /// Returns the server's address, which has a port once the server was started.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the server, waits until it serves, and keeps its address for the next start.
    pub(crate) fn start(&mut self) -> Result<ServerProcess, Error> {
        let program = std::env::current_exe().context("this program")?;
        let mut command = match self.namespace {
            None => Command::new(program),
            // `nsenter` executes the program in its own place, so that the child is the server.
            Some(namespace) => {
                let mut enter = Command::new("nsenter");
                enter.arg(entry(namespace)).arg(program);
                enter
            }
        };
        command.args(["serve", &self.address.to_string()]).args(&self.flags);
        command.args(["--key", &self.key.to_text(), "--token-key", &self.token_key.to_text()]);
        // Panics and alarms are counted, not printed: a backtrace takes a worker tens of milliseconds.
        command.stderr(Stdio::null()).env("RUST_BACKTRACE", "0");
        let mut server = ServerProcess(LineProcess::spawn(&mut command)?);
        let address = server.answer()?;
        self.address = address["address"].as_str().context("an address")?.parse().context("an address")?;
        Ok(server)
    }
}

/// A running server. It ends on drop.
pub(crate) struct ServerProcess(LineProcess);

impl ServerProcess {
    /// Returns the server's counters.
    pub(crate) fn report(&mut self) -> Result<Report, Error> {
        self.order("report")?;
        self.answer().map(Report)
    }

    /// Sends an order. `server` lists them.
    pub(crate) fn order(&mut self, line: &str) -> Result<(), Error> {
        self.0.write(line)
    }

    /// Returns the answer to the oldest order that has one.
    pub(crate) fn answer(&mut self) -> Result<Value, Error> {
        serde_json::from_str(&self.0.read()?).context("the server's answer")
    }

    /// Kills the server, which sends nothing to its peers.
    pub(crate) fn kill(mut self) -> Result<(), Error> {
        self.0.child.kill().context("a signal")?;
        self.0.child.wait().map(drop).context("the server's end")
    }

    /// Sends a signal, which stops or continues the server.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        kill_process(Pid::from_child(&self.0.child), signal).context("a signal")
    }

    /// Returns the CPU time that the server has used.
    pub(crate) fn cpu_time(&self) -> Result<Duration, Error> {
        let sample = ProcessClock::sample(self.0.child.id()).context("the server's CPU time")?;
        Ok(Duration::from_nanos(sample.run_ns))
    }

    /// Returns the server's resident memory in bytes.
    pub(crate) fn memory_bytes(&self) -> Result<u64, Error> {
        const WHAT: &str = "the server's memory";
        let status = fs::read_to_string(self.proc_path("status")).context(WHAT)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).context(WHAT)?;
        Ok(kib.parse::<u64>().context(WHAT)? * 1_024)
    }

    /// Returns the target of each open descriptor of the server.
    pub(crate) fn descriptors(&self) -> Result<BTreeMap<OsString, PathBuf>, Error> {
        let files = fs::read_dir(self.proc_path("fd")).context("the server's files")?;
        // A descriptor that was closed in between has no target.
        let link = |file: DirEntry| Some((file.file_name(), fs::read_link(file.path()).ok()?));
        Ok(files.flatten().filter_map(link).collect())
    }

    fn proc_path(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.0.child.id())
    }

    /// Waits until the server has ended, for at most `timeout`.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<ExitStatus, Error> {
        let deadline = now() + timeout;
        loop {
            if let Some(status) = self.0.child.try_wait().context("the server's end")? {
                return Ok(status);
            }
            if now() >= deadline {
                return Err(Error::failed("the server", "it still runs"));
            }
            pause(POLL_PERIOD);
        }
    }
}

/// The server's counters, as JSON with the names of its statistics.
pub(crate) struct Report(pub(crate) Value);

impl Report {
    /// Returns the counter at `path`, summed over all workers.
    pub(crate) fn sum(&self, path: &str) -> u64 {
        self.by_worker(path).iter().sum()
    }

    /// Returns the counter at `path` of each worker. Counters of zero may be left out of the JSON.
    pub(crate) fn by_worker(&self, path: &str) -> Vec<u64> {
        let workers = self.0["stats"]["workers"].as_array();
        let counter = |worker: &Value| worker.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        workers.into_iter().flatten().map(counter).collect()
    }

    /// Returns the counter at `path` of one worker.
    pub(crate) fn of_worker(&self, worker: u64, path: &str) -> u64 {
        let index = usize::try_from(worker).unwrap_or(usize::MAX);
        self.by_worker(path).get(index).copied().unwrap_or(0)
    }

    /// Returns all counters of the map at `path`, summed over all workers.
    pub(crate) fn sum_of_map(&self, path: &str) -> u64 {
        let workers = self.0["stats"]["workers"].as_array().into_iter().flatten();
        let maps = workers.filter_map(|worker| worker.pointer(path)?.as_object());
        maps.flat_map(|map| map.values()).filter_map(Value::as_u64).sum()
    }

    /// Returns the number of datagrams that the kernel had for the server, taken or dropped.
    pub(crate) fn known_datagrams(&self) -> u64 {
        let dropped = self.sum_of_map("/received/dropped");
        self.sum("/received/datagrams") + dropped + self.sum("/kernel_dropped")
    }

    /// Returns how late the ticks of a worker were, at the 99.9th percentile.
    pub(crate) fn lateness(&self, worker: u64) -> Duration {
        let late = self.0["late_us"].get(usize::try_from(worker).unwrap_or(usize::MAX));
        late.and_then(Value::as_u64).map_or(Duration::MAX, Duration::from_micros)
    }

    /// Returns what the server recorded for its players under `name`, summed over them.
    pub(crate) fn of_players(&self, name: &str) -> u64 {
        let players = self.0["players"].as_object().into_iter().flat_map(|players| players.values());
        players.filter_map(|account| account[name].as_u64()).sum()
    }

    /// Returns a number of the whole server, and the largest one if the report lacks it.
    pub(crate) fn value(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or(u64::MAX)
    }

    /// Returns the worker that serves a player.
    pub(crate) fn worker_of(&self, player: usize) -> Option<u64> {
        self.0["players"][player.to_string()]["worker"].as_u64()
    }

    /// Returns how often a worker restarted after its thread ended, and the longest absence.
    pub(crate) fn absences(&self) -> (u64, Duration) {
        let absences = || self.0["absent_us"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        (absences().count() as u64, absences().max().map_or(Duration::ZERO, Duration::from_micros))
    }

    /// Returns how many of `workers` have no thread any more, plus all restarts and panics.
    pub(crate) fn disruptions(&self, workers: u16) -> u64 {
        let ended = u64::from(workers).abs_diff(self.driven_workers());
        ended + self.sum("/restarts") + self.sum("/panics")
    }

    /// Returns the number of workers that a thread drives.
    pub(crate) fn driven_workers(&self) -> u64 {
        let threads = self.0["stats"]["threads"].as_array();
        threads.into_iter().flatten().filter_map(Value::as_u64).sum()
    }

    /// Returns what the system granted the workers' sockets under `name`, summed over them. A `true` counts as 1.
    pub(crate) fn granted(&self, name: &str) -> u64 {
        let workers = self.0["granted"].as_array().into_iter().flatten();
        let granted = |worker: &Value| worker[name].as_u64().or(worker[name].as_bool().map(u64::from));
        workers.filter_map(granted).sum()
    }
}

/// Another process on the server's port. It ends on drop.
pub(crate) struct PortIntruder(LineProcess);

impl PortIntruder {
    /// Starts the process, and waits until its socket is bound.
    pub(crate) fn start(address: SocketAddr) -> Result<Self, Error> {
        let program = std::env::current_exe().context("this program")?;
        let mut command = Command::new(program);
        let mut intruder = Self(LineProcess::spawn(command.args(["join", &address.to_string()]))?);
        intruder.answer().map(|_| intruder)
    }

    /// Returns the number of datagrams that the process has received.
    pub(crate) fn received(&mut self) -> Result<u64, Error> {
        self.0.write("")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<u64, Error> {
        self.0.read()?.trim().parse().context("an answer of the other process")
    }
}

/// The code of the other process: binds the port, and writes the number of datagrams so far at the start and after each input line.
pub(crate) fn join_port(address: SocketAddr) -> Result<(), Error> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).context("a socket")?;
    socket.set_reuse_port(true).context("a shared port")?;
    socket.bind(&address.into()).context("a place on the port")?;
    socket.set_nonblocking(true).context("a nonblocking socket")?;
    let (socket, mut received) = (UdpSocket::from(socket), 0_u64);
    let write = |received: u64| {
        let mut out = io::stdout().lock();
        writeln!(out, "{received}").and_then(|()| out.flush()).context("standard output")
    };
    write(received)?;
    for line in io::stdin().lock().lines() {
        line.context("standard input")?;
        while socket.recv(&mut [0; 2_048]).is_ok() {
            received += 1;
        }
        write(received)?;
    }
    Ok(())
}
