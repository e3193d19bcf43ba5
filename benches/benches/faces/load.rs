//! The load: messages of many connections that are to come back, sent at fixed times or each when the one before is back, and
//! the books of one window.

use std::collections::HashMap;
use std::time::Duration;

use drumfire::{ChannelId, Clients, ClientsEvent, PeerId, SendError};
use drumfire_benches::{Crowd, Out, Tally, Window};
use drumfire_tools::clock;

use crate::server::OPTIONS;

/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: usize = 128;

const CHANNEL: ChannelId = ChannelId(0);

/// The load runs for so long before it is counted.
const WARM_UP_NS: u64 = 250_000_000;

/// What is still out at the window's end has this long to come back.
const SETTLE: Duration = Duration::from_secs(1);

/// How often messages that have not come back are looked for.
const LOOK_NS: u64 = 50_000_000;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) connections: u32,
    /// Messages per second of all connections; `None` = each when the one before is back.
    pub(crate) rate: Option<u64>,
}

impl Load {
    pub(crate) const STEADY: Self = Self { connections: 64, rate: Some(40_000) };

    pub(crate) const FULL: Self = Self { connections: 500, rate: None };

    pub(crate) fn words(self) -> String {
        let Self { connections, rate } = self;
        let load = rate.map_or_else(
            || "one message each, closed loop".to_owned(),
            |rate| format!("{rate}/s in all, open loop"),
        );
        format!("{connections} connections, {load}, {MESSAGE_BYTES} B unreliable")
    }
}

/// The number of a message; nothing when it is none that was sent.
fn number_of(bytes: &[u8]) -> Option<u64> {
    (bytes.len() == MESSAGE_BYTES).then(|| bytes.first_chunk().map(|number| u64::from_be_bytes(*number)))?
}

/// All connections, and what is out on each.
pub(crate) struct Drive {
    crowd: Crowd,
    peers: Vec<(usize, PeerId)>,
    places: HashMap<(usize, PeerId), usize>,
    out: Vec<Out>,
    /// Connections on which something came in the last look.
    came: Vec<usize>,
    tally: Tally,
}

impl Drive {
    pub(crate) fn new(crowd: Crowd, counted: Duration) -> Self {
        let peers = crowd.peers().to_vec();
        let places = peers.iter().enumerate().map(|(place, peer)| (*peer, place)).collect();
        let out = peers.iter().map(|_| Out::default()).collect();
        let tally = Tally::new(Window::beginning_at(clock::host_ns() + WARM_UP_NS, counted));
        Self { crowd, peers, places, out, came: Vec::new(), tally }
    }

    /// Runs the load; `watch` is called when the window begins, and `used` when it ends.
    pub(crate) fn run<W, U>(
        mut self,
        load: Load,
        watch: impl FnOnce() -> W,
        used: impl FnOnce(&W) -> U,
    ) -> Result<(Tally, U), String> {
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
            self.look();
            if load.rate.is_none() {
                self.answer(now, &mut looked_at)?;
            }
            self.crowd.flush();
        }
        let used = watched.as_ref().map(used).ok_or("the window never began")?;
        self.settle();
        Ok((self.tally, used))
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
        let mut message = vec![0x6d; MESSAGE_BYTES];
        message[..8].copy_from_slice(&out[place].next().to_be_bytes());
        match clients.send(peer, CHANNEL, message, OPTIONS) {
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
