//! The load of the client's process: a closed loop (F) or a fixed schedule (A) over many connections, on one
//! thread that never sleeps. It sends numbered messages, waits for each of them to come back, and keeps the
//! books of one window.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_benches::{Tally, Window};
use drumfire_tools::clock;

/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: usize = 64;

/// So many share a socket. A server lets no more begin at once from one address.
pub(crate) const CONNECTIONS_PER_SOCKET: usize = 16;

/// Where in a message's number its connection stands, the count of its messages being below.
pub(crate) const CONNECTION_SHIFT: u32 = 40;

/// A closed loop goes on without a message that has not come back for this long.
pub(crate) const GIVEN_UP_NS: u64 = 250_000_000;

/// What is still out at the window's end has this long to come back.
const SETTLE: Duration = Duration::from_secs(2);

/// All connections stand after this long, or never.
const PATIENCE: Duration = Duration::from_secs(15);

/// Connections that wait for nothing are looked after this often, one at a time: they have acks to send.
const CHORE_NS: u64 = 50_000;

/// A schedule begins this long after it was made.
const LEAD_NS: u64 = 1_000_000;

/// Connections of a client that share a socket.
pub(crate) trait Crowd {
    /// Whether messages can be sent on all of them.
    fn is_ready(&self) -> bool;

    /// Does what is to be done at `now` (the host's clock in nanoseconds), without waiting, and gives out the messages
    /// that came. What must be answered leaves with the next flush.
    fn receive(&mut self, now: u64, take: impl FnMut(&[u8])) -> Result<(), String>;

    /// Takes a message for one of them, by its place; false when there is no room for it.
    fn send(&mut self, now: u64, place: usize, message: &[u8]) -> Result<bool, String>;

    /// Sends what was taken.
    fn flush(&mut self, now: u64) -> Result<(), String>;

    /// What its sockets carried so far.
    fn carried(&self) -> Carried;
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
pub(crate) enum Load {
    /// Each connection sends its next message when the one before is back.
    Closed {
        /// How many connections.
        connections: usize,
    },
    /// Messages leave at fixed times, whatever comes back.
    Open {
        /// How many connections.
        connections: usize,
        /// Messages of each per second.
        rate: u64,
    },
}

impl Load {
    /// F: nothing can share a datagram.
    pub(crate) const F: Self = Self::Closed { connections: 500 };

    /// A: a small game.
    pub(crate) const A: Self = Self::Open { connections: 100, rate: 60 };

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Closed { .. } => "F",
            Self::Open { .. } => "A",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::F, Self::A].into_iter().find(|load| load.name() == name)
    }

    pub(crate) const fn connections(self) -> usize {
        match self {
            Self::Closed { connections } | Self::Open { connections, .. } => connections,
        }
    }

    /// Messages per second of all connections, where they are fixed.
    pub(crate) const fn rate(self) -> Option<u64> {
        match self {
            Self::Closed { .. } => None,
            Self::Open { connections, rate } => Some(connections as u64 * rate),
        }
    }
}

/// All connections, and what is out on each.
pub(crate) struct Drive<C> {
    crowds: Vec<C>,
    out: Vec<Out>,
    /// Connections on which something came in the last look.
    came: Vec<usize>,
    tally: Tally,
}

/// The messages of one connection that are not back yet, oldest first.
struct Out {
    next: u64,
    waiting: VecDeque<Sent>,
}

struct Sent {
    number: u64,
    /// When it was to be sent.
    due: u64,
}

impl<C: Crowd> Drive<C> {
    /// Makes all connections; `crowd` makes some that share a socket.
    ///
    /// # Errors
    ///
    /// Why one of them could not be made.
    pub(crate) fn connect(
        count: usize,
        mut crowd: impl FnMut(usize) -> Result<C, String>,
    ) -> Result<Self, String> {
        let deadline = clock::now() + PATIENCE;
        let mut crowds = Vec::new();
        for first in (0..count).step_by(CONNECTIONS_PER_SOCKET) {
            let mut made = crowd(CONNECTIONS_PER_SOCKET.min(count - first))?;
            while !made.is_ready() {
                let now = clock::host_ns();
                made.receive(now, |_| {})?;
                made.flush(now)?;
                if clock::now() > deadline {
                    return Err(format!("{count} connections were not made within {PATIENCE:?}"));
                }
            }
            crowds.push(made);
        }
        let out = (0..count).map(Out::of).collect();
        Ok(Self {
            crowds,
            out,
            came: Vec::with_capacity(count),
            tally: Tally::new(Window { start: 0, end: 0 }),
        })
    }

    /// Runs the load and answers what came of it.
    ///
    /// # Errors
    ///
    /// Why a connection failed.
    pub(crate) fn run(mut self, load: Load, window: Window) -> Result<Tally, String> {
        self.tally.window = window;
        match load {
            Load::Closed { .. } => self.closed(window)?,
            Load::Open { .. } => self.open(load.rate().unwrap_or(1), window)?,
        }
        self.settle()?;
        Ok(self.tally)
    }

