//! The client's process at work: it connects, sends a load of numbered messages, waits for each of them to come back, and
//! keeps the books of one window. One thread does it all, and it never sleeps, unless it shares its core.
//!
//! What a connection is, is the [`Client`]'s business.

use std::time::Duration;

use drumfire_tools::clock;

use crate::child::say;
use crate::echoes::{Tally, Window};
use crate::numbered::{connection_of, first_number, number_of, write_number};
use crate::out::Out;

/// Connections that are begun at a time: few enough for any server's receive buffer, and enough that a thousand are connected soon
/// over a path that holds every datagram.
pub const UNDER_WAY: usize = 64;

/// While others connect, the connections that stand are looked after this often.
const UPKEEP_NS: u64 = 100_000_000;

/// Connections that wait for nothing are looked after this often, one socket at a time: they have acks to send.
const CHORE_NS: u64 = 50_000;

/// A schedule begins this long after it was made.
const LEAD_NS: u64 = 1_000_000;

/// How long a client rests that shares its core and has found nothing.
const REST: Duration = Duration::from_micros(200);

/// How long a client rests between two looks at connections that say nothing.
const IDLE_REST: Duration = Duration::from_millis(2);

/// Connections of a client that share a socket, or whatever stands in place of one.
pub trait Client {
    /// Whether messages can be sent on all of them.
    fn is_ready(&self) -> bool;

    /// Does what is to be done at `now` (the host's clock in nanoseconds) without waiting, and gives out the messages that came
    /// with the connection's place. What must be answered leaves with the next flush.
    ///
    /// # Errors
    ///
    /// One line: why a connection failed.
    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String>;

    /// Takes a message for one of them, by its place; false when there is no room for it.
    ///
    /// # Errors
    ///
    /// One line: why a connection failed.
    fn send(&mut self, now: u64, place: usize, channel: u8, message: &[u8]) -> Result<bool, String>;

    /// Sends what was taken.
    ///
    /// # Errors
    ///
    /// One line: why a connection failed.
    fn flush(&mut self, now: u64) -> Result<(), String>;
}

impl<C: Client + ?Sized> Client for Box<C> {
    fn is_ready(&self) -> bool {
        (**self).is_ready()
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        (**self).receive(now, take)
    }

    fn send(&mut self, now: u64, place: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        (**self).send(now, place, channel, message)
    }

    fn flush(&mut self, now: u64) -> Result<(), String> {
        (**self).flush(now)
    }
}

/// How a load is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Each connection sends its next message when there is room among its outstanding ones.
    Closed {
        /// Messages that a connection has on their way at a time.
        outstanding: usize,
    },
    /// Messages leave at fixed times, whatever comes back.
    Open {
        /// Messages of each connection per second.
        rate: u64,
    },
    /// Nothing is said.
    Idle,
}

impl Shape {
    /// Messages per second of so many connections, where they are fixed.
    #[must_use]
    pub const fn rate(self, connections: usize) -> Option<u64> {
        match self {
            Self::Open { rate } => Some(connections as u64 * rate),
            Self::Closed { .. } | Self::Idle => None,
        }
    }
}

/// What is sent, over which connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Play {
    /// How it is sent.
    pub shape: Shape,
    /// How many connections.
    pub connections: usize,
    /// How many of them one [`Client`] has.
    pub per_client: usize,
    /// Bytes of a message.
    pub bytes: usize,
    /// Bytes of what comes back for it.
    pub answer_bytes: usize,
    /// Channels that a connection's messages take in turn, at least one.
    pub channels: u8,
    /// Whether a closed loop goes on without messages that are long gone.
    pub may_lose: bool,
    /// Whether a closed loop may find no room and try again, so that of refusals only those of a schedule count, and only in the
    /// window; else each counts.
    pub may_refuse: bool,
    /// Whether the client's core has others on it, for whom it is to rest.
    pub shares_core: bool,
    /// All connections stand after this long, or never.
    pub patience: Duration,
    /// What is still out at the window's end has this long to come back.
    pub settle: Duration,
}

/// All connections, and what is out on each.
pub struct Drive<C> {
    clients: Vec<C>,
    out: Vec<Out>,
    /// Connections on which something came in the last look.
    came: Vec<usize>,
    /// Room for one message.
    message: Vec<u8>,
    play: Play,
    tally: Tally,
}

/// Connects, says when the window is, runs the load, says what came of it: a [`Window`] and a [`crate::Told`], each as a line.
///
/// # Errors
///
/// Why a connection failed or nothing could be said.
pub fn tell_what_came<C: Client>(
    play: Play,
    (warm_up, counted): (Duration, Duration),
    client: impl FnMut(usize) -> Result<C, String>,
) -> Result<(), String> {
    let drive = Drive::connect(play, client)?;
    let warm = Window::beginning_at(clock::host_ns(), warm_up);
    let window = Window::beginning_at(warm.end, counted);
    say(&window.to_line()).map_err(|error| error.to_string())?;
    let tally = drive.run(window)?;
    say(&tally.told().to_line()).map_err(|error| error.to_string())
}

