//! Players that each say something twenty times a second and hear it back.
//!
//! Ten share a socket, and take turns on it: packets of one at a time, so that no train mixes them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drumfire::{
    ChannelId, ClientConfig, Clients, ClientsEvent, PeerId, SendError, SendOptions, ServerPublicKey,
};
use drumfire_tools::clock;

use super::PATIENCE;

const PER_SOCKET: usize = 10;

/// Of each player.
pub(super) const MESSAGES_PER_SECOND: u32 = 20;

const MESSAGE_BYTES: usize = 32;

/// Arrivals are counted in steps of this.
pub(super) const STEP: Duration = Duration::from_millis(10);

/// What they said and heard.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// Connections that ended.
    pub(super) ended: u64,
    /// The steps in which turns were left out, because this thread had no core in time.
    pub(super) late: Vec<usize>,
    /// Messages that came, by step since the beginning.
    pub(super) arrivals: Vec<u32>,
}

/// All of them, on one thread.
pub(super) struct Players {
    sockets: Vec<(Clients, Vec<PeerId>)>,
    start: Instant,
    received: u64,
    tally: Tally,
}

impl Players {
    pub(super) fn connect(
        address: SocketAddr,
        key: ServerPublicKey,
        players: usize,
        start: Instant,
    ) -> Result<Self, String> {
        let mut all = Self { sockets: Vec::new(), start, received: 0, tally: Tally::default() };
        let deadline = clock::now() + 2 * PATIENCE;
        for _ in 0..players / PER_SOCKET {
            let config = ClientConfig::default();
            let connections = u32::try_from(PER_SOCKET).unwrap_or(u32::MAX);
            let clients = Clients::bind(([127, 0, 0, 1], 0).into(), connections, &config);
            let mut clients = clients.map_err(|error| error.to_string())?;
            for _ in 0..PER_SOCKET {
                clients.connect(address, key).map_err(|error| error.to_string())?;
            }
            let mut peers = Vec::new();
            while peers.len() < PER_SOCKET {
                if clock::now() > deadline {
                    return Err("not all players were connected in time".to_owned());
                }
                clients.wait(Duration::from_millis(1));
                for event in clients.poll() {
                    match event {
                        ClientsEvent::Connected { peer } => peers.push(peer),
                        other => return Err(format!("a player was not connected: {other:?}")),
                    }
                }
            }
            all.sockets.push((clients, peers));
        }
        Ok(all)
    }

    /// Plays until the flag is set, and until everything was answered or cannot be any more.
    pub(super) fn play(mut self, is_over: &AtomicBool) -> Result<Tally, String> {
        let turn = Duration::from_secs(1) / MESSAGES_PER_SECOND / u32::try_from(PER_SOCKET).unwrap_or(1);
        let mut next = clock::now();
        for number in (0..PER_SOCKET).cycle() {
            if is_over.load(Ordering::Acquire) {
                break;
            }
            self.say(number)?;
            self.listen();
            next += turn;
            let now = clock::now();
            clock::pause(next.saturating_duration_since(now));
            // Nobody says twice as much because nobody was there to say it.
            while next + turn < now {
                next += turn;
                self.tally.late.push(self.step());
            }
        }
        let deadline = clock::now() + PATIENCE;
        while self.received < self.tally.sent && clock::now() < deadline {
            self.listen();
            clock::pause(turn);
        }
        self.tally.lost = self.tally.sent - self.received;
        Ok(self.tally)
    }

    /// The present one.
    fn step(&self) -> usize {
        let step = clock::now().duration_since(self.start).as_nanos() / STEP.as_nanos();
        usize::try_from(step).unwrap_or(usize::MAX)
    }

    /// One of each socket says something.
    fn say(&mut self, number: usize) -> Result<(), String> {
        for (clients, peers) in &mut self.sockets {
            let Some(peer) = peers.get(number) else { continue };
            match clients.send(*peer, ChannelId(0), vec![7; MESSAGE_BYTES], SendOptions::reliable_ordered()) {
                Ok(_) => self.tally.sent += 1,
                // Counted as ended.
                Err(SendError::UnknownPeer | SendError::Closed) => {}
                Err(error) => return Err(format!("{error}: the machine is too busy")),
            }
        }
        Ok(())
    }

    /// Sends what was said, and counts what came.
    fn listen(&mut self) {
        let mut count = 0;
        for (clients, _) in &mut self.sockets {
            for event in clients.poll() {
                match event {
                    ClientsEvent::Message { .. } => count += 1,
                    ClientsEvent::Disconnected { .. } => self.tally.ended += 1,
                    _ => {}
                }
            }
        }
        self.received += u64::from(count);
        let at = self.step();
        let arrivals = &mut self.tally.arrivals;
        if arrivals.len() <= at {
            arrivals.resize(at + 1, 0);
        }
        arrivals[at] += count;
    }
}
