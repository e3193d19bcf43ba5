//! The server process of the part `players`: one thread with a thousand ticks per second at fixed times.
//!
//! It sends one message on each of 64 channels per player. Then it sends a reliable message on four of them in turn with every update.
//! It prints its address, the window, what it sent with the lateness of its ticks, and finally its counters. After the window it goes
//! on without updates until its input ends.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use drumfire::{ChannelId, Event, PeerId, SendOptions, Server, Workers};
use drumfire_benches::roles::{config, print_address};
use drumfire_benches::{Child, Tally, Window, counts_of, print_counts, print_line, stop_flag};
use drumfire_tools::clock;

use super::updates::UPDATE_TICKS;
use super::world::TICK;

/// The role of this server.
pub(super) const SERVER: &str = "game-server";

pub(super) const CHANNELS: u16 = 64;
pub(super) const ACTIVE: u16 = 4;

const TICK_NS: u64 = 1_000_000;

/// Ticks before the first update. Every channel was used and drained by then.
const QUIET_TICKS: u64 = 300;

/// Ticks before the window. It begins between two updates.
const WARM_UP_TICKS: u64 = QUIET_TICKS + 260;

/// Starts a server on this core for this number of players, with a window of this length.
pub(super) fn start(core: usize, players: u32, counted: Duration) -> Result<Child, String> {
    Child::role(SERVER, Some(core), &[&players.to_string(), &counted.as_millis().to_string()])
}

/// Runs the server. The arguments are the number of players and the length of the window in milliseconds.
pub(super) fn serve(args: &[&str]) -> Result<(), String> {
    let [players, millis] = args else { return Err("not the arguments of a game server".to_owned()) };
    let config = config("1", players)?.workers(Workers::Inline);
    let players: usize = players.parse().map_err(|_| "not a number of players".to_owned())?;
    let counted = Duration::from_millis(millis.parse().map_err(|_| "not a window".to_owned())?);
    let server = Server::bind(config).map_err(|error| error.to_string())?;
    print_address(server.local_addr())?;
    let is_over = stop_flag();
    let is_over = || is_over.load(Ordering::Acquire);
    let mut game = Game { server, peers: Vec::new(), tally: Tally::default() };
    game.wait(|game| game.peers.len() >= players || is_over());
    game.play(counted)?;
    game.wait(|_| is_over());
    print_counts(&counts_of(&game.server.stats())).map_err(|error| error.to_string())
}

struct Game {
    server: Server,
    peers: Vec<PeerId>,
    /// The messages sent, and the lateness of ticks.
    tally: Tally,
}

impl Game {
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
        print_line(&window.to_line()).map_err(|error| error.to_string())?;
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
        print_line(&self.tally.finish().to_line()).map_err(|error| error.to_string())
    }

    /// Handles the pending events.
    fn look(&mut self) {
        for event in self.server.poll() {
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
                let (bytes, options) = (Bytes::from_static(&[7; 16]), SendOptions::reliable_ordered());
                match server.send(*peer, ChannelId(channel), bytes, options) {
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
