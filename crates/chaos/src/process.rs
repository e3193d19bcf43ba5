//! The server of a run in its own process.
//!
//! The server's keys belong to the run, so that a killed server can be started again with them.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use drumfire::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{Access, ConnectToken, PlayerId, ServerConfig, ServerKey, Workers};
use drumfire_tools::clock::{now, pause};
use drumfire_tools::host::ProcessClock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::error::{Error, ErrorContext};
use crate::host::entry;
use crate::platform::process;

/// The time between two checks of a process that is about to end.
const POLL_PERIOD: Duration = Duration::from_millis(1);

/// The settings of a server, which can be started repeatedly.
pub(crate) struct ServerSpec {
    /// The settings. The address has a port once the server was started.
    pub(crate) config: ServerConfig,
    /// The key of the players' tokens.
    pub(crate) token_key: TokenKey,
    /// The server's own messages per player and 10 ms.
    pub(crate) down: u64,
    /// Whether the server's kernel segments and coalesces trains of datagrams, as far as the server can see.
    pub(crate) has_trains: bool,
    /// The process whose network namespace the server shares.
    pub(crate) namespace: Option<u32>,
}

impl ServerSpec {
    /// Returns a server with new keys at `address`, without messages of its own.
    pub(crate) fn new(address: SocketAddr, workers: u16) -> Result<Self, Error> {
        let key = ServerKey::generate().context("a key")?;
        let master = TokenMasterKey::generate().context("a key")?;
        let token_key = master.token_key(1, "chaos").context("a key")?;
        let access = Access::Token(TokenAccess::new(token_key.clone()));
        let config = ServerConfig::new(address, key, access).server_id("chaos");
        let config = config.workers(Workers::Count(workers));
        Ok(Self { config, token_key, down: 0, has_trains: true, namespace: None })
    }

    /// Returns a server in this network namespace, at any port.
    pub(crate) fn local(workers: u16) -> Result<Self, Error> {
        Self::new((Ipv4Addr::LOCALHOST, 0).into(), workers)
    }

    /// Returns a server in another network namespace.
    pub(crate) fn within(namespace: u32, address: IpAddr, workers: u16) -> Result<Self, Error> {
        Ok(Self { namespace: Some(namespace), ..Self::new((address, 0).into(), workers)? })
    }

    /// Returns a second server with the same keys and settings, at another port.
    pub(crate) fn with_same_keys(&self) -> Self {
        let (mut config, token_key) = (self.config.clone(), self.token_key.clone());
        config.address.set_port(0);
        Self { config, token_key, ..*self }
    }

    /// Returns a player's token for the server's address.
    pub(crate) fn token(&self, player: usize) -> Result<ConnectToken, Error> {
        self.token_via(player, self.config.address)
    }

    /// Returns a player's token for another address that leads to the server.
    pub(crate) fn token_via(&self, player: usize, address: SocketAddr) -> Result<ConnectToken, Error> {
        let request = TokenRequest::new(PlayerId(player as u128), address, self.config.key.public());
        request.issue(&self.token_key).context("a token")
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
        // Serialized settings contain no secrets.
        let mut config = serde_json::to_value(&self.config).context("the settings")?;
        config["key"] = self.config.key.to_text().into();
        config["access"]["token"]["keys"] = json!([self.token_key.to_text()]);
        command.args(["serve", &config.to_string(), "--down", &self.down.to_string()]);
        command.args((!self.has_trains).then_some("--no-trains"));
        // Panics and alarms are counted, not printed: a backtrace takes a worker tens of milliseconds.
        command.stderr(Stdio::null()).env("RUST_BACKTRACE", "0");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("the server")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = (input.context("a pipe")?, BufReader::new(output.context("a pipe")?));
        let mut server = ServerProcess { child, input, output };
        let address = server.answer()?;
        self.config.address =
            address["address"].as_str().context("an address")?.parse().context("an address")?;
        Ok(server)
    }
}

/// A running server, which reads lines and answers them. Dropping it kills the server without a Close to its peers.
pub(crate) struct ServerProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both calls fail for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ServerProcess {
    /// Returns the server's counters.
    pub(crate) fn report(&mut self) -> Result<Report, Error> {
        self.command("report")?;
        self.answer().map(Report)
    }

    /// Sends a command. The docs of `server` list the commands.
    pub(crate) fn command(&mut self, line: &str) -> Result<(), Error> {
        writeln!(self.input, "{line}").context("the server's standard input")
    }

