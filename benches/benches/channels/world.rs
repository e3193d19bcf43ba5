//! A server and its clients, tick by tick, over a link with a delay and losses each way. Only the server's time is measured.
//!
//! Losses follow from a seed, so a world repeats exactly. The parts choose the messages.

use std::ops::Range;
use std::time::Duration;

use drumfire::conditioner::{Delay, Link, LinkConfig, Loss};
use drumfire_benches::memory::{Datagrams, Group, client_address, server_address, take_messages};
use drumfire_proto::{ChannelId, Config, Inbound, Message};
use drumfire_tools::clock;

/// The time between two ticks.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// The seed of the losses.
pub(super) const SEED: u64 = 7;

/// The content of a message.
const PAYLOAD: &[u8] = &[7; 16];

/// Ticks within which all messages must arrive.
const DRAIN_TICKS: u32 = 30_000;

/// The delay of a path each way, at least a tick, and the fraction of datagrams that it loses each way.
pub(super) type Path = (Duration, f64);

/// A path without losses, for parts that measure time or memory alone.
pub(super) const SHORT: Path = (Duration::from_millis(2), 0.0);

/// The path of players on the internet.
pub(super) const LOSSY: Path = (Duration::from_millis(20), 0.01);

/// A server, a client with all connections, and the links between them.
pub(super) struct World {
    group: Group,
    down: Link,
    up: Link,
    /// The time since the start.
    time: Duration,
    /// The datagrams that leave in a tick. Their memory is reused, so that none is allocated in the measured time.
    leaving: Datagrams,
    sent: u64,
    delivered: u64,
}

impl World {
    pub(super) fn new(peers: u32, (delay, loss): Path) -> Result<Self, String> {
        let config = LinkConfig::default().delay(Delay::Constant(delay)).loss(Loss::Random(loss));
        let link = |seed| Link::new(config.clone(), seed).map_err(|error| error.to_string());
        let mut world = Self {
            group: Group::connect(peers, &Config::default().has_aes_gcm(true))?,
            down: link(SEED)?,
            up: link(!SEED)?,
            time: Duration::ZERO,
            leaving: Datagrams::default(),
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
        self.time += TICK;
        let Self { down, up, time, leaving, .. } = self;
        let Group { server, client, links, now, .. } = &mut self.group;
        let mut arrived = take_arrived(up, *time);
        let start = clock::now();
        let inbound = |bytes| Inbound { from: client_address().into(), bytes };
        server.handle_datagrams(*now, arrived.iter_mut().map(|bytes| inbound(&mut bytes[..])));
        server.handle_timeout(*now);
        while server.poll_event().is_some() {}
        for link in &*links {
            for channel in channels.clone().map(ChannelId) {
                let sent = server.send(*now, link.client, Message::reliable_ordered(channel, PAYLOAD));
                sent.expect("room for a message");
                self.sent += 1;
            }
        }
        leaving.clear();
        leaving.take_all_from(server, *now);
        let elapsed = start.elapsed();

        leaving.inbound(server_address()).for_each(|datagram| down.push(*time, (), datagram.bytes));
        let mut arrived = take_arrived(down, *time);
        let inbound = |bytes| Inbound { from: server_address().into(), bytes };
        client.handle_datagrams(*now, arrived.iter_mut().map(|bytes| inbound(&mut bytes[..])));
        client.handle_timeout(*now);
        self.delivered += take_messages(client);
        leaving.clear();
        leaving.take_all_from(client, *now);
        leaving.inbound(client_address()).for_each(|datagram| up.push(*time, (), datagram.bytes));
        elapsed
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

/// Takes the datagrams that have arrived by now.
fn take_arrived(link: &mut Link, now: Duration) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| link.poll(now)).map(|((), bytes)| bytes).collect()
}
