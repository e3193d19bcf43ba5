//! The setup of one seed: the server's limits, and for each phase its application, frames, and packet delivery.

use std::time::Duration;

use drumfire_proto::Config;
use drumfire_puppet::{Random, Swarm};

/// Packets of one phase. A hostile client uses one swarm for that long, and then reconnects with another.
const PACKETS: [u64; 4] = [80, 300, 300, 600];

/// When the application reads the messages of a hostile client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    Always,
    Never,
    /// After that many packets of 100.
    Sometimes(u64),
    /// Takes everything, and releases hostile messages only sometimes.
    Hoards(u64),
}

/// The message that the application sends to a hostile client after each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sends {
    Nothing,
    Small,
    Reliable,
    Large,
}

/// The choices for a whole seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) receive_bytes: usize,
    pub(crate) send_bytes: usize,
    pub(crate) clients: usize,
}

/// The choices of one phase.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) packets: u64,
    pub(crate) pace: Duration,
    pub(crate) reads: Reads,
    pub(crate) sends: Sends,
    /// Packets out of 100 that come twice, late, or from another port.
    pub(crate) duplicated: u64,
    pub(crate) late: u64,
    pub(crate) moved: u64,
    /// Whether the hostile clients read what the server sends.
    pub(crate) listens: bool,
    /// The frames, one swarm for each hostile client.
    pub(crate) swarms: Vec<Swarm>,
}

impl Setting {
    pub(crate) fn draw(random: &mut Random) -> Self {
        Self {
            receive_bytes: random.pick(&[64, 64, 64, 64, 256]) * 1_024,
            send_bytes: random.pick(&[16, 16, 64, 256]) * 1_024,
            clients: random.pick(&[1, 1, 1, 1, 1, 3]),
        }
    }

    /// The server's settings. The events have room for everything that all clients may queue.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::default().memory_bytes(self.send_bytes, self.receive_bytes);
        config.event_memory_bytes = self.receive_bytes * (self.clients + 3);
        config
    }
}

impl Phase {
    pub(crate) fn draw(random: &mut Random, setting: &Setting) -> Self {
        let rarely = |random: &mut Random| random.pick(&[0, 0, 0, 2, 30]);
        Self {
            packets: random.pick(&PACKETS),
            pace: Duration::from_micros(random.pick(&[10, 100, 1_000, 20_000])),
            reads: match random.below(8) {
                0 => Reads::Always,
                1..=4 => Reads::Never,
                5 | 6 => Reads::Sometimes(random.pick(&[1, 10, 50])),
                _ => Reads::Hoards(random.pick(&[0, 1, 20])),
            },
            sends: random.pick(&[
                Sends::Nothing,
                Sends::Nothing,
                Sends::Small,
                Sends::Reliable,
                Sends::Large,
            ]),
            duplicated: rarely(random),
            late: rarely(random),
            moved: rarely(random),
            listens: random.happens(95),
            swarms: (0..setting.clients).map(|_| Swarm::draw(random)).collect(),
        }
    }
}
