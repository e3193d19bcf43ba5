//! Traffic of numbered messages that return: a closed loop or a schedule.
//!
//! One thread connects, sends, and records one window after the other. It polls without sleeping, unless it shares its core. A transport
//! implements [`Client`].

mod ramp;
mod round;

use std::time::Duration;

use drumfire_tools::clock;

pub use crate::client::{Client, boxed, client_counts};
use crate::numbered::{connection_of, first_number, number_of, write_number};
use crate::process::print_json;
use crate::recorder::{EchoCounts, Outstanding, Recorder, Window};
pub use round::EchoRound;

/// The interval in which a schedule polls clients without outstanding messages, one at a time. They have acks to send.
const IDLE_POLL_NS: u64 = 50_000;

/// The interval in which a closed loop looks for lost messages of connections that received nothing.
const RETRY_NS: u64 = 1_000_000;

/// With [`Polling::RoundRobin`], a connection has at most this number of outstanding messages of a schedule.
const OUTSTANDING_MAX: usize = 4;

/// The pause of a client that shares its core, after a poll that found nothing.
const PAUSE: Duration = Duration::from_micros(200);

/// The interval in which connections without traffic are polled, so that they stay alive.
pub const KEEP_ALIVE_NS: u64 = 100_000_000;

/// Returns a function of the time that calls `work` in this interval.
pub fn at_intervals(
    interval_ns: u64,
    mut work: impl FnMut() -> Result<(), String>,
) -> impl FnMut(u64) -> Result<(), String> {
    let mut next = 0;
    move |now| {
        if now < next {
            return Ok(());
        }
        next = now + interval_ns;
        work()
    }
}

/// When messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Each connection sends its next message when an earlier one returned.
    Closed {
        /// Outstanding messages per connection.
        outstanding: usize,
    },
    /// Messages leave at fixed times, independent of the returned ones.
    Open {
        /// Messages per connection and second.
        rate: u64,
    },
}

impl Shape {
    /// No messages are sent.
    pub const IDLE: Self = Self::Closed { outstanding: 0 };

    /// Messages per second over all connections, if there is a schedule.
    pub const fn rate(self, connections: usize) -> Option<u64> {
        match self {
            Self::Open { rate } => Some(connections as u64 * rate),
            Self::Closed { .. } => None,
        }
    }
}

/// How the client's thread uses its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// It polls all the time, and sends all due messages of a schedule between two polls. A poll of many sockets takes long.
    Batch,
    /// It polls one client after the other, and at most one message leaves between two polls. The outstanding messages of thousands of
    /// connections would not fit the server's receive buffer. Where the client is slower than the server, they wait at the client. A
    /// message of a schedule is left out when its connection has too many outstanding ones, or when the next one is due.
    RoundRobin,
    /// It shares its core and pauses when there is nothing to do. All due messages leave after a pause.
    Paused,
}

/// The messages to send, and the connections that carry them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// When messages are sent.
    pub shape: Shape,
    /// The number of connections.
    pub connections: usize,
    /// The number of connections per [`Client`].
    pub per_client: usize,
    /// Bytes of a message.
    pub bytes: usize,
    /// Bytes of the answer to a message.
    pub answer_bytes: usize,
    /// The number of channels that the messages of a connection use in turn, at least one.
    pub channels: u8,
    /// Whether messages are unreliable, so that a closed loop goes on without lost ones.
    pub may_lose: bool,
    /// How the client's thread uses its core.
    pub polling: Polling,
    /// The client limits a schedule when more than one message in ten leaves later than this, in nanoseconds.
    pub late_ns: u64,
    /// The time after the window in which outstanding messages may return.
    pub settle: Duration,
}

impl Traffic {
    /// Unreliable messages over connections of one client, which are answered as they are. The client's thread has a core of its own.
    pub const fn echo(shape: Shape, connections: usize, bytes: usize) -> Self {
        Self {
            shape,
            connections,
            per_client: connections,
            bytes,
            answer_bytes: bytes,
            channels: 1,
            may_lose: true,
            polling: Polling::Batch,
            late_ns: 50_000,
            settle: Duration::from_secs(2),
        }
    }
}

/// Sends traffic over its clients.
pub struct Generator<C> {
    clients: Vec<C>,
    connections: Vec<Outstanding>,
    /// The number of outstanding messages of each client.
    outstanding: Vec<u64>,
    /// Connections that received a message in the last poll.
    active: Vec<usize>,
    /// The time at which the closed loop next looks for lost messages of each client.
    retry_at: Vec<u64>,
    /// The connection whose turn is next in a schedule, or where a closed loop begins to search.
    turn: usize,
    /// Messages per second of a schedule, over all connections.
    rate: u64,
    /// Room for one message.
    message: Vec<u8>,
    traffic: Traffic,
    recorder: Recorder,
}

