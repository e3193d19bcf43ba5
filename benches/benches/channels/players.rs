//! 300 players over loopback: a server process on one core, and on another core this process with a socket per player.
//!
//! Each player has 64 channels that were used. Four of them in turn get a message with every update, 40 times per second. The server's
//! share of a core is that of its process as the kernel counts it, with system calls, the loopback's way to the players' sockets, and
//! ciphers. The lateness of a tick is the time by which it begins too late. No datagram is lost on purpose, unlike in `updates`. The
//! books of messages and of datagrams close, or the part fails.

use std::ops::Range;
use std::time::Duration;

use drumfire::{ChannelId, Event, Message, PeerId, Server, Workers};
use drumfire_benches::roles::{config, end, print_address};
use drumfire_benches::traffic::{Shape, Traffic};
use drumfire_benches::{
    Arm, Bench, Child, Cores, Counts, Crowd, EchoCounts, EchoRound, Extent, Goal, Joining, Measured, Orders,
    Outcome, Plan, Results, Tally, Values, Window, WindowWatch, close_server, counts_of, interleave,
    print_json, raise_open_files,
};
use drumfire_tools::clock;
use drumfire_tools::report::Report;
use serde::de::DeserializeOwned;

use super::ticks::{ACTIVE, CHANNELS, UPDATE_TICKS};
use super::world::TICK;

/// Connections begun per second. A server accepts 2,000.
const RAMP_PER_SECOND: u64 = 1_500;

/// Open files per player: its socket and the files that wait for it.
const FILES_EACH: u64 = 4;

/// The time within which the server prints a line, and every message arrives.
const ARRIVED_WITHIN: Duration = Duration::from_secs(20);

/// The time until the last messages are acknowledged.
const LAST_ACKS_NS: u64 = 100_000_000;

const UPDATES_PER_SECOND: u64 = 40;

const MESSAGE_BYTES: usize = 16;

/// A tick that is later than this begins after the next one is due.
const LATE_US: f64 = 1_000.0;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
    let (players, rounds, counted) =
        bench.extent().pick((32, 1, millis(200)), (300, 5, seconds(1)), (300, 5, seconds(10)));
    let cores = bench.pin_load()?;
    raise_open_files(u64::from(players) * FILES_EACH + 64)?;
    let name = format!("{players} players, {CHANNELS} created, {ACTIVE} active");
    let arm = Arm::new(name, move || round(cores, players, counted));
    let plan = Plan { warm_up: 0, rounds, may_void: bench.extent() != Extent::Quick };
    let measured = interleave(vec![arm], plan)?;
    bench.results.rounds("players", &measured)?;
    measured.iter().for_each(|arm| figures(arm, &mut bench.results));
    Ok(())
}

fn figures(arm: &Measured, results: &mut Results) {
    let name = format!("{} on real sockets, 40 updates/s", arm.name);
    let in_program = |report: &Report| Some(report.threads.first()?.cpu_user_s? / report.window_s * 100.0);
    let name_of = |what: &str| format!("{name}: server's share of a core {what}");
    let note = arm.busy_or("kernel and ciphers included");
    results.spread(name_of("in all"), arm.core_percent(), "%", Goal::Shown, note);
    results.spread(name_of("in the program"), arm.spread(in_program), "%", Goal::Shown, arm.busy_or(""));
    let (p99, note) = (arm.micros(|late| late.p99), arm.busy_or("beyond 1 ms the next tick is due"));
    results.spread(format!("{name}: ticks late by, p99"), p99, "us", Goal::AtMost(LATE_US), note);
}

/// Runs a server and its players for one window.
fn round(cores: Cores, players: u32, counted: Duration) -> Result<Outcome, String> {
    let args = [players.to_string(), counted.as_millis().to_string()];
    let (server, to) = Child::server(SERVER, Some(cores.server), &args.each_ref().map(String::as_str))?;
    let mut crowd = Crowd::bind(Joining::new(to), players, players)?;
    crowd.connect(players.into(), RAMP_PER_SECOND, |_, _| {})?.check()?;
    let window: Window = next_value(&mut crowd, &server)?;
    poll_until(&mut crowd, window.start);
    let before = crowd.messages();
    let mut watch = WindowWatch::new(server.id(), std::process::id(), window.start);
    watch.poll(window.start);
    poll_until(&mut crowd, window.end);
    let (within, usage) = (crowd.messages() - before, watch.finish()?);
    let said: EchoCounts = next_value(&mut crowd, &server)?;
    // Missing messages open the books.
    let deadline = clock::now() + ARRIVED_WITHIN;
    while crowd.messages() < said.sent_in_all() && clock::now() < deadline {
        crowd.look(|_, _| {});
    }
    poll_until(&mut crowd, clock::host_ns() + LAST_ACKS_NS);
    let late = crowd.messages() - before - within;
    let ended = crowd.ended();
    close_server(server, &mut [&mut crowd])?;
    if ended > 0 {
        return Err(format!("{ended} players were dropped"));
    }
    if said.refused > 0 {
        return Err(format!("{} messages found no room at the server", said.refused));
    }
    // A message that was sent before the window and arrived in it counts as sent in it.
    let sent = said.sent_in_all().saturating_sub(before);
    let counts = EchoCounts { early: before, out_at_start: 0, sent, echoed: within, late, ..said };
    // The schedule is that of the server, so the clients never limit it.
    let traffic = Traffic::echo(Shape::Idle, players as usize, MESSAGE_BYTES);
    let rate = Some(u64::from(players) * u64::from(ACTIVE) * UPDATES_PER_SECOND);
    let round = EchoRound { traffic, rate, window, counts, turns: None, usage };
    let mut report = round.report([true; 2], &[])?;
    // The latency is how late the server's ticks began.
    report.latency_ns = round.counts.delay;
    Ok((report, Values::new()))
}

