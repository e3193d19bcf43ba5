//! The loads of the client's process: a closed loop (F) or a fixed schedule (A) over many connections.

use std::time::Duration;

use drumfire_benches::traffic::{Client, Polling, Shape, Traffic};
use drumfire_benches::{PER_SOCKET, PlainDatagrams, Players};

/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: usize = 64;

/// Datagrams that each connection may have on their way in one go.
pub(crate) const DATAGRAMS_EACH: usize = 4;

/// What is still out at the window's end has this long to come back.
const SETTLE: Duration = Duration::from_secs(2);

/// All connections stand after this long, or never.
const PATIENCE: Duration = Duration::from_secs(15);

/// Connections of a client that share a socket, and say what it carried.
pub(crate) trait Crowd: Client {
    /// What its sockets carried so far.
    fn carried(&self) -> Carried;
}

impl Crowd for Players {
    fn carried(&self) -> Carried {
        Carried { datagrams_sent: self.datagrams_sent(), stream_bytes: 0 }
    }
}

impl Crowd for PlainDatagrams {
    fn carried(&self) -> Carried {
        Carried { datagrams_sent: self.datagrams_sent(), stream_bytes: 0 }
    }
}

/// What clients' sockets carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Datagrams that the kernel took.
    pub(crate) datagrams_sent: u64,
    /// Bytes both ways of those that carry streams.
    pub(crate) stream_bytes: u64,
}

impl std::iter::Sum for Carried {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            datagrams_sent: sum.datagrams_sent + one.datagrams_sent,
            stream_bytes: sum.stream_bytes + one.stream_bytes,
        })
    }
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    name: &'static str,
    pub(crate) connections: usize,
    pub(crate) shape: Shape,
}

impl Load {
    /// Nothing can share a datagram.
    pub(crate) const F: Self = Self { name: "F", connections: 500, shape: Shape::Closed { outstanding: 1 } };

    /// A small game.
    pub(crate) const A: Self = Self { name: "A", connections: 100, shape: Shape::Open { rate: 60 } };

    pub(crate) const fn name(self) -> &'static str {
        self.name
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::F, Self::A].into_iter().find(|load| load.name == name)
    }

    /// Messages per second of all connections, where they are fixed.
    pub(crate) const fn rate(self) -> Option<u64> {
        self.shape.rate(self.connections)
    }

    /// What the client does.
    pub(crate) const fn play(self) -> Traffic {
        Traffic {
            shape: self.shape,
            connections: self.connections,
            per_client: PER_SOCKET,
            bytes: MESSAGE_BYTES,
            answer_bytes: MESSAGE_BYTES,
            channels: 1,
            // Of reliable messages too: one that is so late is said in the books, and does not hold up the others.
            may_lose: true,
            may_refuse: false,
            polling: Polling::Single,
            patience: PATIENCE,
            settle: SETTLE,
        }
    }
}
