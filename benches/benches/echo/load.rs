//! The load of the client's process: a closed loop (F) or a fixed schedule (A) over many connections, on one
//! thread that never sleeps. It sends numbered messages, waits for each of them to come back, and keeps the
//! books of one window.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_tools::clock;

use crate::tally::Tally;

/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: usize = 64;

/// A closed loop goes on without a message that has not come back for this long.
const GIVEN_UP_NS: u64 = 250_000_000;

/// What is still out at the window's end has this long to come back.
const SETTLE: Duration = Duration::from_secs(2);

/// Connections begun together.
const CONNECTING: usize = 32;

/// All connections stand after this long, or never.
const PATIENCE: Duration = Duration::from_secs(15);

/// Connections that wait for nothing are looked after this often, one at a time: they have acks to send.
const CHORE_NS: u64 = 50_000;

/// A schedule begins this long after it was made.
const LEAD_NS: u64 = 1_000_000;

/// One connection of a client.
pub(crate) trait Line {
    /// Whether messages can be sent.
    fn is_ready(&self) -> bool;

    /// Does what is to be done, without waiting, and gives out the messages that came.
    fn receive(&mut self, take: impl FnMut(&[u8])) -> Result<(), String>;

    /// Sends a message now; false when there is no room for it.
    fn send(&mut self, message: &[u8]) -> Result<bool, String>;
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

/// When a load is counted, on the host's clock in nanoseconds. It is sent from when it is made to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) end: u64,
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
pub(crate) struct Drive<L> {
    lines: Vec<L>,
    out: Vec<Out>,
    tally: Tally,
}

/// The messages of one connection that are not back yet, oldest first.
#[derive(Default)]
struct Out {
    next: u64,
    waiting: VecDeque<Sent>,
}

struct Sent {
    number: u64,
    /// When it was to be sent.
    due: u64,
}

impl<L: Line> Drive<L> {
    /// Makes all connections.
    ///
    /// # Errors
    ///
    /// Why one of them could not be made.
    pub(crate) fn connect(count: usize, mut line: impl FnMut() -> Result<L, String>) -> Result<Self, String> {
        let deadline = clock::now() + PATIENCE;
        let mut lines = Vec::with_capacity(count);
        while lines.len() < count {
            let first = lines.len();
            for _ in first..count.min(first + CONNECTING) {
                lines.push(line()?);
            }
            while !lines.iter().all(L::is_ready) {
                for line in &mut lines {
                    line.receive(|_| {})?;
                }
                if clock::now() > deadline {
                    return Err(format!("{count} connections were not made within {PATIENCE:?}"));
                }
            }
        }
        let out = lines.iter().map(|_| Out::default()).collect();
        Ok(Self { lines, out, tally: Tally::default() })
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
        for at in 0..self.lines.len() {
            self.send(at, clock::host_ns())?;
        }
        loop {
            let now = clock::host_ns();
            if now >= window.end {
                return Ok(());
            }
            for at in 0..self.lines.len() {
                self.visit(at)?;
                let newest = self.out[at].waiting.back();
                if newest.is_none_or(|sent| sent.due + GIVEN_UP_NS < now) {
                    self.send(at, clock::host_ns())?;
                }
            }
        }
    }

    fn open(&mut self, rate: u64, window: Window) -> Result<(), String> {
        let first = clock::host_ns() + LEAD_NS;
        let count = self.lines.len();
        let due_of = |message: u64| first + message * 1_000_000_000 / rate;
        let (mut message, mut turn, mut chore, mut chore_due) = (0_u64, 0, 0, first);
        let mut busy: VecDeque<usize> = VecDeque::new();
        loop {
            let now = clock::host_ns();
            if now >= window.end {
                return Ok(());
            }
            if due_of(message) <= now {
                let at = turn;
                turn = (turn + 1) % count;
                self.tally.on_departure(now, now - due_of(message));
                self.send(at, due_of(message))?;
                if !busy.contains(&at) {
                    busy.push_back(at);
                }
                message += 1;
            }
            for _ in 0..busy.len() {
                let Some(at) = busy.pop_front() else { break };
                self.visit(at)?;
                if !self.out[at].waiting.is_empty() {
                    busy.push_back(at);
                }
            }
            if chore_due <= now && busy.is_empty() {
                self.visit(chore)?;
                chore = (chore + 1) % count;
                chore_due = now + CHORE_NS;
            }
        }
    }

    /// Waits for what is still out.
    fn settle(&mut self) -> Result<(), String> {
        let deadline = clock::now() + SETTLE;
        while self.out.iter().any(|out| !out.waiting.is_empty()) && clock::now() < deadline {
            for at in 0..self.lines.len() {
                self.visit(at)?;
            }
        }
        self.tally.lost = self.out.iter().map(|out| out.waiting.len() as u64).sum();
        Ok(())
    }

    /// Takes what came on one connection.
    fn visit(&mut self, at: usize) -> Result<(), String> {
        let (out, tally) = (&mut self.out[at], &mut self.tally);
        self.lines[at].receive(|message| {
            let now = clock::host_ns();
            match number_of(message).and_then(|number| out.take(number)) {
                Some(due) => tally.on_echo(now, now.saturating_sub(due)),
                None => tally.strangers += 1,
            }
        })
    }

    fn send(&mut self, at: usize, due: u64) -> Result<(), String> {
        let out = &mut self.out[at];
        if self.lines[at].send(&message(out.next))? {
            out.waiting.push_back(Sent { number: out.next, due });
            out.next += 1;
            self.tally.on_sent(clock::host_ns());
        } else {
            self.tally.refused += 1;
        }
        Ok(())
    }
}

impl Out {
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