/// Polls the players until this time of the host's clock.
fn poll_until(crowd: &mut Crowd, at: u64) {
    while clock::host_ns() < at {
        crowd.look(|_, _| {});
    }
}

/// Polls the players until the server prints its next value.
fn next_value<T: DeserializeOwned>(crowd: &mut Crowd, server: &Child) -> Result<T, String> {
    let deadline = clock::now() + ARRIVED_WITHIN;
    while clock::now() < deadline {
        crowd.look(|_, _| {});
        if let Some(value) = server.read_within(Duration::ZERO)? {
            return Ok(value);
        }
    }
    Err(format!("the server printed nothing for {ARRIVED_WITHIN:?}"))
}

/// The role of the game server: one thread with a thousand ticks per second at fixed times.
///
/// It sends one message on each of 64 channels per player. Then it sends a reliable message on four of them in turn with every update.
/// It prints its address, the window, what it sent with the lateness of its ticks, and finally its counters. After the window it goes
/// on without updates until its input ends.
pub(super) const SERVER: &str = "game-server";

const TICK_NS: u64 = 1_000_000;

/// Ticks before the first update. Every channel was used and drained by then.
const QUIET_TICKS: u64 = 300;

/// Ticks before the window. It begins between two updates.
const WARM_UP_TICKS: u64 = QUIET_TICKS + 260;

/// Runs the server. The arguments are the number of players and the length of the window in milliseconds.
pub(super) fn serve(args: &[&str]) -> Result<Counts, String> {
    let [players, millis] = args else { return Err("not the arguments of a game server".to_owned()) };
    let config = config("1", players)?.workers(Workers::Inline);
    let players: usize = players.parse().map_err(|_| "not a number of players".to_owned())?;
    let counted = Duration::from_millis(millis.parse().map_err(|_| "not a window".to_owned())?);
    let server = Server::bind(config).map_err(|error| error.to_string())?;
    print_address(server.local_addr())?;
    let orders = Orders::read();
    let mut game = GameServer { server, peers: Vec::new(), tally: Tally::default() };
    game.wait(|game| game.peers.len() >= players || orders.are_over());
    game.play(counted)?;
    game.wait(|_| orders.are_over());
    let control = game.server.control();
    Ok(counts_of(&end(game.server, &control)))
}

struct GameServer {
    server: Server,
    peers: Vec<PeerId>,
    /// The messages sent, and the lateness of ticks.
    tally: Tally,
}

impl GameServer {
    /// Runs ticks without messages until the condition holds.
    fn wait(&mut self, is_done: impl Fn(&Self) -> bool) {
        while !is_done(self) {
            clock::pause(TICK);
            self.look();
            self.server.flush();
        }
    }

    /// Runs ticks until the window ends. Prints the window and what was sent.
    fn play(&mut self, counted: Duration) -> Result<(), String> {
        let begin = clock::host_ns();
        let window = Window::beginning_at(begin + WARM_UP_TICKS * TICK_NS, counted);
        self.tally = Tally::new(window);
        print_json(&window)?;
        // A tick that takes too long makes the next ones late. No tick is left out.
        for tick in 0.. {
            let due = begin + tick * TICK_NS;
            if due >= window.end {
                break;
            }
            clock::pause(Duration::from_nanos(due.saturating_sub(clock::host_ns())));
            let now = clock::host_ns();
            self.tally.on_departure(due, now.saturating_sub(due));
            self.look();
            self.send(now, channels_of(tick));
            self.server.flush();
        }
        print_json(&self.tally.finish())
    }

    /// Handles the pending events.
    fn look(&mut self) {
        self.server.poll(Duration::ZERO);
        while let Some(event) = self.server.next_event() {
            if let Event::Connected { peer, .. } = event {
                self.peers.push(peer);
            }
        }
    }

    /// Sends a message on each of these channels to every player.
    fn send(&mut self, now: u64, channels: Range<u16>) {
        let Self { server, peers, tally } = self;
        for peer in peers {
            for channel in channels.clone() {
                match server
                    .send(*peer, Message::reliable_ordered(ChannelId(channel), &[7; MESSAGE_BYTES][..]))
                {
                    Ok(_) => tally.on_sent(now),
                    Err(_) => tally.counts.refused += 1,
                }
            }
        }
    }
}

/// The channels on which every player gets a message in this tick.
fn channels_of(tick: u64) -> Range<u16> {
    let place = |number: u64| u16::try_from(number % u64::from(CHANNELS)).unwrap_or(0);
    if tick < u64::from(CHANNELS) {
        place(tick)..place(tick) + 1
    } else if tick >= QUIET_TICKS && tick.is_multiple_of(UPDATE_TICKS) {
        let first = place(tick / UPDATE_TICKS * u64::from(ACTIVE));
        first..first + ACTIVE
    } else {
        0..0
    }
}
