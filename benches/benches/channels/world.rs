//! A server and its clients, tick by tick, over a link with a delay and losses each way. Only the server's time is measured.
//!
//! Losses come from a seed, so a world repeats exactly. The parts choose the messages.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use drumfire_benches::memory::{Datagrams, Group, client_address, server_address, take_messages};
use drumfire_benches::split_mix;
use drumfire_proto::{ChannelId, Config, Message};
use drumfire_tools::clock;

/// The time between two ticks.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// The seed of the losses.
pub(super) const SEED: u64 = 7;

/// The content of a message.
const PAYLOAD: &[u8] = &[7; 16];

/// Ticks within which all messages must arrive.
const DRAIN_TICKS: u32 = 30_000;

/// The delay and the losses of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// The delay each way in ticks, at least 1.
    delay_ticks: usize,
    /// Datagrams lost each way, per thousand.
    lost_per_mille: u64,
}

/// A path without losses, for parts that measure time or memory alone.
pub(super) const SHORT: Path = Path { delay_ticks: 2, lost_per_mille: 0 };

/// The path of players on the internet.
pub(super) const LOSSY: Path = Path { delay_ticks: 20, lost_per_mille: 10 };

/// A server, a client with all connections, and the link between them.
pub(super) struct World {
    group: Group,
    path: Path,
    seed: u64,
    /// The datagrams on their way to the client and to the server, by tick. Datagrams that leave reuse the memory of those that arrived in
    /// the same tick, so none is allocated in the measured time.
    down: VecDeque<Datagrams>,
    up: VecDeque<Datagrams>,
    sent: u64,
    delivered: u64,
}

impl World {
    pub(super) fn new(peers: u32, path: Path) -> Result<Self, String> {
        let empty = || (0..path.delay_ticks).map(|_| Datagrams::default()).collect();
        let mut world = Self {
            group: Group::connect(peers, &Config::default().has_aes_gcm(true))?,
            path,
            seed: SEED,
            down: empty(),
            up: empty(),
            sent: 0,
            delivered: 0,
        };
        world.drain()?;
        Ok(world)
    }

    /// Sends a message on each of this number of channels of every connection, one per tick, and waits for the acks.
    pub(super) fn create(&mut self, channels: u16) -> Result<(), String> {
        for channel in 0..channels {
            self.tick(channel..channel + 1);
        }
        self.drain()
    }

    /// Runs one tick: due datagrams arrive, the server sends a reliable message on each of these channels of every connection, and the
    /// client replies. Returns the server's time.
    pub(super) fn tick(&mut self, channels: Range<u16>) -> Duration {
        self.group.pass(TICK);
        let mut datagrams = self.up.pop_front().unwrap_or_default();
        let Group { server, client, links, now, .. } = &mut self.group;
        let start = clock::now();
        server.handle_datagrams(*now, datagrams.inbound(client_address()));
        server.handle_timeout(*now);
        while server.poll_event().is_some() {}
        for link in &*links {
            for channel in channels.clone().map(ChannelId) {
                let sent = server.send(*now, link.client, Message::reliable_ordered(channel, PAYLOAD));
                sent.expect("room for a message");
                self.sent += 1;
            }
        }
        datagrams.clear();
        datagrams.take_all_from(server, *now);
        let took = start.elapsed();

        self.down.push_back(datagrams);
        let mut datagrams = self.down.pop_front().unwrap_or_default();
        lose(&mut datagrams, &mut self.seed, self.path);
        client.handle_datagrams(*now, datagrams.inbound(server_address()));
        client.handle_timeout(*now);
        self.delivered += take_messages(client);
        datagrams.clear();
        datagrams.take_all_from(client, *now);
        lose(&mut datagrams, &mut self.seed, self.path);
        self.up.push_back(datagrams);
        took
    }

    /// Runs ticks without messages.
    pub(super) fn be_silent(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.tick(0..0);
        }
    }

    /// Runs ticks until every message was delivered and acknowledged.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        for _ in 0..DRAIN_TICKS {
            self.be_silent(1);
            let Group { server, links, now, .. } = &mut self.group;
            let mut stats = links.iter().map(|link| server.peer_stats(*now, link.client));
            let is_acked = stats.all(|stats| stats.is_some_and(|stats| stats.in_flight_bytes == 0));
            if is_acked && self.delivered == self.sent {
                return Ok(());
            }
        }
        // More messages were delivered than sent when one was delivered twice.
        Err(format!("{} of {} messages were delivered", self.delivered, self.sent))
    }
}

/// Removes the datagrams that are lost.
fn lose(datagrams: &mut Datagrams, seed: &mut u64, path: Path) {
    datagrams.retain(|| path.lost_per_mille == 0 || split_mix(seed) % 1_000 >= path.lost_per_mille);
}
