//! The runs, by name, and the parts that they share.

mod c01;
mod c02;
mod c03;
mod c04;
mod c05;
mod c06;
mod c07;
mod c08;
mod c09;
mod c10;
mod c11;
mod c12;

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use drumfire_tools::clock::now;

use crate::error::{Error, ErrorContext};
use crate::host::call_in;
use crate::marks::{Marks, Verdict};
use crate::players::{Players, check_timeout};
use crate::process::{Report, ServerProcess, ServerSpec};
use crate::server::REFUSE;

/// The time between two reports of a server that a run waits for.
const REPORT_PERIOD: Duration = Duration::from_millis(20);

/// The players of a run about many players.
const MANY_PLAYERS: usize = 200;

/// The threads of most servers.
const WORKERS: u16 = 4;

/// The kernel's counters of dropped datagrams reach the server's report within this time.
const KERNEL_COUNTERS: Duration = Duration::from_millis(1_500);

/// Players that connect after a worker or a socket was lost.
const NEWCOMERS: usize = 8;

/// The maximum number of datagrams in one receive batch, which other connections may lose when a worker panics.
const BATCH: u64 = 64;

/// A run.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    name: &'static str,
    title: &'static str,
    function: fn(&Setting, &mut Marks) -> Result<(), Error>,
}

const RUNS: [Run; 12] = [
    Run { name: "C1", title: "C1 soak", function: c01::run },
    Run { name: "C2", title: "C2 bad net", function: c02::run },
    Run { name: "C3", title: "C3 flood", function: c03::run },
    Run { name: "C4", title: "C4 full buffers", function: c04::run },
    Run { name: "C5", title: "C5 rebind", function: c05::run },
    Run { name: "C6", title: "C6 restart", function: c06::run },
    Run { name: "C7", title: "C7 drain", function: c07::run },
    Run { name: "C8", title: "C8 stall", function: c08::run },
    Run { name: "C9", title: "C9 panic", function: c09::run },
    Run { name: "C10", title: "C10 errno", function: c10::run },
    Run { name: "C11", title: "C11 group", function: c11::run },
    Run { name: "C12", title: "C12 sweep", function: c12::run },
];

impl Run {
    /// Returns the run of a name, or the mistake in it.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        RUNS.into_iter().find(|run| run.name == name).ok_or_else(|| "expected C1 to C12".to_owned())
    }
}

/// The length of a run. The goals are the same for all sizes. A mark that needs more time or more players than a size has is not
/// judged in it, and the run passes in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// Some seconds, for use before a change lands.
    Quick,
    /// A minute or two.
    Default,
    /// The figures of a release, which take hours.
    Full,
}

impl Size {
    /// Returns the value for this size.
    fn of<T>(self, quick: T, default: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Default => default,
            Self::Full => full,
        }
    }

    /// Returns the number of seconds for this size.
    fn secs(self, quick: u64, default: u64, full: u64) -> Duration {
        Duration::from_secs(self.of(quick, default, full))
    }

    /// Returns the number of players of a run about many players.
    fn many_players(self) -> usize {
        self.of(50, MANY_PLAYERS, MANY_PLAYERS)
    }
}

/// The environment of a run: this network namespace and another one, connected by a link. No other run uses them.
#[derive(Args)]
pub(crate) struct Setting {
    /// The length of the run.
    #[arg(long, value_enum, default_value_t = Size::Default)]
    size: Size,
    /// A process in the other network namespace.
    #[arg(long)]
    other: u32,
    /// The address of the other namespace.
    #[arg(long)]
    other_address: IpAddr,
}

impl Setting {
    /// Returns a server in the other namespace, at its address.
    fn far_server(&self, workers: u16) -> Result<ServerSpec, Error> {
        ServerSpec::within(self.other, self.other_address, workers)
    }

    /// Runs a program of the system in the other namespace. Returns its output.
    fn call_far(&self, program: &str, arguments: &str) -> Result<String, Error> {
        call_in(self.other, program, arguments)
    }
}