    fn closed(&mut self, window: Window) -> Result<(), String> {
        for connection in 0..self.out.len() {
            let now = clock::host_ns();
            self.send(connection, now, now)?;
            self.crowds[crowd_of(connection)].flush(now)?;
        }
        loop {
            for crowd in 0..self.crowds.len() {
                let now = clock::host_ns();
                if now >= window.end {
                    return Ok(());
                }
                self.look(crowd, now)?;
                if self.came.is_empty() {
                    self.give_up(crowd, now);
                }
                let now = clock::host_ns();
                while let Some(connection) = self.came.pop() {
                    if self.out[connection].may_send(now) {
                        self.send(connection, now, now)?;
                    }
                }
                self.crowds[crowd].flush(now)?;
            }
        }
    }

    /// Goes on without messages that have not come back for long.
    fn give_up(&mut self, crowd: usize, now: u64) {
        let first = crowd * CONNECTIONS_PER_SOCKET;
        let connections = first..self.out.len().min(first + CONNECTIONS_PER_SOCKET);
        self.came.extend(connections.filter(|at| self.out[*at].may_send(now)));
    }

    fn open(&mut self, rate: u64, window: Window) -> Result<(), String> {
        let first = clock::host_ns() + LEAD_NS;
        let count = self.out.len();
        let due_of = |message: u64| first + message * 1_000_000_000 / rate;
        let (mut message, mut turn, mut chore, mut chore_due) = (0_u64, 0, 0, first);
        loop {
            let now = clock::host_ns();
            if now >= window.end {
                return Ok(());
            }
            if due_of(message) <= now {
                self.tally.on_departure(now, now - due_of(message));
                self.send(turn, now, due_of(message))?;
                self.crowds[crowd_of(turn)].flush(now)?;
                turn = (turn + 1) % count;
                message += 1;
            }
            let mut is_any_busy = false;
            for crowd in 0..self.crowds.len() {
                if self.is_busy(crowd) {
                    is_any_busy = true;
                    self.look_and_flush(crowd)?;
                }
            }
            if chore_due <= now && !is_any_busy {
                self.look_and_flush(chore)?;
                chore = (chore + 1) % self.crowds.len();
                chore_due = now + CHORE_NS;
            }
        }
    }

    fn is_busy(&self, crowd: usize) -> bool {
        let out = self.out.chunks(CONNECTIONS_PER_SOCKET).nth(crowd);
        out.is_some_and(|out| out.iter().any(|out| !out.waiting.is_empty()))
    }

    /// Waits for what is still out.
    fn settle(&mut self) -> Result<(), String> {
        let deadline = clock::now() + SETTLE;
        while self.out.iter().any(|out| !out.waiting.is_empty()) && clock::now() < deadline {
            for crowd in 0..self.crowds.len() {
                self.look_and_flush(crowd)?;
            }
        }
        self.tally.counts.lost = self.out.iter().map(|out| out.waiting.len() as u64).sum();
        Ok(())
    }

    fn look_and_flush(&mut self, crowd: usize) -> Result<(), String> {
        let now = clock::host_ns();
        self.look(crowd, now)?;
        self.crowds[crowd].flush(now)
    }

    /// Takes what came for one crowd.
    fn look(&mut self, crowd: usize, now: u64) -> Result<(), String> {
        let Self { crowds, out, came, tally } = self;
        came.clear();
        crowds[crowd].receive(now, |message| {
            let now = clock::host_ns();
            let known = number_of(message).and_then(|number| {
                let connection = usize::try_from(number >> CONNECTION_SHIFT).ok()?;
                let due = out.get_mut(connection).filter(|_| crowd_of(connection) == crowd)?.take(number)?;
                Some((connection, due))
            });
            match known {
                Some((connection, due)) => {
                    tally.on_echo(now, now.saturating_sub(due));
                    came.push(connection);
                }
                None => tally.counts.strangers += 1,
            }
        })?;
        tally.on_look(now, came.is_empty());
        Ok(())
    }

    fn send(&mut self, connection: usize, now: u64, due: u64) -> Result<(), String> {
        let out = &mut self.out[connection];
        let place = connection % CONNECTIONS_PER_SOCKET;
        if self.crowds[crowd_of(connection)].send(now, place, &message(out.next))? {
            out.waiting.push_back(Sent { number: out.next, due });
            out.next += 1;
            self.tally.on_sent(now);
        } else {
            self.tally.counts.refused += 1;
        }
        Ok(())
    }
}

const fn crowd_of(connection: usize) -> usize {
    connection / CONNECTIONS_PER_SOCKET
}

impl Out {
    fn of(connection: usize) -> Self {
        Self { next: (connection as u64) << CONNECTION_SHIFT, waiting: VecDeque::new() }
    }

    /// Whether a closed loop has nothing to wait for.
    fn may_send(&self, now: u64) -> bool {
        self.waiting.back().is_none_or(|sent| sent.due + GIVEN_UP_NS < now)
    }

    /// Takes a message that came back off the list and answers when it was to be sent.
    fn take(&mut self, number: u64) -> Option<u64> {
        let place = self.waiting.iter().position(|sent| sent.number == number)?;
        self.waiting.remove(place).map(|sent| sent.due)
    }
}

/// A message with this number; all its bytes follow from it.
fn message(number: u64) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

/// The number of a message; nothing when it is not one that was sent.
fn number_of(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_be_bytes(*bytes.first_chunk()?);
    (bytes == message(number)).then_some(number)
}
