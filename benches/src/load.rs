//! A load: messages of many connections that are to come back, sent at fixed times or each when the one before is back, and
//! the books of one window.
//!
//! What the server does with them, and who else plays, is the bench's own.

use std::collections::HashMap;
use std::time::Duration;

use drumfire::{ChannelId, Clients, ClientsEvent, PeerId, SendError, SendOptions};
use drumfire_tools::clock;

use crate::crowd::Crowd;
use crate::echoes::{Tally, Window};
use crate::out::Out;

const CHANNEL: ChannelId = ChannelId(0);

/// The load runs for so long before it is counted.
const WARM_UP_NS: u64 = 250_000_000;

/// What is still out at the window's end has this long to come back.
const SETTLE: Duration = Duration::from_secs(1);

/// How often messages that have not come back are looked for.
const LOOK_NS: u64 = 50_000_000;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Those that play.
    pub connections: u32,
    /// Messages per second of all connections; `None` = each when the one before is back.
    pub rate: Option<u64>,
}

impl Load {
    /// Bytes of a message.
    pub const MESSAGE_BYTES: usize = 128;

    /// How messages are sent, and are to be sent back.
    pub const OPTIONS: SendOptions = SendOptions::unreliable();

    /// What it is, for people.
    #[must_use]
    pub fn words(self) -> String {
        let Self { connections, rate } = self;
        let load = rate.map_or_else(
            || "one message each, closed loop".to_owned(),
            |rate| format!("{rate}/s in all, open loop"),
        );
        format!("{connections} connections, {load}, {} B unreliable", Self::MESSAGE_BYTES)
    }
}

/// The number of a message; nothing when it is none that was sent.
fn number_of(bytes: &[u8]) -> Option<u64> {
    (bytes.len() == Load::MESSAGE_BYTES)
        .then(|| bytes.first_chunk().map(|number| u64::from_be_bytes(*number)))?
}

/// All connections, and what is out on each.
#[derive(Debug)]
pub struct Drive {
    crowd: Crowd,
    peers: Vec<(usize, PeerId)>,
    places: HashMap<(usize, PeerId), usize>,
    out: Vec<Out>,
    /// Connections on which something came in the last look.
    came: Vec<usize>,
    tally: Tally,
}

impl Drive {
    /// Of all connections of the crowd; the window begins after a warm-up and is so long.
    #[must_use]
    pub fn new(crowd: Crowd, counted: Duration) -> Self {
        let peers = crowd.peers().to_vec();
        let places = peers.iter().enumerate().map(|(place, peer)| (*peer, place)).collect();
        let out = peers.iter().map(|_| Out::default()).collect();
        let tally = Tally::new(Window::beginning_at(clock::host_ns() + WARM_UP_NS, counted));
        Self { crowd, peers, places, out, came: Vec::new(), tally }
    }

    /// Runs the load; `beside` is called between two looks until the window ends, with the window and the host's clock, `watch`
    /// when the window begins, and `used` when it ends. The crowd comes back with its connections open.
    ///
    /// # Errors
    ///
    /// One line: what `beside` answered, or which connection takes nothing more.
    pub fn run<W, U>(
        mut self,
        load: Load,
        mut beside: impl FnMut(Window, u64) -> Result<(), String>,
        watch: impl FnOnce() -> W,
        used: impl FnOnce(&W) -> U,
    ) -> Result<(Crowd, Tally, U), String> {
        let begin = clock::host_ns();
        let (mut message, mut turn, mut looked_at) = (0_u64, 0_usize, begin);
        let mut watch = Some(watch);
        let mut watched = None;
        if load.rate.is_none() {
            (0..self.peers.len()).try_for_each(|place| self.send(place, begin))?;
        }
        loop {
            let now = clock::host_ns();
            if now >= self.tally.window.start
                && let Some(watch) = watch.take()
            {
                watched = Some(watch());
            }
            if now >= self.tally.window.end {
                break;
            }
            if let Some(rate) = load.rate {
                while begin + message * 1_000_000_000 / rate <= now {
                    let due = begin + message * 1_000_000_000 / rate;
                    self.tally.on_departure(now, now - due);
                    self.send(turn, due)?;
                    turn = (turn + 1) % self.peers.len();
                    message += 1;
                }
            }
            beside(self.tally.window, now)?;
            self.look();
            if load.rate.is_none() {
                self.answer(now, &mut looked_at)?;
            }
            self.crowd.flush();
        }
        let used = watched.as_ref().map(used).ok_or("the window never began")?;
        self.settle();
        Ok((self.crowd, self.tally, used))
    }

    /// Sends the next message of all that have nothing out.
    fn answer(&mut self, now: u64, looked_at: &mut u64) -> Result<(), String> {
        if now.saturating_sub(*looked_at) >= LOOK_NS {
            *looked_at = now;
            let late = self.out.iter().enumerate().filter(|(_, out)| out.awaited(now, true) == 0);
            self.came.extend(late.map(|(place, _)| place));
        }
        while let Some(place) = self.came.pop() {
            if self.out[place].awaited(now, true) == 0 {
                self.send(place, now)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, place: usize, due: u64) -> Result<(), String> {
        let Self { crowd, peers, out, tally, .. } = self;
        let (socket, peer) = peers[place];
        let clients: &mut Clients = crowd.socket(socket).ok_or("no such socket")?;
        let mut message = vec![0x6d; Load::MESSAGE_BYTES];
        message[..8].copy_from_slice(&out[place].next().to_be_bytes());
        match clients.send(peer, CHANNEL, message, Load::OPTIONS) {
            Ok(_) => {
                out[place].sent(due);
                tally.on_sent(clock::host_ns());
                Ok(())
            }
            Err(SendError::Full) => {
                tally.counts.refused += 1;
                Ok(())
            }
            Err(error) => Err(format!("a connection: {error}")),
        }
    }

    /// Takes in what came.
    fn look(&mut self) {
        let Self { crowd, places, out, came, tally, .. } = self;
        crowd.look(|socket, event| {
            let ClientsEvent::Message { peer, bytes, .. } = event else { return };
            let known = places
                .get(&(socket, *peer))
                .and_then(|place| out[*place].take(number_of(bytes)?).map(|due| (*place, due)));
            let Some((place, due)) = known else {
                tally.counts.strangers += 1;
                return;
            };
            came.push(place);
            let now = clock::host_ns();
            tally.on_echo(now, now.saturating_sub(due));
        });
    }

    /// Waits for what is still out.
    fn settle(&mut self) {
        let deadline = clock::now() + SETTLE;
        while self.out.iter().any(|out| !out.is_empty()) && clock::now() < deadline {
            self.look();
            self.crowd.flush();
        }
        self.tally.counts.lost = self.out.iter().map(Out::count).sum();
    }
}
