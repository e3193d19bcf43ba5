//! 300 players on a box of two cores: a server in a process of its own on one core, and on the other, in this process, the players,
//! each with a socket of its own, over the loopback. 64 channels of each were used, four in turn get a message with every update, 40
//! updates per second.
//!
//! The server's share of a core is that of its process as the kernel counts it: system calls, the loopback's way to the players'
//! sockets and ciphers are in it. A tick is late by how long after its time it begins, whatever the ticks before it took. Nothing is
//! lost here on purpose, as it is in `updates`. The books of messages and of datagrams close, or the part fails.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::{ClientsEvent, ServerPublicKey};
use drumfire_benches::{
    Arm, BUSY, Child, Cores, Crowd, DropWatch, EchoCounts, Extent, Goal, Measured, Results, StealWatch,
    UsageWatch, Window, close_books, close_way_back, interleave, micros, missing, settle,
};
use drumfire_tools::report::{Flags, Report};
use drumfire_tools::{clock, host};

use super::game::{self, ACTIVE, CHANNELS};

/// Connections begun in a second: a server takes 2,000.
const RAMP_PER_SECOND: u64 = 1_500;

/// Files that are open for each player: its socket and what waits for it.
const FILES_EACH: u64 = 4;

/// The server says something within this time, and every message is heard.
const PATIENCE: Duration = Duration::from_secs(20);

/// Until what was heard last is acknowledged.
const LAST_ACKS_NS: u64 = 100_000_000;

const UPDATES_PER_SECOND: u64 = 40;

/// A tick that is later than this is later than the next one's time.
const LATE_US: f64 = 1_000.0;

pub(super) fn measure(extent: Extent, cores: Cores, results: &mut Results) -> Result<(), String> {
    let (players, rounds, counted) = match extent {
        Extent::Quick => (32, 1, Duration::from_millis(200)),
        Extent::Default => (300, 5, Duration::from_secs(1)),
        Extent::Full => (300, 5, Duration::from_secs(10)),
    };
    let files = u64::from(players) * FILES_EACH + 64;
    if host::raise_open_files(files).is_some_and(|limit| limit < files) {
        return Err("the system does not let so many sockets be open".to_owned());
    }
    println!(
        "  {players} players with a socket each, {CHANNELS} channels created, {ACTIVE} active, 40 updates/s, 1 kHz ticks, \
         {rounds} rounds of {counted:?}"
    );
    let name = format!("{players} players, {CHANNELS} created, {ACTIVE} active");
    let arm = Arm::new(name, move || round(cores, players, counted));
    let measured = interleave(vec![arm], 0, rounds, extent != Extent::Quick)?;
    results.rounds("players", &measured)?;
    measured.iter().for_each(|arm| figures(arm, results));
    Ok(())
}

fn figures(arm: &Measured, results: &mut Results) {
    let name = format!("{} on real sockets, 40 updates/s", arm.name);
    let note = |note: &'static str| if arm.is_busy { BUSY } else { note };
    let over_window = |seconds: f64, report: &Report| seconds / report.window_s * 100.0;
    let in_all = arm.spread(|report| Some(over_window(report.threads.first()?.cpu_s()?, report)));
    let in_program = arm.spread(|report| Some(over_window(report.threads.first()?.cpu_user_s?, report)));
    let p50 = arm.spread(|report| micros(report, |late| late.p50));
    let p99 = arm.spread(|report| micros(report, |late| late.p99));
    let shares = [("in all", in_all, "kernel and ciphers included"), ("in the program", in_program, "")];
    for (what, share, words) in shares {
        results.spread(
            format!("{name}: server's share of a core {what}"),
            share,
            "%",
            Goal::Shown,
            note(words),
        );
    }
    results.spread(format!("{name}: ticks late by, p50"), p50, "us", Goal::Shown, note(""));
    let words = "beyond 1 ms the next tick is due";
    results.spread(format!("{name}: ticks late by, p99"), p99, "us", Goal::AtMost(LATE_US), note(words));
}

