//! Threads that come and go while clients play: `cargo bench --bench threads`.
//!
//! A server with four sockets echoes reliable messages; its threads become four, two and one again, and again. Printed are
//! the messages per second around each change, the lowest tenth of a second after it, and the same before it, where nothing
//! changed: what lies between the two is the dip. The bench fails when anybody was disconnected or a message was lost. The
//! players run in the same process on a thread of their own, unlike those of other benches: windows and moves share one clock
//! and nobody's CPU is counted. They leave turns out when their thread gets no core in time; a change with such turns around it
//! does not count. With fewer cores than threads nothing here is a throughput. `--quick` is a smoke run.
#![forbid(unsafe_code)]

mod players;
mod show;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use drumfire::{
    Access, BindError, Event, SendOptions, Server, ServerConfig, ServerKey, ThreadsError, Workers,
};
use drumfire_benches::{Extent, Options, Results, print_machine, run_bench};
use drumfire_tools::clock;

use players::{Players, Tally};

const SOCKETS: u16 = 4;

/// The threads there are before, and what they become in turn.
const STAGES: [u16; 4] = [1, 4, 2, 1];

/// What is looked at before a change, and after it.
const WINDOW: Duration = Duration::from_secs(1);

/// How long the traffic settles between two windows.
const PAUSE: Duration = Duration::from_millis(200);

/// How often the server looks up when nothing comes.
const LOOK_UP: Duration = Duration::from_millis(1);

/// A connection or a move that takes this long will not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// One change of the number of threads.
#[derive(Clone, Copy, Debug)]
struct Change {
    from: u16,
    to: u16,
    /// Since the beginning.
    at: Duration,
    /// How long it took until the last shard was where it belongs.
    moved: Duration,
}

/// What came of a run.
struct Outcome {
    changes: Vec<Change>,
    tally: Tally,
    forwarded: u64,
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    run_bench(args.into_iter().skip(1), &[], bench)
}

fn bench(options: &Options) -> Result<(), String> {
    let (players, rounds) = match options.extent {
        Extent::Quick => (200, 1),
        Extent::Default => (1_000, 5),
        Extent::Full => (1_000, 20),
    };
    print_machine();
    println!("extent    {}: {players} players, {rounds} rounds", options.extent.name());
    let outcome = run(players, rounds)?;
    let mut results = Results::new("threads", options);
    show::show(players, &outcome, &mut results);
    println!("\n{}", results.table());
    println!("written to {}", results.write()?.display());
    outcome.check()
}

impl Outcome {
    fn check(&self) -> Result<(), String> {
        let Tally { ended, lost, .. } = self.tally;
        if (ended, lost) == (0, 0) {
            Ok(())
        } else {
            Err(format!("{ended} connections ended, {lost} messages were lost"))
        }
    }
}

/// The server, and how long it has been there.
struct Echo {
    server: Server,
    start: Instant,
    refused: u64,
}

fn run(players: usize, rounds: usize) -> Result<Outcome, String> {
    let key = ServerKey::generate().map_err(|error| error.to_string())?;
    let public = key.public();
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key, Access::Open)
        .workers(Workers::Shards { sockets: SOCKETS, threads: STAGES[0] });
    let server = Server::bind(config).map_err(|error: BindError| error.to_string())?;
    let (address, start, is_over) = (server.local_addr(), clock::now(), Arc::new(AtomicBool::new(false)));
    let mut echo = Echo { server, start, refused: 0 };
    let (outbox, inbox) = sync_channel(1);
    let flag = Arc::clone(&is_over);
    let thread = std::thread::spawn(move || {
        let players = Players::connect(address, public, players, start)?;
        outbox.send(()).map_err(|error| error.to_string())?;
        players.play(&flag)
    });
    echo.serve_while("players connect", 3 * PATIENCE, |_| inbox.try_recv() == Err(TryRecvError::Empty))?;
    let before = echo.server.stats().forwarded();
    let changes = if thread.is_finished() { Ok(Vec::new()) } else { echo.stages(rounds) };
    is_over.store(true, Ordering::Release);
    echo.serve_while("the last answers come", 3 * PATIENCE, |_| !thread.is_finished())?;
    let tally = thread.join().map_err(|_| "the players' thread panicked")??;
    if echo.refused > 0 {
        return Err(format!("{} answers found no room: the machine is too busy", echo.refused));
    }
    Ok(Outcome { changes: changes?, tally, forwarded: echo.server.stats().forwarded() - before })
}

impl Echo {
    /// All changes, round after round.
    fn stages(&mut self, rounds: usize) -> Result<Vec<Change>, String> {
        let mut changes = Vec::new();
        for _ in 0..rounds {
            for (from, to) in STAGES.into_iter().zip(STAGES.into_iter().skip(1)) {
                self.serve_for(PAUSE)?;
                changes.push(self.change(from, to)?);
            }
        }
        Ok(changes)
    }

    /// A change with its windows.
    fn change(&mut self, from: u16, to: u16) -> Result<Change, String> {
        self.serve_for(WINDOW)?;
        let at = self.elapsed();
        self.server.set_threads(to).map_err(|error: ThreadsError| error.to_string())?;
        self.serve_while("shards move", PATIENCE, |server| {
            let driven = server.stats().threads;
            driven.len() != usize::from(to) || driven.iter().sum::<u16>() != SOCKETS
        })?;
        let moved = self.elapsed() - at;
        self.serve_for(WINDOW.saturating_sub(moved))?;
        Ok(Change { from, to, at, moved })
    }

    fn elapsed(&self) -> Duration {
        clock::now().duration_since(self.start)
    }

    fn serve_for(&mut self, time: Duration) -> Result<(), String> {
        let until = clock::now() + time;
        self.serve_while("time passes", 2 * time, |_| clock::now() < until)
    }

    /// Sends back what comes.
    fn serve_while(
        &mut self,
        what: &str,
        patience: Duration,
        mut goes_on: impl FnMut(&Server) -> bool,
    ) -> Result<(), String> {
        let deadline = clock::now() + patience;
        while goes_on(&self.server) {
            if clock::now() > deadline {
                return Err(format!("not in {patience:?}: {what}"));
            }
            self.server.wait(LOOK_UP);
            for event in self.server.poll() {
                if let Event::Message { peer, channel, bytes } = event {
                    let sent = self.server.send(peer, channel, bytes, SendOptions::reliable_ordered());
                    self.refused += u64::from(sent.is_err());
                }
            }
            self.server.flush();
        }
        Ok(())
    }
}