/// Connects, runs the traffic, and prints the [`Window`] and the [`EchoCounts`] as one line each.
pub fn run_client<C: Client>(
    traffic: Traffic,
    (warm_up, counted): (Duration, Duration),
    client: impl FnMut(usize) -> Result<C, String>,
) -> Result<(), String> {
    let mut generator = Generator::over(traffic, traffic.connect(client)?);
    let warm = Window::beginning_at(clock::host_ns(), warm_up);
    let window = Window::beginning_at(warm.end, counted);
    print_json(&window)?;
    generator.run(warm, |_| Ok(()))?;
    generator.run(window, |_| Ok(()))?;
    print_json(&generator.settle()?)
}

impl<C: Client> Generator<C> {
    /// A generator over established connections.
    pub fn over(traffic: Traffic, clients: Vec<C>) -> Self {
        let connections =
            (0..traffic.connections).map(|connection| Outstanding::beginning_at(first_number(connection)));
        Self {
            connections: connections.collect(),
            outstanding: vec![0; clients.len()],
            active: Vec::with_capacity(traffic.connections),
            retry_at: vec![0; clients.len()],
            turn: 0,
            rate: traffic.shape.rate(traffic.connections).unwrap_or(1),
            message: vec![0; traffic.bytes],
            traffic,
            recorder: Recorder::default(),
            clients,
        }
    }

    /// Changes the total rate of a schedule and the length of answers, between two windows.
    pub fn change(&mut self, rate: u64, answer_bytes: usize) {
        self.rate = rate;
        self.traffic.answer_bytes = answer_bytes;
    }

    /// Stops waiting for outstanding messages. Such a message is ignored when it still returns.
    pub fn give_up(&mut self) {
        self.connections.iter_mut().for_each(Outstanding::forget);
        self.outstanding.fill(0);
    }

    /// The clients.
    pub fn clients(&mut self) -> &mut [C] {
        &mut self.clients
    }

    /// The clients alone, with their connections open.
    pub fn into_clients(self) -> Vec<C> {
        self.clients
    }

    /// Runs the traffic until the window ends. `poll` is called between two polls with the time.
    ///
    /// It can be called again for further windows. Messages that are outstanding then belong to the start of the new window.
    pub fn run(
        &mut self,
        window: Window,
        mut poll: impl FnMut(u64) -> Result<(), String>,
    ) -> Result<(), String> {
        self.recorder.begin(window, self.outstanding.iter().sum());
        match self.traffic.shape {
            _ if self.clients.is_empty() => Ok(()),
            Shape::Closed { outstanding } => self.closed(outstanding, window, &mut poll),
            Shape::Open { .. } => self.open(window, &mut poll),
        }
    }

