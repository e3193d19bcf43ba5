//! The server process as a run sees it: started, asked, stopped, killed.
//!
//! Its keys outlive it, so that it can be started again as the one it was.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirEntry;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use drumfire::{ConnectToken, PlayerId, ServerKey, TokenKey, TokenMasterKey, TokenRequest};
use drumfire_tools::clock::{now, pause};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stop::{Stop, Tried};

/// How often somebody who waits for a process looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How a server is started, each time.
pub(crate) struct Plan {
    key: ServerKey,
    token_key: TokenKey,
    address: SocketAddr,
    flags: Vec<String>,
    namespace: Option<String>,
}

impl Plan {
    /// With keys of its own, at this address, with so many workers.
    pub(crate) fn new(address: SocketAddr, workers: u16) -> Result<Self, Stop> {
        let master = TokenMasterKey::generate().tried("a key")?;
        Ok(Self {
            key: ServerKey::generate().tried("a key")?,
            token_key: master.token_key(1, "chaos").tried("a key")?,
            address,
            flags: vec!["--workers".to_owned(), workers.to_string()],
            namespace: None,
        })
    }

    /// Inside this network namespace.
    pub(crate) fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// With this flag too.
    pub(crate) fn flag(mut self, name: &str, value: u64) -> Self {
        self.flags.extend([name.to_owned(), value.to_string()]);
        self
    }

    /// With this flag that has no value too.
    pub(crate) fn switch(mut self, name: &str) -> Self {
        self.flags.push(name.to_owned());
        self
    }

    /// The same keys and flags, for another server at another port.
    pub(crate) fn twin(&self) -> Result<Self, Stop> {
        Ok(Self {
            key: self.key.to_text().parse().tried("a key")?,
            token_key: self.token_key.clone(),
            address: (self.address.ip(), 0).into(),
            flags: self.flags.clone(),
            namespace: self.namespace.clone(),
        })
    }

    /// What lets a player in.
    pub(crate) fn token(&self, player: usize) -> Result<ConnectToken, Stop> {
        self.token_at(player, self.address)
    }

    /// What lets a player in by way of this address.
    pub(crate) fn token_at(&self, player: usize, address: SocketAddr) -> Result<ConnectToken, Stop> {
        let request = TokenRequest::new(PlayerId(player as u128), address, self.key.public());
        request.issue(&self.token_key).tried("a token")
    }

    /// Where the server is, once it was started.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the server, and waits until it serves. From then on its address is the plan's.
    pub(crate) fn start(&mut self) -> Result<ServerProcess, Stop> {
        let program = std::env::current_exe().tried("this program")?;
        let mut command = match &self.namespace {
            None => Command::new(program),
            // `ip` becomes the program, so that its process is the server's.
            Some(name) => {
                let mut enter = Command::new("ip");
                enter.args(["netns", "exec", name]).arg(program);
                enter
            }
        };
        command.args(["serve", &self.address.to_string()]).args(&self.flags);
        command.args(["--key", &self.key.to_text(), "--token-key", &self.token_key.to_text()]);
        let mut server = ServerProcess::start(&mut command)?;
        let address = server.answer()?;
        self.address = address["address"].as_str().tried("an address")?.parse().tried("an address")?;
        Ok(server)
    }
}

/// A running server. It ends when this is dropped, or the run dies.
pub(crate) struct ServerProcess {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl ServerProcess {
    fn start(command: &mut Command) -> Result<Self, Stop> {
        // What it says of panics and alarms is counted too.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // To write down for nobody where a panic was takes a worker tens of milliseconds.
        command.env("RUST_BACKTRACE", "0");
        let mut child = command.spawn().tried("another process")?;
        let (questions, answers) = (child.stdin.take(), child.stdout.take());
        let (questions, answers) = (questions.tried("a pipe")?, answers.tried("a pipe")?);
        Ok(Self { child, questions, answers: BufReader::new(answers) })
    }

    /// What it counted.
    pub(crate) fn report(&mut self) -> Result<Report, Stop> {
        self.tell("report")?;
        Ok(Report(self.answer()?))
    }