    /// Returns the answer to the oldest command that has one.
    pub(crate) fn answer(&mut self) -> Result<Value, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("the server's answer")?;
        serde_json::from_str(&line).context("the server's answer")
    }

    /// Sends a signal, which stops or continues the server.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        kill_process(Pid::from_child(&self.child), signal).context("a signal")
    }

    /// Returns the CPU time that the server has used.
    pub(crate) fn cpu_time(&self) -> Result<Duration, Error> {
        let sample = ProcessClock::sample(self.id()).context("the server's CPU time")?;
        Ok(Duration::from_nanos(sample.run_ns))
    }

    /// Returns the server's resident memory in bytes.
    pub(crate) fn memory_bytes(&self) -> Result<u64, Error> {
        let status = process(self.id())?.status().context("the server's memory")?;
        Ok(status.vmrss.context("the server's memory")? * 1_024)
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the server has ended, for at most `timeout`.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<ExitStatus, Error> {
        let deadline = now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait().context("the server's end")? {
                return Ok(status);
            }
            if now() >= deadline {
                return Err(Error::failed("the server", "it still runs"));
            }
            pause(POLL_PERIOD);
        }
    }
}

/// The path of the number of workers that a thread drives.
pub(crate) const THREADS: &str = "/stats/threads";

/// The server's counters, as JSON with the names of its statistics.
pub(crate) struct Report(pub(crate) Value);

impl Report {
    /// Returns the counter at `path`, or the sum of a map of counters, summed over all workers.
    pub(crate) fn sum(&self, path: &str) -> u64 {
        self.by_worker(path).iter().sum()
    }

    /// Returns the counter at `path`, or the sum of a map of counters, of each worker.
    pub(crate) fn by_worker(&self, path: &str) -> Vec<u64> {
        let workers = self.0["stats"]["workers"].as_array().into_iter().flatten();
        workers.map(|worker| worker.pointer(path).map_or(0, total)).collect()
    }

    /// Returns the counter at `path` of one worker.
    pub(crate) fn of_worker(&self, worker: u64, path: &str) -> u64 {
        let index = usize::try_from(worker).unwrap_or(usize::MAX);
        self.by_worker(path).get(index).copied().unwrap_or(0)
    }

    /// Returns the number of datagrams that the server received or the kernel dropped.
    pub(crate) fn known_datagrams(&self) -> u64 {
        self.sum("/received/datagrams") + self.sum("/received/dropped") + self.sum("/kernel_dropped")
    }

    /// Returns the sum of the players' counters `name`.
    pub(crate) fn of_players(&self, name: &str) -> u64 {
        let players = self.0["players"].as_object().into_iter().flat_map(|players| players.values());
        players.map(|account| total(&account[name])).sum()
    }

    /// Returns the number at `path`, or `u64::MAX` if the report lacks it.
    pub(crate) fn value(&self, path: &str) -> u64 {
        self.0.pointer(path).and_then(Value::as_u64).unwrap_or(u64::MAX)
    }

    /// Returns the sum of all numbers at `path`.
    pub(crate) fn total(&self, path: &str) -> u64 {
        self.0.pointer(path).map_or(0, total)
    }

    /// Returns the worker that serves a player.
    pub(crate) fn worker_of(&self, player: usize) -> Option<u64> {
        self.0["players"][player.to_string()]["worker"].as_u64()
    }

    /// Returns the number of `workers` without a thread, plus all restarts and panics.
    pub(crate) fn disruptions(&self, workers: u16) -> u64 {
        let ended = u64::from(workers).abs_diff(self.total(THREADS));
        ended + self.sum("/restarts") + self.sum("/panics")
    }

    /// Returns the sum of the granted setting `name` of the workers' sockets. A `true` counts as 1.
    pub(crate) fn granted(&self, name: &str) -> u64 {
        let workers = self.0["granted"].as_array().into_iter().flatten();
        workers.map(|worker| total(&worker[name])).sum()
    }
}

/// Returns the sum of all numbers in a value. A `true` counts as 1, and a value that was left out as 0, as counters of zero are.
fn total(value: &Value) -> u64 {
    match value {
        Value::Object(map) => map.values().map(total).sum(),
        Value::Array(list) => list.iter().map(total).sum(),
        Value::Bool(is_true) => (*is_true).into(),
        other => other.as_u64().unwrap_or(0),
    }
}