impl<C: Client> Drive<C> {
    /// Makes all connections; `client` begins so many that belong together.
    ///
    /// # Errors
    ///
    /// Why one of them could not be made.
    pub fn connect(play: Play, mut client: impl FnMut(usize) -> Result<C, String>) -> Result<Self, String> {
        let Play { connections, per_client, patience, .. } = play;
        let deadline = clock::now() + patience;
        let mut clients = Vec::<C>::new();
        let (mut made, mut ready, mut upkeep) = (0, 0, clock::host_ns());
        while made < connections || ready < clients.len() {
            if made < connections && clients.len() - ready < UNDER_WAY.div_ceil(per_client) {
                let some = per_client.min(connections - made);
                clients.push(client(some)?);
                made += some;
            }
            let now = clock::host_ns();
            let from = if now >= upkeep { 0 } else { ready };
            if from == 0 {
                upkeep = now + UPKEEP_NS;
            }
            for client in &mut clients[from..] {
                client.receive(now, &mut |_, _| {})?;
                client.flush(now)?;
            }
            ready += clients[ready..].iter().take_while(|client| client.is_ready()).count();
            if clock::now() > deadline {
                return Err(format!("{connections} connections were not made within {patience:?}"));
            }
            if play.shares_core {
                clock::pause(REST);
            }
        }
        Ok(Self {
            clients,
            out: (0..connections).map(|connection| Out::beginning_at(first_number(connection))).collect(),
            came: Vec::with_capacity(connections),
            message: vec![0; play.bytes],
            play,
            tally: Tally::default(),
        })
    }

    /// Runs the load and answers what came of it.
    ///
    /// # Errors
    ///
    /// Why a connection failed.
    pub fn run(mut self, window: Window) -> Result<Tally, String> {
        self.tally.window = window;
        match self.play.shape {
            Shape::Closed { outstanding } => self.closed(outstanding, window)?,
            Shape::Open { .. } => self.open(self.play.shape.rate(self.out.len()).unwrap_or(1), window)?,
            Shape::Idle => self.idle(window)?,
        }
        self.settle()?;
        Ok(self.tally)
    }

    fn closed(&mut self, outstanding: usize, window: Window) -> Result<(), String> {
        for connection in 0..self.out.len() {
            let now = clock::host_ns();
            self.fill(connection, outstanding, now)?;
            let client = self.client_of(connection);
            self.clients[client].flush(now)?;
        }
        loop {
            let mut is_any = false;
            for client in 0..self.clients.len() {
                let now = clock::host_ns();
                if now >= window.end {
                    return Ok(());
                }
                self.look(client, now)?;
                is_any |= !self.came.is_empty();
                if self.came.is_empty() {
                    let first = client * self.play.per_client;
                    self.came.extend(first..self.out.len().min(first + self.play.per_client));
                }
                let now = clock::host_ns();
                while let Some(connection) = self.came.pop() {
                    self.fill(connection, outstanding, now)?;
                }
                self.clients[client].flush(now)?;
            }
            self.rest(is_any);
        }
    }

