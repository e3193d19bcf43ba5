//! One process of a round: this executable again, with a hidden first argument. It is told to end by the end of
//! its standard input, talks in lines, and does not outlive the value that stands for it.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use drumfire_tools::{clock, host};

use crate::load::{Crowd, Drive, Load, Window};
use crate::peer::Peer;
use crate::player::Players;
use crate::{encrypted, raw, server};

/// The first argument of the server's process.
const SERVER_MODE: &str = "--echo-server";

/// The first argument of the client's process.
const CLIENT_MODE: &str = "--echo-client";

/// A process that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that are read of all its lines together.
const LINES_MAX_BYTES: u64 = 1 << 16;

/// The load runs for so long before it is counted.
const WARM_UP: Duration = Duration::from_millis(250);

/// A running process.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    name: &'static str,
}

impl Process {
    /// Starts a server on this core.
    pub(crate) fn server(peer: Peer, core: usize) -> Result<Self, String> {
        Self::start("the server", &[SERVER_MODE, &peer.name(), &core.to_string()])
    }

    /// Starts a client of the server at `address`, on this core.
    pub(crate) fn client(
        peer: Peer,
        load: Load,
        counted: Duration,
        address: &str,
        core: usize,
    ) -> Result<Self, String> {
        let (millis, core) = (counted.as_millis().to_string(), core.to_string());
        Self::start("the client", &[CLIENT_MODE, &peer.name(), &core, load.name(), &millis, address])
    }

    fn start(name: &'static str, args: &[&str]) -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("{name} cannot be started: {error}");
        let mut child = Command::new(std::env::current_exe().map_err(fail)?)
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

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line it says.
    pub(crate) fn line(&self) -> Result<String, String> {
        self.lines
            .recv_timeout(PATIENCE)
            .map_err(|_| format!("{} says nothing: its line stands above", self.name))
    }

    /// Tells it to end and answers its last line.
    pub(crate) fn finish(mut self) -> Result<String, String> {
        drop(self.input.take());
        self.line()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        // Its last line is read, or it failed: nothing is lost by ending it here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a process of a round, if the arguments ask for one; the program's name is not among them.
pub(crate) fn main(args: &[OsString]) -> Option<ExitCode> {
    let args: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        [SERVER_MODE, peer, core] => serve(peer, core),
        [CLIENT_MODE, peer, core, load, millis, address] => connect(peer, core, load, millis, address),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::FAILURE
        }
    })
}

fn pin(core: &str) -> Result<(), String> {
    let core = core.parse().map_err(|_| "not a core".to_owned())?;
    host::pin_current_thread(core).map_err(|error| error.to_string())
}

fn serve(peer: &str, core: &str) -> Result<(), String> {
    // Threads that are started later stay on the same core.
    pin(core)?;
    let served = match Peer::named(peer).ok_or("not a peer")? {
        Peer::Raw => raw::serve().map_err(|error| format!("the raw server: {error}"))?,
        Peer::Drumfire(staffing, delivery, _) => encrypted::serve(staffing, delivery)?,
    };
    server::say(&served.to_line()).map_err(|error| error.to_string())
}

fn connect(peer: &str, core: &str, load: &str, millis: &str, address: &str) -> Result<(), String> {
    pin(core)?;
    let address = address.parse().map_err(|_| "not an address".to_owned())?;
    let load = Load::named(load).ok_or("not a load")?;
    let counted = Duration::from_millis(millis.parse().map_err(|_| "not a time".to_owned())?);
    match Peer::named(peer).ok_or("not a peer")? {
        Peer::Raw => drive(load, counted, |_| raw::RawCrowd::connect(address)),
        Peer::Drumfire(_, delivery, suite) => {
            drive(load, counted, |count| Players::connect(address, count, delivery, suite))
        }
    }
}

/// Connects, says when the window is, runs the load, says what came of it.
fn drive<C: Crowd>(
    load: Load,
    counted: Duration,
    crowd: impl FnMut(usize) -> Result<C, String>,
) -> Result<(), String> {
    let drive = Drive::connect(load.connections(), crowd)?;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let start = clock::host_ns() + nanos(WARM_UP);
    let window = Window { start, end: start + nanos(counted) };
    server::say(&format!("{} {}", window.start, window.end)).map_err(|error| error.to_string())?;
    let tally = drive.run(load, window)?;
    server::say(&tally.to_line()).map_err(|error| error.to_string())
}
