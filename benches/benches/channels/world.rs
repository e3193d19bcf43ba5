//! A server and its clients, tick by tick, over a link with a delay and losses each way. Only the server's time is measured.
//!
//! Losses come from a seed, so a world repeats exactly. The parts choose the messages.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
pub(super) use drumfire_benches::memory::random;
use drumfire_benches::memory::{Datagrams, Group, client_address, server_address};
use drumfire_proto::{ChannelId, Config, Event, SendOptions};
use drumfire_tools::clock;

/// The time between two ticks.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// The seed of the losses.
pub(super) const SEED: u64 = 7;

/// The longest delay of an ack.
const ACK_DELAY_MAX: Duration = Duration::from_millis(25);

/// Ticks within which all messages must arrive.
const DRAIN_TICKS: u32 = 30_000;

/// The delay and the losses of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// The delay each way in ticks, at least 1.
    pub(super) delay_ticks: usize,
    /// Datagrams lost each way, per thousand.
    pub(super) lost_per_mille: u64,
}

/// A path without losses, for parts that measure time or memory alone.
pub(super) const SHORT: Path = Path { delay_ticks: 2, lost_per_mille: 0 };

/// The path of players on the internet.
pub(super) const LOSSY: Path = Path { delay_ticks: 20, lost_per_mille: 10 };

/// The server's work in some ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) took: Duration,
    pub(super) ticks: u64,
}

impl Share {
    pub(super) fn ns_per_tick(&self) -> f64 {
        self.took.as_nanos() as f64 / self.ticks as f64
    }
}

/// A message to a client: the index of its connection, the channel, the content, and the options.
pub(super) type Message = (usize, u16, Bytes, SendOptions);

/// Returns a reliable message of 16 B on each of these channels of `peers` connections.
pub(super) fn to_each(peers: usize, channels: std::ops::Range<u16>) -> impl Iterator<Item = Message> {
    (0..peers).flat_map(move |peer| {
        let message =
            move |channel| (peer, channel, Bytes::from_static(&[7; 16]), SendOptions::reliable_ordered());
        channels.clone().map(message)
    })
}

/// A server, a client with all connections, and the link between them.
pub(super) struct World {
    group: Group,
    path: Path,
    seed: u64,
    /// The datagrams on their way to the client and to the server, by tick. Datagrams that leave reuse the memory of those that arrived in
    /// the same tick, so none is allocated in the measured time.
    down: VecDeque<Datagrams>,
    up: VecDeque<Datagrams>,
    /// The work since [`Self::take_share`] was called.
    share: Share,
    pub(super) sent: u64,
    pub(super) delivered: u64,
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
            share: Share::default(),
            sent: 0,
            delivered: 0,
        };
        world.drain()?;
        Ok(world)
    }

    pub(super) fn peers(&self) -> usize {
        self.group.links.len()
    }

    /// Changes the losses each way.
    pub(super) const fn lose(&mut self, per_mille: u64) {
        self.path.lost_per_mille = per_mille;
    }

    /// Returns the sum of round trip and probe timeout (RFC 9002 section 6.2), the longest of all connections.
    pub(super) fn round_trip_and_probe(&mut self) -> Duration {
        let Group { server, links, now, .. } = &mut self.group;
        let times = links
            .iter()
            .filter_map(|link| server.peer_stats(*now, link.client))
            .map(|stats| 2 * stats.round_trip + (4 * stats.jitter).max(TICK) + ACK_DELAY_MAX);
        times.max().unwrap_or_default()
    }

    /// Returns the work since the last call.
    pub(super) fn take_share(&mut self) -> Share {
        std::mem::take(&mut self.share)
    }

    /// Sends a message on each of this number of channels of every connection, one per tick, and waits for the acks.
    pub(super) fn create(&mut self, channels: u16) -> Result<(), String> {
        for channel in 0..channels {
            self.tick(to_each(self.peers(), channel..channel + 1));
        }
        self.drain()
    }

    /// Runs one tick: due datagrams arrive, the server sends these messages, and the client replies.
    pub(super) fn tick(&mut self, messages: impl Iterator<Item = Message>) {
        self.tick_and_hear(messages, |_, _| {});
    }

    /// Runs one tick. `heard` receives the messages that arrive, with the index of their connection at the client.
    pub(super) fn tick_and_hear(
        &mut self,
        messages: impl Iterator<Item = Message>,
        mut heard: impl FnMut(u32, &[u8]),
    ) {
        self.group.pass(TICK);
        let mut datagrams = self.up.pop_front().unwrap_or_default();
        let Group { server, client, links, now } = &mut self.group;
        let start = clock::now();
        server.handle_datagrams(*now, datagrams.inbound(client_address()));
        server.handle_timeout(*now);
        while server.poll_event().is_some() {}
        for (peer, channel, bytes, options) in messages {
            let sent = server.send(
                *now,
                links[peer].client,
                drumfire_proto::Message::new(ChannelId(channel), bytes, options),
            );
            sent.expect("room for a message");
            self.sent += 1;
        }
        datagrams.clear();
        datagrams.take_all_from(server, *now);
        self.share.took += start.elapsed();
        self.share.ticks += 1;

        self.down.push_back(datagrams);
        let mut datagrams = self.down.pop_front().unwrap_or_default();
        lose(&mut datagrams, &mut self.seed, self.path);
        client.handle_datagrams(*now, datagrams.inbound(server_address()));
        client.handle_timeout(*now);
        while let Some(event) = client.poll_event() {
            if let Event::Message { peer, payload, .. } = event {
                self.delivered += 1;
                heard(peer.slot(), payload);
            }
        }
        datagrams.clear();
        datagrams.take_all_from(client, *now);
        lose(&mut datagrams, &mut self.seed, self.path);
        self.up.push_back(datagrams);
    }

    /// Runs ticks without messages.
    pub(super) fn be_silent(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.tick(std::iter::empty());
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
    datagrams.retain(|| path.lost_per_mille == 0 || random(seed) % 1_000 >= path.lost_per_mille);
}
