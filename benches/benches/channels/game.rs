//! The server's process of the part `players`: one thread that looks at its connections a thousand times per second, at fixed
//! times, uses 64 channels of each once, and then sends a reliable message on four of them in turn with every update.
//!
//! It says where it is, when the window is, what it sent and how late its ticks were, and at last what it counted. After the window
//! it goes on without updates until its input ends.

use std::ffi::OsString;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use drumfire::{
    Access, AdmissionConfig, ChannelId, Event, PeerId, SendOptions, Server, ServerConfig, ServerKey, Workers,
};
use drumfire_benches::{
    Child, RECEIVE_BUFFER_BYTES, Tally, Window, counts_of, pin_to, print_counts, print_line, stop_flag,
};
use drumfire_tools::clock;

use super::updates::UPDATE_TICKS;
use super::world::TICK;

/// The first argument of the server's process.
const MODE: &str = "--channels-server";

pub(super) const CHANNELS: u16 = 64;
pub(super) const ACTIVE: u16 = 4;

const TICK_NS: u64 = 1_000_000;

/// Ticks before the first update: every channel is used and drained by then.
const QUIET_TICKS: u64 = 300;

/// Ticks before the window, which begins between two updates.
const WARM_UP_TICKS: u64 = QUIET_TICKS + 260;

/// The server's key, which stands here for everybody to read.
pub(super) fn key() -> ServerKey {
    ServerKey::from_bytes([0xc4; 32])
}

/// Starts a server on this core for so many players, with a window of this length.
pub(super) fn start(core: usize, players: u32, counted: Duration) -> Result<Child, String> {
    let numbers = [core.to_string(), players.to_string(), counted.as_millis().to_string()];
    let [core, players, millis] = &numbers;
    Child::start("the server", &[MODE, core, players, millis])
}

/// Runs the server's process, if the arguments ask for it.
pub(super) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [MODE, core, players, millis] = args.as_slice() else { return None };
    let players = players.parse::<u32>().ok()?;
    let counted = Duration::from_millis(millis.parse::<u64>().ok()?);
    Some(pin_to(core).and_then(|()| run(players, counted)))
}

fn run(players: u32, counted: Duration) -> Result<(), String> {
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Inline)
        .connections(players)
        // A bench that fills its server on purpose: it takes all whom it has room for, however busy it is.
        .admission(AdmissionConfig::default().busy_max_percent(100))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let server = Server::bind(config).map_err(|error| error.to_string())?;
    print_line(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
    let is_over = stop_flag();
    let is_over = || is_over.load(Ordering::Acquire);
    let mut game = Game { server, peers: Vec::new(), tally: Tally::default() };
    game.wait(|game| game.peers.len() >= players as usize || is_over());
    game.play(counted)?;
    game.wait(|_| is_over());
    print_counts(&counts_of(&game.server.stats())).map_err(|error| error.to_string())
}

struct Game {
    server: Server,
    peers: Vec<PeerId>,
    /// What was sent, and how late ticks were.
    tally: Tally,
}

impl Game {
    /// Ticks without a word until this is so.
    fn wait(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            clock::pause(TICK);
            self.look();
            self.server.flush();
        }
    }

    /// Plays to the window's end, and says when the window is and what came of it.
    fn play(&mut self, counted: Duration) -> Result<(), String> {
        let begin = clock::host_ns();
        let window = Window::beginning_at(begin + WARM_UP_TICKS * TICK_NS, counted);
        self.tally = Tally::new(window);
        print_line(&window.to_line()).map_err(|error| error.to_string())?;
        // A tick that took too long makes the next ones late, and none is left out.
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
        print_line(&self.tally.finish().to_line()).map_err(|error| error.to_string())
    }

    /// Takes in what came.
    fn look(&mut self) {
        for event in self.server.poll() {
            if let Event::Connected { peer, .. } = event {
                self.peers.push(peer);
            }
        }
    }

    /// Sends a message on each of these channels to everybody.
    fn send(&mut self, now: u64, channels: Range<u16>) {
        let Self { server, peers, tally } = self;
        for peer in peers {
            for channel in channels.clone() {
                let (bytes, options) = (Bytes::from_static(&[7; 16]), SendOptions::reliable_ordered());
                match server.send(*peer, ChannelId(channel), bytes, options) {
                    Ok(_) => tally.on_sent(now),
                    Err(_) => tally.counts.refused += 1,
                }
            }
        }
    }
}

/// On which channels everybody gets a message in this tick.
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
