//! A chat in which every client receives the messages of all clients: `cargo bench --bench chat`.
//!
//! Each of 1,024 clients sends 15 to 58 bytes every 0.5 to 1 s, at times that a seed fixes. This makes 1,365 broadcasts and 1.4 million
//! deliveries per second.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `nominal` | a server that broadcasts every 50 ms, reliable and unreliable, and TCP |
//! | `equal` | the same with 128 clients, at which TCP keeps up; not with `--quick` |
//! | `stall` | the delay of all others when one more client stops reading |
//! | `ladder` | 256 to 4,096 clients, then higher rates, until a counter shows that the server no longer keeps up |
//! | `long` | the nominal load for 25 minutes in each mode; only with `--full` |
//!
//! `--only NAME` runs one part. `--judge` makes a missed goal a failure.
//!
//! The server is a process on one core. All clients are on one thread of this process, on another core. The baseline over TCP is that of
//! the WolfMUD journal of 2021-02-21. Each interval prints a status line in the journal's format. The bench fails when a single message is
//! not accounted for.
#![forbid(unsafe_code)]

mod format;
mod round;
mod server;

use std::process::ExitCode;
use std::time::Duration;

use drumfire::SendOptions;
use drumfire_benches::{Arm, Bench, Cores, Extent, Plan, Program, interleave, part};
use serde::{Deserialize, Serialize};

/// The number of clients at which the baseline keeps up on two cores.
const EQUAL_CLIENTS: u32 = 128;

/// The length of the journal's run.
const LONG: Duration = Duration::from_secs(25 * 60);

/// Open files of a process in addition to its connections.
const OTHER_FILES: u64 = 64;

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Mode {
    /// drumfire with reliable ordered messages, which gather for 50 ms before they are broadcast.
    Ordered,
    /// As [`Mode::Ordered`], with unreliable messages.
    Unreliable,
    /// The baseline of the journal over TCP, not encrypted.
    Tcp,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Ordered, Self::Unreliable, Self::Tcp];

    /// The name in tables and figures.
    const fn name(self) -> &'static str {
        match self {
            Self::Ordered => "reliable-ordered, 50 ms",
            Self::Unreliable => "unreliable, 50 ms",
            Self::Tcp => "TCP, a write per message",
        }
    }

    /// The options of messages in both directions.
    const fn options(self) -> SendOptions {
        match self {
            Self::Unreliable => SendOptions::unreliable(),
            Self::Ordered | Self::Tcp => SendOptions::reliable_ordered(),
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
struct Load {
    mode: Mode,
    /// The number of clients that send, which is a multiple of those that share a socket.
    clients: u32,
    /// The rate of messages, in percent of the journal's.
    speed: u32,
    /// The time between two status lines. The first interval with load is the warm-up.
    interval_ns: u64,
    /// The measured time, which is a multiple of the interval.
    window: Duration,
    /// Whether there is one more client, which sends nothing and stops reading within the window.
    has_stalled: bool,
}

impl Load {
    fn of(bench: &Bench, mode: Mode) -> Self {
        let (clients, millis, window) =
            bench.extent().pick((64, 250, 500), (1_024, 500, 2_000), (1_024, 1_000, 6_000));
        let (interval_ns, window) = (millis * 1_000_000, Duration::from_millis(window));
        Self { mode, clients, speed: 100, interval_ns, window, has_stalled: false }
    }

    /// All connections.
    const fn connections(&self) -> u32 {
        self.clients + self.has_stalled as u32
    }
}

fn main() -> ExitCode {
    let parts = [
        part("nominal", |bench| compare(bench, &Mode::ALL, bench.plan(), |load| load)),
        part("equal", |bench| {
            compare(bench, &Mode::ALL, bench.plan(), |load| Load { clients: EQUAL_CLIENTS, ..load })
        })
        .from(Extent::Default),
        part("stall", stall),
        part("ladder", format::climb),
        // The run is too long to be repeated. A disturbed one is marked.
        part("long", |bench| {
            let long = |load| Load { interval_ns: 10_000_000_000, window: LONG, ..load };
            compare(bench, &Mode::ALL[..2], Plan::once(), long)
        })
        .from(Extent::Full),
    ];
    let program = Program {
        roles: &[(server::SERVER, server::run)],
        prepare: |bench| {
            let seed = round::SEED;
            bench.results.seeded(&format!("{seed} for the times and lengths of messages"));
        },
        ..Program::new("chat", &parts)
    };
    program.main()
}

/// Compares modes with this variant of the nominal load.
fn compare(bench: &mut Bench, modes: &[Mode], plan: Plan, variant: fn(Load) -> Load) -> Result<(), String> {
    let cores = bench.pin_load()?;
    let loads = modes.iter().map(|mode| (mode.name().to_owned(), variant(Load::of(bench, *mode))));
    let measured = interleave(arms(cores, loads), plan)?;
    format::show(bench, bench.part(), &measured)?;
    let part = format!("{}, {} clients", bench.part(), variant(Load::of(bench, Mode::Ordered)).clients);
    format::servers(&part, &measured, &mut bench.results);
    Ok(())
}

fn stall(bench: &mut Bench) -> Result<(), String> {
    let (cores, load) = (bench.pin_load()?, Load::of(bench, Mode::Ordered));
    let stalled = Load { has_stalled: true, ..load };
    let loads = [("all read".to_owned(), load), ("one stalled".to_owned(), stalled)];
    let measured = interleave(arms(cores, loads), bench.plan())?;
    format::show(bench, bench.part(), &measured)?;
    format::stall(&measured, &mut bench.results);
    Ok(())
}

/// Arms of these loads. Each prints the status lines of its first round.
fn arms(cores: Cores, loads: impl IntoIterator<Item = (String, Load)>) -> Vec<Arm<'static>> {
    let arm = |(name, load): (String, Load)| {
        let mut is_shown = true;
        Arm::new(name, move || round::run(&load, cores, std::mem::take(&mut is_shown)))
    };
    loads.into_iter().map(arm).collect()
}