    /// Tells it something that it answers when it is done.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), Stop> {
        writeln!(self.questions, "{line}").tried("the server's standard input")
    }

    /// Its next answer.
    pub(crate) fn answer(&mut self) -> Result<Value, Stop> {
        let mut line = String::new();
        self.answers.read_line(&mut line).tried("the server's answer")?;
        serde_json::from_str(&line).tried("the server's answer")
    }

    /// Kills it, as the kernel does when memory runs out: it says nothing to anybody.
    pub(crate) fn kill(mut self) -> Result<(), Stop> {
        self.child.kill().tried("a signal")?;
        self.child.wait().map(drop).tried("the server's end")
    }

    /// Lets it stand still, or go on.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Stop> {
        kill_process(Pid::from_child(&self.child), signal).tried("a signal")
    }

    /// Processor time that it used so far.
    pub(crate) fn processor_time(&self) -> Result<Duration, Stop> {
        let text =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).tried("the server's times")?;
        // The name before them may hold blanks; see proc(5).
        let (_, fields) = text.rsplit_once(')').tried("the server's times")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = ticks.sum::<Result<_, _>>().tried("the server's times")?;
        Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100))
    }

    /// What it needs of the system now.
    pub(crate) fn holds(&self) -> Result<Holdings, Stop> {
        let folder = format!("/proc/{}", self.child.id());
        let files = std::fs::read_dir(format!("{folder}/fd")).tried("the server's files")?.count() as u64;
        let status = std::fs::read_to_string(format!("{folder}/status")).tried("the server's memory")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).tried("the server's memory")?;
        Ok(Holdings { bytes: kib.parse::<u64>().tried("the server's memory")? * 1_024, files })
    }

    /// Its sockets: the name of each descriptor, and which socket that leads to.
    pub(crate) fn sockets(&self) -> Result<BTreeMap<OsString, PathBuf>, Stop> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).tried("the server's files")?;
        // One that was closed meanwhile is none.
        let link = |file: DirEntry| Some((file.file_name(), std::fs::read_link(file.path()).ok()?));
        let is_socket = |leads_to: &Path| leads_to.to_string_lossy().starts_with("socket:");
        Ok(files.flatten().filter_map(link).filter(|(_, leads_to)| is_socket(leads_to)).collect())
    }

    /// Waits until it ended, for so long at most.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<ExitStatus, Stop> {
        let deadline = now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().tried("the server's end")? {
                return Ok(status);
            }
            if now() >= deadline {
                return Err(Stop::failed("the server", "still runs"));
            }
            pause(LOOK_EVERY);
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // One that is gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process needs of the system.
pub(crate) struct Holdings {
    /// Resident memory.
    pub(crate) bytes: u64,
    /// Open files, sockets among them.
    pub(crate) files: u64,
}

/// What a server counted, by the names of its counters.
pub(crate) struct Report(pub(crate) Value);

impl Report {
    /// The sum over all workers of the counter at this path.
    pub(crate) fn sum(&self, path: &str) -> u64 {
        self.by_worker(path).iter().sum()
    }

    /// Of each worker the counter at this path. One that is left out because it is zero is zero.
    pub(crate) fn by_worker(&self, path: &str) -> Vec<u64> {
        let workers = self.0["stats"]["workers"].as_array();
        let of = |worker: &Value| worker.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        workers.into_iter().flatten().map(of).collect()
    }

    /// The sum over all workers of all counters in the map at this path.
    pub(crate) fn sum_of_map(&self, path: &str) -> u64 {
        let workers = self.0["stats"]["workers"].as_array().into_iter().flatten();
        let maps = workers.filter_map(|worker| worker.pointer(path)?.as_object());
        maps.flat_map(|map| map.values()).filter_map(Value::as_u64).sum()
    }

    /// Datagrams that the kernel had for the server and that the server knows of, taken or dropped.
    pub(crate) fn known_datagrams(&self) -> u64 {
        let dropped = self.sum_of_map("/received/dropped");
        self.sum("/received/datagrams") + dropped + self.sum("/kernel_dropped")
    }