/// A server, its players, and one window.
fn round(cores: Cores, players: u32, counted: Duration) -> Result<Report, String> {
    let dropped = DropWatch::begin();
    let server = game::start(cores.server, players, counted)?;
    let to = (server.address()?, game::key().public());
    let mut ears = Ears { crowd: Crowd::bind(players, players)?, heard: 0 };
    ears.connect(to, players)?;
    let window = Window::of_line(&ears.line(&server)?).ok_or("the server names no window")?;
    ears.look_until(window.start);
    let (before, steal) = (ears.heard, StealWatch::begin());
    let watches = [server.id(), std::process::id()].map(UsageWatch::begin);
    ears.look_until(window.end);
    let [Some(used), Some(here)] = watches.map(|watch| watch.used()) else {
        return Err("the processes' clocks cannot be read".to_owned());
    };
    let (within, steal_share) = (ears.heard - before, steal.share());
    let said = EchoCounts::of_line(&ears.line(&server)?).ok_or("what the server sent cannot be read")?;
    ears.hear(said.sent_in_all());
    let late = ears.heard - before - within;
    ears.end(server, &dropped)?;
    if said.refused > 0 {
        return Err(format!("{} messages found no room at the server", said.refused));
    }
    // What was sent before the window and heard in it counts as sent in it.
    let sent = said.sent_in_all().saturating_sub(before);
    let told = EchoCounts { early: before, out_at_start: 0, sent, echoed: within, late, ..said };
    let flags = Flags::from([
        ("players".to_owned(), players.into()),
        ("channels".to_owned(), u64::from(CHANNELS).into()),
        ("active".to_owned(), u64::from(ACTIVE).into()),
    ]);
    let rate = u64::from(players) * u64::from(ACTIVE) * UPDATES_PER_SECOND;
    let mut report = told.report(window, Some(rate), flags, Some(used.cpu_over(window.length())), &[]);
    report.latency_ns = told.delay;
    report.notes.push("latency is how late the server's ticks began".to_owned());
    report.run_delay_share =
        [used.run_delay_share(), here.run_delay_share()].into_iter().flatten().reduce(f64::max);
    report.steal_share = steal_share;
    Ok(report)
}

/// The players, and how many messages they heard.
struct Ears {
    crowd: Crowd,
    heard: u64,
}

impl Ears {
    fn connect(&mut self, to: (SocketAddr, ServerPublicKey), players: u32) -> Result<(), String> {
        let Self { crowd, heard } = self;
        let ramped = crowd.connect(to, players.into(), RAMP_PER_SECOND, |_, event| {
            *heard += u64::from(is_message(event));
        })?;
        match ramped.failed_count() {
            0 => Ok(()),
            _ => Err(format!("connects failed: {:?}", ramped.failed)),
        }
    }

    fn look(&mut self) {
        let Self { crowd, heard } = self;
        crowd.look(|_, event| *heard += u64::from(is_message(event)));
    }

    /// Looks until the host's clock shows this.
    fn look_until(&mut self, at: u64) {
        while clock::host_ns() < at {
            self.look();
        }
    }

    /// Looks until the server says its next line.
    fn line(&mut self, server: &Child) -> Result<String, String> {
        let deadline = clock::now() + PATIENCE;
        while clock::now() < deadline {
            self.look();
            if let Some(line) = server.line_within(Duration::ZERO)? {
                return Ok(line);
            }
        }
        Err(format!("the server has said nothing for {PATIENCE:?}"))
    }

    /// Looks until so many messages were heard, and acknowledged; what is missing then opens the books.
    fn hear(&mut self, sent: u64) {
        let deadline = clock::now() + PATIENCE;
        while self.heard < sent && clock::now() < deadline {
            self.look();
        }
        self.look_until(clock::host_ns() + LAST_ACKS_NS);
    }

    /// Ends the server and closes the books of datagrams, both ways.
    fn end(mut self, server: Child, dropped: &DropWatch) -> Result<(), String> {
        settle();
        let (sent, ended) = (self.crowd.carried().sent, self.crowd.ended());
        let players = self.crowd.peers().len() as u64;
        let served = server.finish_counts()?;
        settle();
        let (received, drops) = (self.crowd.drain(), dropped.count());
        close_books(sent, &served, drops)?;
        close_way_back(&served, received, players, drops.saturating_sub(missing(sent, &served)))?;
        if ended == 0 { Ok(()) } else { Err(format!("{ended} players were dropped")) }
    }
}

fn is_message(event: &ClientsEvent) -> bool {
    matches!(event, ClientsEvent::Message { .. })
}