    /// Sends as many messages as a closed loop has room for.
    fn fill(&mut self, connection: usize, outstanding: usize, now: u64) -> Result<(), String> {
        while self.out[connection].awaited(now, self.play.may_lose) < outstanding {
            if !self.send(connection, now, now)? {
                break;
            }
        }
        Ok(())
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
            while due_of(message) <= now {
                self.tally.on_departure(now, now - due_of(message));
                self.send(turn, now, due_of(message))?;
                let client = self.client_of(turn);
                self.clients[client].flush(now)?;
                turn = (turn + 1) % count;
                message += 1;
                // Who rests finds several due.
                if !self.play.shares_core {
                    break;
                }
            }
            for client in 0..self.clients.len() {
                if self.is_busy(client) {
                    self.look_and_flush(client)?;
                }
            }
            if chore_due <= now {
                self.look_and_flush(chore)?;
                chore = (chore + 1) % self.clients.len();
                chore_due = now + CHORE_NS;
            }
            self.rest(due_of(message) <= now);
        }
    }

    /// Only looks after the connections.
    fn idle(&mut self, window: Window) -> Result<(), String> {
        while clock::host_ns() < window.end {
            for client in 0..self.clients.len() {
                self.look_and_flush(client)?;
            }
            clock::pause(IDLE_REST);
        }
        Ok(())
    }

    fn rest(&self, is_any: bool) {
        if self.play.shares_core && !is_any {
            clock::pause(REST);
        }
    }

    fn is_busy(&self, client: usize) -> bool {
        let out = self.out.chunks(self.play.per_client).nth(client);
        out.is_some_and(|out| out.iter().any(|out| !out.is_empty()))
    }

    /// Waits for what is still out.
    fn settle(&mut self) -> Result<(), String> {
        let deadline = clock::now() + self.play.settle;
        while self.out.iter().any(|out| !out.is_empty()) && clock::now() < deadline {
            for client in 0..self.clients.len() {
                self.look_and_flush(client)?;
            }
            self.rest(false);
        }
        self.tally.counts.lost = self.out.iter().map(Out::count).sum();
        Ok(())
    }

    fn look_and_flush(&mut self, client: usize) -> Result<(), String> {
        let now = clock::host_ns();
        self.look(client, now)?;
        self.clients[client].flush(now)
    }

    /// Takes what came for one client.
    fn look(&mut self, client: usize, now: u64) -> Result<(), String> {
        let Self { clients, out, came, play, tally, .. } = self;
        came.clear();
        let first = client * play.per_client;
        clients[client].receive(now, &mut |place, message| {
            let now = clock::host_ns();
            let connection = first.saturating_add(place);
            let due = number_of(message, play.answer_bytes)
                .filter(|number| connection_of(*number) == connection)
                .and_then(|number| out.get_mut(connection)?.take(number));
            match due {
                Some(due) => {
                    tally.on_echo(now, now.saturating_sub(due));
                    came.push(connection);
                }
                None => tally.counts.strangers += 1,
            }
        })?;
        tally.on_look(now, came.is_empty());
        Ok(())
    }

    /// Whether the connection took the message.
    fn send(&mut self, connection: usize, now: u64, due: u64) -> Result<bool, String> {
        let (client, place) = (self.client_of(connection), connection % self.play.per_client);
        let out = &mut self.out[connection];
        let channel = u8::try_from(out.next() % u64::from(self.play.channels)).unwrap_or(0);
        write_number(&mut self.message, out.next());
        let is_taken = self.clients[client].send(now, place, channel, &self.message)?;
        if is_taken {
            out.sent_at(now, due);
            self.tally.on_sent(now);
        } else {
            self.on_refused(now);
        }
        Ok(is_taken)
    }

    fn on_refused(&mut self, now: u64) {
        let is_of_schedule = matches!(self.play.shape, Shape::Open { .. });
        if !self.play.may_refuse || is_of_schedule && now >= self.tally.window.start {
            self.tally.counts.refused += 1;
        }
    }

    const fn client_of(&self, connection: usize) -> usize {
        connection / self.play.per_client
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// Answers nothing, and notes how many messages left between two looks at it.
    struct Deaf {
        since_look: u64,
        most: Rc<Cell<u64>>,
    }

    impl Client for Deaf {
        fn is_ready(&self) -> bool {
            true
        }

        fn receive(&mut self, _: u64, _: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
            self.most.set(self.most.get().max(self.since_look));
            self.since_look = 0;
            Ok(())
        }

        fn send(&mut self, _: u64, _: usize, _: u8, _: &[u8]) -> Result<bool, String> {
            self.since_look += 1;
            Ok(true)
        }

        fn flush(&mut self, _: u64) -> Result<(), String> {
            Ok(())
        }
    }

    /// The most messages between two looks, of a schedule of which dozens are due after each rest.
    fn most_between_looks(shares_core: bool) -> u64 {
        let play = Play {
            shape: Shape::Open { rate: 500_000 },
            connections: 1,
            per_client: 1,
            bytes: 64,
            answer_bytes: 64,
            channels: 1,
            may_lose: true,
            may_refuse: false,
            shares_core,
            patience: Duration::from_secs(10),
            settle: Duration::ZERO,
        };
        let most = Rc::new(Cell::new(0));
        // On a busy machine, the thread may not run at all in a window.
        while most.get() == 0 {
            let client = |_| Ok(Deaf { since_look: 0, most: Rc::clone(&most) });
            let drive = Drive::connect(play, client).expect("a deaf client connects");
            let window = Window::beginning_at(clock::host_ns(), Duration::from_millis(100));
            drive.run(window).expect("a deaf client takes every message");
        }
        most.get()
    }

    #[test]
    fn a_client_that_rests_sends_all_that_is_due_and_not_one_message_for_each_rest() {
        assert!(most_between_looks(true) > 1);
    }

    #[test]
    fn a_client_that_never_rests_sends_one_message_for_each_look() {
        assert_eq!(most_between_looks(false), 1);
    }
}
