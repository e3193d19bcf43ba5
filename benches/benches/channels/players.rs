//! 300 players over loopback: a server process on one core, and on another core this process with a socket per player.
//!
//! Each player has 64 channels that were used. Four of them in turn get a message with every update, 40 times per second. The server's
//! share of a core is that of its process as the kernel counts it, with system calls, the loopback's way to the players' sockets, and
//! ciphers. The lateness of a tick is the time by which it begins too late. No datagram is lost on purpose, unlike in `updates`. The
//! books of messages and of datagrams close, or the part fails.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::{ClientsEvent, ServerPublicKey};
use drumfire_benches::roles::key;
use drumfire_benches::{
    Arm, BUSY, Bench, Child, Cores, Crowd, DropWatch, EchoCounts, Extent, Goal, Measured, Results,
    StealWatch, UsageWatch, Window, close_books, close_way_back, interleave, micros, missing, settle,
    usage_of,
};
use drumfire_tools::report::{Flags, Report};
use drumfire_tools::{clock, host};

use super::game::{self, ACTIVE, CHANNELS};

/// Connections begun per second. A server accepts 2,000.
const RAMP_PER_SECOND: u64 = 1_500;

/// Open files per player: its socket and the files that wait for it.
const FILES_EACH: u64 = 4;

/// The time within which the server prints a line, and every message arrives.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time until the last messages are acknowledged.
const LAST_ACKS_NS: u64 = 100_000_000;

const UPDATES_PER_SECOND: u64 = 40;

/// A tick that is later than this begins after the next one is due.
const LATE_US: f64 = 1_000.0;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
    let (players, rounds, counted) =
        bench.extent().pick((32, 1, millis(200)), (300, 5, seconds(1)), (300, 5, seconds(10)));
    let cores = bench.pin_load()?;
    let files = u64::from(players) * FILES_EACH + 64;
    if host::raise_open_files(files).is_some_and(|limit| limit < files) {
        return Err(format!("the system does not permit {files} open files"));
    }
    println!(
        "  {players} players with a socket each, {CHANNELS} channels created, {ACTIVE} active, 40 updates/s, 1 kHz ticks, \
         {rounds} rounds of {counted:?}"
    );
    let name = format!("{players} players, {CHANNELS} created, {ACTIVE} active");
    let arm = Arm::new(name, move || round(cores, players, counted));
    let measured = interleave(vec![arm], 0, rounds, bench.extent() != Extent::Quick)?;
    bench.results.rounds("players", &measured)?;
    measured.iter().for_each(|arm| figures(arm, &mut bench.results));
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

/// Runs a server and its players for one window.
fn round(cores: Cores, players: u32, counted: Duration) -> Result<Report, String> {
    let dropped = DropWatch::begin();
    let server = game::start(cores.server, players, counted)?;
    let to = (server.address()?, key().public());
    let mut clients = Players { crowd: Crowd::bind(players, players)?, heard: 0 };
    clients.connect(to, players)?;
    let window = Window::of_line(&clients.line(&server)?).ok_or("the server printed no window")?;
    clients.look_until(window.start);
    let (before, steal) = (clients.heard, StealWatch::begin());
    let watches = [server.id(), std::process::id()].map(UsageWatch::begin);
    clients.look_until(window.end);
    let [used, here] = usage_of(watches)?;
    let (within, steal_share) = (clients.heard - before, steal.share());
    let said = EchoCounts::of_line(&clients.line(&server)?).ok_or("what the server sent cannot be read")?;
    clients.receive(said.sent_in_all());
    let late = clients.heard - before - within;
    clients.end(server, &dropped)?;
    if said.refused > 0 {
        return Err(format!("{} messages found no room at the server", said.refused));
    }
    // A message that was sent before the window and arrived in it counts as sent in it.
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

/// The players, and the number of messages that arrived.
struct Players {
    crowd: Crowd,
    heard: u64,
}

impl Players {
    fn connect(&mut self, to: (SocketAddr, ServerPublicKey), players: u32) -> Result<(), String> {
        let Self { crowd, heard } = self;
        let ramped = crowd.connect(to, players.into(), RAMP_PER_SECOND, |_, event| {
            *heard += u64::from(is_message(event));
        })?;
        ramped.check()
    }

    fn look(&mut self) {
        let Self { crowd, heard } = self;
        crowd.look(|_, event| *heard += u64::from(is_message(event)));
    }

    /// Polls until this time of the host's clock.
    fn look_until(&mut self, at: u64) {
        while clock::host_ns() < at {
            self.look();
        }
    }

    /// Polls until the server prints its next line.
    fn line(&mut self, server: &Child) -> Result<String, String> {
        let deadline = clock::now() + PATIENCE;
        while clock::now() < deadline {
            self.look();
            if let Some(line) = server.line_within(Duration::ZERO)? {
                return Ok(line);
            }
        }
        Err(format!("the server printed nothing for {PATIENCE:?}"))
    }

    /// Polls until this number of messages arrived and was acknowledged. Missing messages open the books.
    fn receive(&mut self, sent: u64) {
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