    /// The records of the window until now.
    pub const fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn closed(
        &mut self,
        outstanding: usize,
        window: Window,
        poll: &mut dyn FnMut(u64) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let mut is_any = false;
            // The search begins with another connection each time, so that no connection is always first.
            self.turn = (self.turn + 1) % self.connections.len();
            for client in 0..self.clients.len() {
                let now = clock::host_ns();
                if now >= window.end {
                    return Ok(());
                }
                self.poll_client(client, now)?;
                is_any |= !self.active.is_empty();
                // This also sends the first messages.
                if self.is_round_robin() || self.active.is_empty() && now >= self.retry_at[client] {
                    self.retry_at[client] = now + RETRY_NS;
                    let first = client * self.traffic.per_client;
                    let count = self.traffic.per_client.min(self.connections.len() - first);
                    self.active.clear();
                    self.active.extend((0..count).map(|step| first + (self.turn + step) % count));
                }
                let now = clock::host_ns();
                while let Some(connection) = self.active.pop() {
                    if self.fill(connection, outstanding, now)? && self.is_round_robin() {
                        break;
                    }
                }
                self.clients[client].flush(now)?;
                poll(now)?;
            }
            self.pause_if_idle(is_any);
        }
    }

    fn is_round_robin(&self) -> bool {
        self.traffic.polling == Polling::RoundRobin
    }

    /// Sends messages until the connection has its number of outstanding ones, or one message in a turn. Returns whether one left.
    fn fill(&mut self, connection: usize, outstanding: usize, now: u64) -> Result<bool, String> {
        let mut is_sent = false;
        while self.connections[connection].awaited(now, self.traffic.may_lose) < outstanding {
            if is_sent && self.is_round_robin() || !self.send(connection, now, now)? {
                break;
            }
            is_sent = true;
        }
        Ok(is_sent)
    }

    fn open(
        &mut self,
        window: Window,
        poll: &mut dyn FnMut(u64) -> Result<(), String>,
    ) -> Result<(), String> {
        let (first, rate) = (clock::host_ns(), self.rate);
        let due_of = |message: u64| first + message * 1_000_000_000 / rate;
        let (mut message, mut idle_client, mut idle_poll_due) = (0_u64, 0, first);
        loop {
            let now = clock::host_ns();
            if now >= window.end {
                return Ok(());
            }
            if self.is_round_robin() {
                let connections = self.connections.len() as u64;
                let late = overdue(now.saturating_sub(first), rate, message, connections);
                self.recorder.counts.overdue += late;
                message += late;
                let passed = usize::try_from(late % connections).unwrap_or(0);
                self.turn = (self.turn + passed) % self.connections.len();
            }
            while due_of(message) <= now {
                let is_sent = self.take_turn(now, due_of(message))?;
                let client = self.client_of(self.turn);
                self.turn = (self.turn + 1) % self.connections.len();
                message += 1;
                let ends = is_sent && self.is_round_robin();
                if ends || self.client_of(self.turn) != client || due_of(message) > now {
                    self.clients[client].flush(now)?;
                }
                if ends {
                    break;
                }
            }
            let polled = if self.is_round_robin() { 0 } else { self.clients.len() };
            for client in 0..polled {
                if self.outstanding[client] > 0 {
                    self.poll_and_flush(client)?;
                }
            }
            if self.is_round_robin() || idle_poll_due <= now {
                self.poll_and_flush(idle_client)?;
                idle_client = (idle_client + 1) % self.clients.len();
                idle_poll_due = now + IDLE_POLL_NS;
            }
            poll(now)?;
            self.pause_if_idle(due_of(message) <= now);
        }
    }

    /// Sends the message of a schedule whose turn is next. Returns whether it left.
    fn take_turn(&mut self, now: u64, due: u64) -> Result<bool, String> {
        let is_full = || self.connections[self.turn].awaited(now, self.traffic.may_lose) >= OUTSTANDING_MAX;
        if self.is_round_robin() && is_full() {
            self.recorder.counts.no_room += 1;
            return Ok(false);
        }
        self.recorder.on_departure(now - due);
        self.send(self.turn, now, due)
    }

    fn pause_if_idle(&self, is_any: bool) {
        if self.traffic.polling == Polling::Paused && !is_any {
            clock::pause(PAUSE);
        }
    }

    /// Waits for outstanding messages and returns the counts of the window.
    pub fn settle(&mut self) -> Result<EchoCounts, String> {
        self.recorder.counts.lost = self.await_outstanding(self.traffic.settle)?;
        Ok(self.recorder.finish())
    }

    /// Waits for outstanding messages and returns the number of those that did not return within this time.
    pub fn await_outstanding(&mut self, time: Duration) -> Result<u64, String> {
        let deadline = clock::now() + time;
        while self.outstanding.iter().any(|count| *count > 0) && clock::now() < deadline {
            for client in 0..self.clients.len() {
                self.poll_and_flush(client)?;
            }
            self.pause_if_idle(false);
        }
        Ok(self.outstanding.iter().sum())
    }

    /// Receives all datagrams of all clients, and sends replies that are due. Connections stay alive, and no messages are sent.
    pub fn poll(&mut self) -> Result<(), String> {
        (0..self.clients.len()).try_for_each(|client| self.poll_and_flush(client))
    }

    fn poll_and_flush(&mut self, client: usize) -> Result<(), String> {
        let now = clock::host_ns();
        self.poll_client(client, now)?;
        self.clients[client].flush(now)
    }

    /// Receives all datagrams of one client.
    fn poll_client(&mut self, client: usize, now: u64) -> Result<(), String> {
        let Self { clients, connections, outstanding, active, traffic, recorder, .. } = self;
        active.clear();
        let first = client * traffic.per_client;
        let outstanding = &mut outstanding[client];
        clients[client].receive(now, &mut |index, message| {
            let now = clock::host_ns();
            let connection = first.saturating_add(index);
            let number = number_of(message, traffic.answer_bytes)
                .filter(|number| connection_of(*number) == connection);
            let known = number.zip(connections.get_mut(connection));
            let (due, is_forgotten) =
                known.map_or((None, false), |(number, out)| (out.take(number), out.is_forgotten(number)));
            if let Some(due) = due {
                recorder.on_echo(now, now.saturating_sub(due));
                active.push(connection);
                *outstanding -= 1;
            } else if !is_forgotten {
                recorder.counts.unexpected += 1;
            }
        })?;
        recorder.on_poll(now, active.is_empty());
        Ok(())
    }

    /// Sends a message. Returns whether the connection took it.
    fn send(&mut self, connection: usize, now: u64, due: u64) -> Result<bool, String> {
        let (client, index) = (self.client_of(connection), connection % self.traffic.per_client);
        let out = &mut self.connections[connection];
        let channel = u8::try_from(out.next() % u64::from(self.traffic.channels)).unwrap_or(0);
        write_number(&mut self.message, out.next());
        let is_taken = self.clients[client].send(now, index, channel, &self.message)?;
        if is_taken {
            out.add(due);
            self.outstanding[client] += 1;
            self.recorder.counts.sent += 1;
        } else if matches!(self.traffic.shape, Shape::Open { .. }) {
            // A closed loop tries again.
            self.recorder.counts.refused += 1;
        }
        Ok(is_taken)
    }

    const fn client_of(&self, connection: usize) -> usize {
        connection / self.traffic.per_client
    }
}