/// Runs, prints the marks, and returns their result.
///
/// # Errors
/// The run could not be finished, or the machine lacks what all of it needs.
pub(crate) fn judge(run: Run, setting: &Setting) -> Result<Verdict, Error> {
    let mut marks = Marks::default();
    let outcome = (run.function)(setting, &mut marks);
    // The marks of a run that failed halfway help to explain the failure.
    let verdict = marks.print(run.title);
    match outcome {
        Err(Error::Unsupported(what)) if verdict == Verdict::Missed => {
            println!("SKIP the rest: needs {what}");
            Ok(verdict)
        }
        outcome => outcome.map(|()| verdict),
    }
}

/// A server and its players.
struct Testbed {
    spec: ServerSpec,
    server: ServerProcess,
    players: Players,
}

impl Testbed {
    /// Starts a server, adds `count` to these players, and waits until each has received an echo.
    fn start(mut spec: ServerSpec, count: usize, mut players: Players) -> Result<Self, Error> {
        let server = spec.start()?;
        players.add_all(&spec, 0..count)?;
        players.until_answered()?;
        Ok(Self { spec, server, players })
    }

    /// Adds players with numbers from `first` on, and plays until each is answered or refused, and all echoes are back.
    fn add_newcomers(&mut self, first: usize) -> Result<(), Error> {
        self.players.add_all(&self.spec, first..first + NEWCOMERS)?;
        self.players.until("newcomers are answered or refused", |player| {
            player.ended.is_some() || player.ordered.received > 0
        })?;
        self.players.settle()
    }

    /// Plays until the server's report fulfills a condition.
    fn until(&mut self, what: &str, condition: impl Fn(&Report) -> bool) -> Result<Report, Error> {
        let start = now();
        loop {
            let report = self.server.report()?;
            if condition(&report) {
                return Ok(report);
            }
            check_timeout(what, start)?;
            self.players.play(REPORT_PERIOD);
        }
    }

    /// Ends the server's own messages, and plays until the players have acknowledged all of them.
    fn until_acknowledged(&mut self) -> Result<Report, Error> {
        self.server.command("quiet")?;
        self.until("all is acknowledged", |report| {
            report.of_players("sent") == report.of_players("acknowledged")
        })
    }

    /// Plays until `count` ordered echoes more have reached each player that is connected.
    fn until_more_echoes(&mut self, count: u64) -> Result<(), Error> {
        let goals: Vec<u64> =
            self.players.list.iter().map(|player| player.ordered.received + count).collect();
        let are_reached = |players: &Players| {
            let mut pairs = players.list.iter().zip(&goals);
            pairs.all(|(player, goal)| player.ended.is_some() || player.ordered.received >= *goal)
        };
        self.players.until_any("more echoes for all", are_reached).map(drop)
    }

    /// Plays for `time`. Returns the server's CPU time in it, in thousandths of a core.
    fn play_measured(&mut self, time: Duration) -> Result<u64, Error> {
        let (used, start) = (self.server.cpu_time()?, now());
        self.players.play(time);
        let (used, elapsed) = (self.server.cpu_time()? - used, now().duration_since(start));
        Ok(u64::try_from(used.as_millis() * 1_000 / elapsed.as_millis().max(1)).unwrap_or(u64::MAX))
    }

    /// Makes system calls of the first player's worker fail. Returns the worker.
    fn fail_calls(&mut self, errno: i32, sockets: &str, calls: &str) -> Result<u64, Error> {
        self.players.list[0].request_fault(REFUSE, &format!("{errno} {sockets} {calls}"))?;
        let report = self.until("the filter", |report| !report.0["refusal"].is_null())?;
        if let Some(reason) = report.0["refusal"]["Err"].as_str() {
            return Err(Error::Unsupported(format!("seccomp filters: {reason}")));
        }
        report.worker_of(0).context("the worker of the first player")
    }

    /// Pauses the players of a worker.
    fn pause_players_of(&mut self, worker: u64) -> Result<(), Error> {
        let report = self.server.report()?;
        for (index, player) in self.players.list.iter_mut().enumerate() {
            player.is_paused = report.worker_of(index) == Some(worker);
        }
        Ok(())
    }
}
