//! A server and its clients, tick by tick, over a link with a delay and losses each way. The server's time is measured.
//!
//! Losses come from a seed, so a world repeats exactly. The parts choose the messages.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
pub(super) use drumfire_benches::group::random;
use drumfire_benches::group::{Datagrams, Group, Link, client_address};
use drumfire_benches::pair::server_address;
use drumfire_proto::{ChannelId, Config, Endpoint, Event, Now, SendOptions};
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

/// The server's work in some ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) took: Duration,
    pub(super) ticks: u64,
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) lost: u64,
}

impl Share {
    /// Adds the work in another world.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            took: self.took + other.took,
            ticks: self.ticks + other.ticks,
            datagrams: self.datagrams + other.datagrams,
            bytes: self.bytes + other.bytes,
            lost: self.lost + other.lost,
        }
    }

    pub(super) fn ns_per_tick(&self) -> f64 {
        self.took.as_nanos() as f64 / self.ticks as f64
    }

    /// The share of one core in percent, if ticks came in real time.
    pub(super) fn core_percent(&self) -> f64 {
        100.0 * self.ns_per_tick() / TICK.as_nanos() as f64
    }
}

/// A server, a client with all connections, and the link between them.
pub(super) struct World {
    group: Group,
    path: Path,
    seed: u64,
    /// The datagrams on their way to the client and to the server, by tick.
    down: VecDeque<Datagrams>,
    up: VecDeque<Datagrams>,
    spare: Vec<Datagrams>,
    lost: u64,
    pub(super) sent: u64,
    pub(super) delivered: u64,
}

impl World {
    pub(super) fn new(peers: u32, path: Path) -> Result<Self, String> {
        let group = Group::connect(peers, &Config::default().has_aes_gcm(true))?;
        let empty = || (0..path.delay_ticks).map(|_| Datagrams::default()).collect();
        let (down, up) = (empty(), empty());
        let spare = vec![Datagrams::default(), Datagrams::default()];
        let mut world = Self { group, path, seed: SEED, down, up, spare, lost: 0, sent: 0, delivered: 0 };
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

    /// Sends a message on each of this number of channels of every connection, one per tick, and waits for the acks.
    pub(super) fn create(&mut self, channels: u16) -> Result<(), String> {
        for channel in 0..channels {
            self.tick(|server, now, links| send_each(server, now, links, channel..channel + 1), |_, _| {});
        }
        self.sent += self.peers() as u64 * u64::from(channels);
        self.drain()
    }

    /// Runs this number of ticks, with a message on each active channel of every connection per tick.
    pub(super) fn ticks(&mut self, count: u64, active: u16) -> Result<Share, String> {
        let before = self.counts();
        let mut took = Duration::ZERO;
        for _ in 0..count {
            took += self.tick(|server, now, links| send_each(server, now, links, 0..active), |_, _| {});
        }
        self.sent += count * self.peers() as u64 * u64::from(active);
        let share = self.share(before, took, count);
        self.drain()?;
        Ok(share)
    }

    /// Returns the work since [`Self::counts`] returned `before`.
    pub(super) fn share(&self, before: Share, took: Duration, ticks: u64) -> Share {
        let now = self.counts();
        Share {
            took,
            ticks,
            datagrams: now.datagrams - before.datagrams,
            bytes: now.bytes - before.bytes,
            lost: now.lost - before.lost,
        }
    }

    /// Returns all counts so far, without time.
    pub(super) fn counts(&self) -> Share {
        let stats = self.group.server.stats();
        let (datagrams, bytes) = (stats.datagrams_sent, stats.bytes_sent);
        Share { took: Duration::ZERO, ticks: 0, datagrams, bytes, lost: self.lost }
    }

    /// Runs one tick: due datagrams arrive, the server sends, and the client replies. `heard` receives the messages with their
    /// connection. Returns the time that the server took.
    pub(super) fn tick(
        &mut self,
        send: impl FnOnce(&mut Endpoint, Now, &[Link]),
        mut heard: impl FnMut(u32, &[u8]),
    ) -> Duration {
        self.group.pass(TICK);
        let mut arrived = self.up.pop_front().unwrap_or_default();
        let mut leaving = self.spare.pop().unwrap_or_default();
        let Group { server, client, links, now } = &mut self.group;
        let start = clock::now();
        server.handle_datagrams(*now, arrived.inbound(client_address()));
        server.handle_timeout(*now);
        while server.poll_event().is_some() {}
        send(server, *now, links);
        leaving.take_all_from(server, *now);
        let took = start.elapsed();

        arrived.clear();
        self.down.push_back(leaving);
        let (mut leaving, mut arrived) = (arrived, self.down.pop_front().unwrap_or_default());
        let before = arrived.count();
        arrived.retain(|| !is_lost(&mut self.seed, self.path.lost_per_mille));
        client.handle_datagrams(*now, arrived.inbound(server_address()));
        client.handle_timeout(*now);
        while let Some(event) = client.poll_event() {
            if let Event::Message { peer, bytes, .. } = event {
                self.delivered += 1;
                heard(peer.index(), bytes);
            }
        }
        self.lost += (before - arrived.count()) as u64;
        arrived.clear();
        self.spare.push(arrived);
        leaving.take_all_from(client, *now);
        let before = leaving.count();
        leaving.retain(|| !is_lost(&mut self.seed, self.path.lost_per_mille));
        self.lost += (before - leaving.count()) as u64;
        self.up.push_back(leaving);
        took
    }

    /// Runs ticks until no datagram is on its way and no message waits.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        for _ in 0..DRAIN_TICKS {
            self.tick(|_, _, _| {}, |_, _| {});
            if self.is_drained() {
                return Ok(());
            }
        }
        Err(format!("{} of {} messages were delivered", self.delivered, self.sent))
    }

    /// Whether every message was delivered and acknowledged.
    pub(super) fn is_drained(&mut self) -> bool {
        let Group { server, links, now, .. } = &mut self.group;
        let mut stats = links.iter().map(|link| server.peer_stats(*now, link.client));
        self.delivered >= self.sent
            && stats.all(|stats| stats.is_some_and(|stats| stats.in_flight_bytes == 0))
    }
}

/// Sends a reliable message of 16 B on each of these channels of every connection.
fn send_each(server: &mut Endpoint, now: Now, links: &[Link], channels: std::ops::Range<u16>) {
    for link in links {
        for channel in channels.clone() {
            send(server, now, link, channel, Bytes::from_static(&[7; 16]), SendOptions::reliable_ordered());
        }
    }
}

/// Sends a message. There must be room for it.
pub(super) fn send(
    server: &mut Endpoint,
    now: Now,
    link: &Link,
    channel: u16,
    bytes: Bytes,
    options: SendOptions,
) {
    server.send(now, link.client, ChannelId(channel), bytes, options).expect("room for a message");
}

/// Whether the next datagram is lost.
fn is_lost(seed: &mut u64, per_mille: u64) -> bool {
    per_mille > 0 && random(seed) % 1_000 < per_mille
}