/// Returns the number of messages of a schedule, from this one on, that are overdue: the next one of their connection is due.
const fn overdue(elapsed_ns: u64, rate: u64, message: u64, connections: u64) -> u64 {
    let due = elapsed_ns * rate / 1_000_000_000 + 1;
    due.saturating_sub(message + connections)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// Echoes nothing until it may, and then everything.
    #[derive(Default)]
    struct Late {
        held: Vec<Vec<u8>>,
        may_echo: Rc<Cell<bool>>,
    }

    impl Client for Late {
        fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
            let count = if self.may_echo.get() { self.held.len() } else { 0 };
            self.held.drain(..count).for_each(|message| take(0, &message));
            Ok(())
        }

        fn send(&mut self, _: u64, _: usize, _: u8, message: &[u8]) -> Result<bool, String> {
            self.held.push(message.to_vec());
            Ok(true)
        }
    }

    #[test]
    fn a_message_is_overdue_when_the_next_one_of_its_connection_is_due() {
        // A message per microsecond, of three connections in turn.
        let late = |elapsed_ns, message| overdue(elapsed_ns, 1_000_000, message, 3);
        assert_eq!([0, 2_999, 3_000, 5_999].map(|elapsed_ns| late(elapsed_ns, 0)), [0, 0, 1, 3]);
        assert_eq!((late(5_999, 3), late(5_999, 9)), (0, 0));
    }

    #[test]
    fn a_turn_without_room_is_left_out() {
        let shape = Shape::Open { rate: 100_000 };
        let traffic =
            Traffic { polling: Polling::RoundRobin, may_lose: false, ..Traffic::echo(shape, 3, 64) };
        let mut generator = Generator::over(traffic, vec![Late::default()]);
        let (mut sent, mut no_room) = (0, 0);
        // On a busy machine, the thread may not run at all in a window.
        while sent < 3 * OUTSTANDING_MAX as u64 || no_room == 0 {
            let window = Window::beginning_at(clock::host_ns(), Duration::from_millis(20));
            generator.run(window, |_| Ok(())).expect("the client takes all messages");
            let counts = generator.recorder().finish();
            (sent, no_room) = (sent + counts.sent, counts.no_room);
        }
        assert_eq!(sent, 3 * OUTSTANDING_MAX as u64);
    }

    #[test]
    fn messages_that_were_given_up_are_ignored() {
        let may_echo = Rc::new(Cell::new(false));
        let client = Late { may_echo: Rc::clone(&may_echo), ..Late::default() };
        let traffic = Traffic::echo(Shape::Open { rate: 500_000 }, 1, 64);
        let traffic = Traffic { settle: Duration::from_secs(10), ..traffic };
        let mut generator = Generator::over(traffic, vec![client]);
        let run = |generator: &mut Generator<Late>| {
            let window = Window::beginning_at(clock::host_ns(), Duration::from_millis(20));
            generator.run(window, |_| Ok(())).expect("the client takes all messages");
            generator.recorder().finish()
        };
        // On a busy machine, the thread may not run at all in a window.
        while run(&mut generator).sent == 0 {}
        generator.give_up();
        may_echo.set(true);
        let (mut echoed, mut unexpected) = (0, 0);
        while echoed == 0 {
            let counts = run(&mut generator);
            (echoed, unexpected) = (counts.echoed, unexpected + counts.unexpected);
        }
        let counts = generator.settle().expect("the client takes all messages");
        assert_eq!((unexpected + counts.unexpected, counts.lost), (0, 0));
        assert_eq!(counts.back_in_all(), counts.sent_in_all(), "only those sent since then");
    }
}
