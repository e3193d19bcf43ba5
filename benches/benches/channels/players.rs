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
use drumfire_benches::{
    Arm, Bench, Child, ClientPool, ClientSettings, Cores, Counts, Goal, InputLines, Outcome, Tally, Values,
    Window, WindowWatch, arguments, close_server, count, counts_of, interleave, named_counts, print_json,
    raise_open_files,
};
use drumfire_tools::clock;
use drumfire_tools::host;
use drumfire_tools::report::{Accounting, Latency, Report, ThreadReport};

use super::ticks::{ACTIVE, CHANNELS, UPDATE_TICKS};
use super::world::TICK;

/// Open files per player: its socket and the files that wait for it.
const FILES_EACH: u64 = 4;

/// The time after the window in which all messages arrive and are acknowledged.
const SETTLED_WITHIN: Duration = Duration::from_millis(500);

const MESSAGE_BYTES: usize = 16;

/// A tick that is later than this begins after the next one is due.
const LATE_US: f64 = 1_000.0;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
    let (players, counted) = bench.extent().pick((32, millis(200)), (300, seconds(1)), (300, seconds(10)));
    let cores = bench.pin_load()?;
    raise_open_files(u64::from(players) * FILES_EACH + 64)?;
    let name =
        format!("{players} players, {CHANNELS} created, {ACTIVE} active on real sockets, 40 updates/s");
    let arm = Arm::new(name, move || round(cores, players, counted));
    let measured = interleave(vec![arm], bench.plan())?;
    bench.results.rounds("players", &measured)?;
    for arm in &measured {
        let (core, late) = (arm.core_percent(), arm.micros(|late| late.p99));
        let name = |what| format!("{}: {what}", arm.name);
        let note = arm.busy_or("kernel and ciphers included");
        bench.results.spread(name("server's share of a core in all"), core, "%", Goal::Shown, note);
        let note = arm.busy_or("beyond 1 ms the next tick is due");
        bench.results.spread(name("ticks late by, p99"), late, "us", Goal::AtMost(LATE_US), note);
    }
    Ok(())
}

/// Runs a server and its players for one window.
fn round(cores: Cores, players: u32, counted: Duration) -> Result<Outcome, String> {
    let (server, to) = Child::server(SERVER, Some(cores.server), &(players, counted))?;
    let mut pool = ClientPool::bind(ClientSettings::new(to), players, players)?;
    pool.connect_all(players)?;
    let window: Window = server.read()?;
    let mut watch = WindowWatch::new(server.id(), std::process::id(), window.start);
    poll_until(&mut pool, window.start);
    watch.poll(window.start);
    let before = pool.messages();
    poll_until(&mut pool, window.end);
    let (within, usage) = (pool.messages() - before, watch.finish()?);
    let settled = Window::beginning_at(window.end, SETTLED_WITHIN).end;
    poll_until(&mut pool, settled);
    let late: Option<Latency> = server.read()?;
    let ended = pool.ended();
    let served = close_server(server, &mut [&mut pool])?;
    let [sent, refused] = ["sent", "refused"].map(|name| count(&served, name));
    let outstanding = pool.messages() - before - within;
    if (ended, refused, sent) != (0, 0, pool.messages()) {
        return Err(format!(
            "{ended} players were dropped, {refused} messages found no room, {} of {sent} arrived",
            pool.messages()
        ));
    }
    let thread = ThreadReport { received: within, ..ThreadReport::default() };
    let report = Report {
        machine: host::machine(),
        window_s: counted.as_secs_f64(),
        // A message that was sent before the window and arrived in it counts as sent in it.
        books: Accounting::new(sent - before, within).dropped("outstanding", outstanding),
        threads: vec![thread.with_cpu(Some(usage.server.cpu_over(counted)))],
        // The latency is how late the server's ticks began.
        latency_ns: late,
        ..Report::default()
    };
    let mut report = report.derived();
    usage.note_in(&mut report, [true; 2]);
    Ok((report, Values::new()))
}

/// Polls the players until this time of the host's clock.
fn poll_until(pool: &mut ClientPool, at: u64) {
    while clock::host_ns() < at {
        pool.poll(|_, _| {});
    }
}

/// The role of the game server: one thread with a thousand ticks per second at fixed times.
///
/// It sends one message on each of 64 channels per player. Then it sends a reliable message on four of them in turn with every update.
/// It prints its address, the window, the lateness of its ticks, and finally its counters with those of its messages. After the window it
/// goes on without updates until its input ends.
pub(super) const SERVER: &str = "game-server";

const TICK_NS: u64 = 1_000_000;

/// Ticks before the first update. Every channel was used and drained by then.
const QUIET_TICKS: u64 = 300;

/// Ticks before the window. It begins between two updates.
const WARM_UP_TICKS: u64 = QUIET_TICKS + 260;

/// Runs the server. The arguments are the number of players and the length of the window.
pub(super) fn serve(args: &str) -> Result<Counts, String> {
    let (players, counted): (u32, Duration) = arguments(args)?;
    let config = config(1, players).workers(Workers::Inline);
    let mut server = Server::bind(config).map_err(|error| error.to_string())?;
    print_address(server.local_addr())?;
    let (input, mut peers) = (InputLines::read(), Vec::new());
    let (mut sent, mut refused) = (0, 0);
    while peers.len() < players as usize && !input.has_ended() {
        clock::pause(TICK);
        poll_server(&mut server, &mut peers);
    }
    let begin = clock::host_ns();
    let window = Window::beginning_at(begin + WARM_UP_TICKS * TICK_NS, counted);
    let mut lateness = Tally::new(window);
    print_json(&window)?;
    // A tick that takes too long makes the next ones late. No tick is left out.
    for tick in 0.. {
        let due = begin + tick * TICK_NS;
        if due >= window.end {
            break;
        }
        clock::pause(Duration::from_nanos(due.saturating_sub(clock::host_ns())));
        lateness.on_departure(due, clock::host_ns().saturating_sub(due));
        poll_server(&mut server, &mut peers);
        for (peer, channel) in peers.iter().flat_map(|peer| channels_of(tick).map(move |at| (*peer, at))) {
            let message = Message::reliable_ordered(ChannelId(channel), &[7; MESSAGE_BYTES][..]);
            *(if server.send(peer, message).is_ok() { &mut sent } else { &mut refused }) += 1;
        }
        server.flush();
    }
    print_json(&lateness.finish().delay)?;
    while !input.has_ended() {
        clock::pause(TICK);
        poll_server(&mut server, &mut peers);
    }
    let control = server.control();
    let mut counts = counts_of(&end(server, &control));
    counts.extend(named_counts([("sent", sent), ("refused", refused)]));
    Ok(counts)
}

/// Handles the pending events, and sends what they caused.
fn poll_server(server: &mut Server, peers: &mut Vec<PeerId>) {
    server.poll(Duration::ZERO);
    while let Some(event) = server.next_event() {
        if let Event::Connected { peer, .. } = event {
            peers.push(peer);
        }
    }
    server.flush();
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