    /// How late this worker's ticks were, but for one in a thousand.
    pub(crate) fn late(&self, worker: u64) -> Duration {
        let late = self.0["late_us"].get(usize::try_from(worker).unwrap_or(usize::MAX));
        late.and_then(Value::as_u64).map_or(Duration::MAX, Duration::from_micros)
    }

    /// The sum over all players of what the server wrote down for each under this name.
    pub(crate) fn of_players(&self, name: &str) -> u64 {
        let players = self.0["players"].as_object().into_iter().flat_map(|players| players.values());
        players.filter_map(|account| account[name].as_u64()).sum()
    }

    /// How often a worker came back whose thread fell, and how long one was away at most.
    pub(crate) fn came_back(&self) -> (u64, Duration) {
        let away = || self.0["away_us"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        (away().count() as u64, away().max().map_or(Duration::ZERO, Duration::from_micros))
    }

    /// The counter at this path of one worker.
    pub(crate) fn of_worker(&self, worker: u64, path: &str) -> u64 {
        let at = usize::try_from(worker).unwrap_or(usize::MAX);
        self.by_worker(path).get(at).copied().unwrap_or(0)
    }

    /// Of so many workers those that are driven no more, and the times that any panicked or began anew.
    pub(crate) fn ends(&self, workers: u16) -> u64 {
        let gone = u64::from(workers).abs_diff(self.driven_workers());
        gone + self.sum("/restarts") + self.sum("/panics")
    }

    /// Workers that a thread drives.
    pub(crate) fn driven_workers(&self) -> u64 {
        let threads = self.0["stats"]["threads"].as_array();
        threads.into_iter().flatten().filter_map(Value::as_u64).sum()
    }

    /// Bytes that waited for a player or were not acknowledged, at most.
    pub(crate) fn queue_most_bytes(&self) -> u64 {
        self.0["queue_most_bytes"].as_u64().unwrap_or(u64::MAX)
    }

    /// The sum of what the system granted each worker under this name; yes is one.
    pub(crate) fn granted(&self, name: &str) -> u64 {
        let workers = self.0["granted"].as_array().into_iter().flatten();
        let of =
            |worker: &Value| worker[name].as_u64().or(worker[name].as_bool().map(u64::from)).unwrap_or(0);
        workers.map(of).sum()
    }

    /// On which worker a player is.
    pub(crate) fn worker_of(&self, player: usize) -> Option<u64> {
        self.0["players"][player.to_string()]["worker"].as_u64()
    }

    /// Datagrams that are in no counter.
    pub(crate) fn unexplained(&self) -> u64 {
        self.0["unexplained"].as_u64().unwrap_or(u64::MAX)
    }

    /// Echoes for which there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.0["refused"].as_u64().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counters_are_found_by_their_names_and_what_is_left_out_is_zero() {
        let worker = |sent: u64| json!({ "sent": { "datagrams": sent, "faults": {} } });
        let report = Report(json!({ "stats": { "workers": [worker(3), worker(4)] }, "unexplained": 0 }));
        assert_eq!(report.by_worker("/sent/datagrams"), [3, 4]);
        assert_eq!(report.sum("/sent/datagrams"), 7);
        assert_eq!([0, 1, 2].map(|worker| report.of_worker(worker, "/sent/datagrams")), [3, 4, 0]);
        assert_eq!(report.sum("/sent/faults/permission_denied"), 0);
        assert_eq!((report.unexplained(), report.refused()), (0, u64::MAX));
    }

    #[test]
    fn who_was_away_is_counted_and_so_are_those_that_are_driven() {
        let report = Report(json!({ "stats": { "threads": [2, 1] }, "away_us": [1_500, 900] }));
        assert_eq!(report.came_back(), (2, Duration::from_micros(1_500)));
        assert_eq!((report.driven_workers(), report.ends(3), report.ends(4)), (3, 0, 1));
        let nobody = Report(json!({ "stats": { "threads": [] }, "away_us": [] }));
        assert_eq!((nobody.came_back(), nobody.driven_workers()), ((0, Duration::ZERO), 0));
    }
}
