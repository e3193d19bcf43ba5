//! The client's process at work: it connects, sends a load of numbered messages, waits for each of them to come back, and
//! keeps the books of one window. One thread does it all, and it never sleeps, unless it shares its core with the relay.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_tools::clock;

use crate::face::{Client, MESSAGE_MAX_BYTES};
use crate::load::{Load, Shape, Window};
use crate::tally::Tally;

/// Where in a message's number its connection stands, the count of its messages being below.
const CONNECTION_SHIFT: u32 = 40;

/// A closed loop goes on without a message that may be lost and has not come back for this long.
const GIVEN_UP_NS: u64 = 250_000_000;

/// All connections stand after this long, or never.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections that are begun at a time.
const UNDER_WAY: usize = 16;

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

/// All connections, and what is out on each.
pub(crate) struct Drive {
    crowds: Vec<Box<dyn Client>>,
    per_crowd: usize,
    out: Vec<Out>,
    /// Connections on which something came in the last look.
    came: Vec<usize>,
    load: Load,
    may_lose: bool,
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

impl Drive {
    /// Makes so many connections, `per_crowd` of them with each call of `crowd`.
    ///
    /// # Errors
    ///
    /// Why one of them could not be made.
    pub(crate) fn connect(
        load: Load,
        (count, per_crowd): (usize, usize),
        may_lose: bool,
        mut crowd: impl FnMut(usize) -> Result<Box<dyn Client>, String>,
    ) -> Result<Self, String> {
        let deadline = clock::now() + PATIENCE;
        let mut crowds: Vec<Box<dyn Client>> = Vec::new();
        let (mut made, mut ready, mut upkeep) = (0, 0, clock::host_ns());
        while made < count || ready < crowds.len() {
            if made < count && crowds.len() - ready < UNDER_WAY.div_ceil(per_crowd) {
                let size = per_crowd.min(count - made);
                crowds.push(crowd(size)?);
                made += size;
            }
            let now = clock::host_ns();
            let from = if now >= upkeep { 0 } else { ready };
            if from == 0 {
                upkeep = now + UPKEEP_NS;
            }
            for crowd in &mut crowds[from..] {
                crowd.poll(now, &mut |_, _| {})?;
                crowd.flush(now)?;
            }
            while crowds.get(ready).is_some_and(|crowd| crowd.is_ready()) {
                ready += 1;
            }
            if clock::now() > deadline {
                return Err(format!("{count} connections were not made within {PATIENCE:?}"));
            }
            if load.is_relayed {
                clock::pause(REST);
            }
        }
        let out = (0..count).map(Out::of).collect();
        let tally = Tally::new(Window { start: 0, end: 0 })?;
        Ok(Self { crowds, per_crowd, out, came: Vec::with_capacity(count), load, may_lose, tally })
    }

    /// Runs the load and answers what came of it.
    ///
    /// # Errors
    ///
    /// Why a connection failed.
    pub(crate) fn run(mut self, window: Window) -> Result<Tally, String> {
        self.tally.window = window;
        match self.load.shape {
            Shape::Closed { outstanding } => self.closed(outstanding, window)?,
            Shape::Open { .. } => self.open(self.load.rate(self.out.len()).unwrap_or(1), window)?,
            Shape::Idle => self.idle(window)?,
        }
        self.settle()?;
        Ok(self.tally)
    }

    fn closed(&mut self, outstanding: usize, window: Window) -> Result<(), String> {
        for connection in 0..self.out.len() {
            let now = clock::host_ns();
            self.fill(connection, outstanding, now)?;
            let crowd = self.crowd_of(connection);
            self.crowds[crowd].flush(now)?;
        }
        loop {
            let mut is_any = false;
            for crowd in 0..self.crowds.len() {
                let now = clock::host_ns();
                if now >= window.end {
                    return Ok(());
                }
                self.look(crowd, now)?;
                is_any |= !self.came.is_empty();
                if self.came.is_empty() {
                    let first = crowd * self.per_crowd;
                    self.came.extend(first..self.out.len().min(first + self.per_crowd));
                }
                let now = clock::host_ns();
                while let Some(connection) = self.came.pop() {
                    self.fill(connection, outstanding, now)?;
                }
                self.crowds[crowd].flush(now)?;
            }
            self.rest(is_any);
        }
    }

    /// Sends as many messages as a closed loop has room for.
    fn fill(&mut self, connection: usize, outstanding: usize, now: u64) -> Result<(), String> {
        while self.out[connection].out_count(now, self.may_lose) < outstanding {
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
            if due_of(message) <= now {
                self.tally.on_departure(now, now - due_of(message));
                if !self.send(turn, now, due_of(message))? {
                    self.tally.count.refused += u64::from(now >= window.start);
                }
                let crowd = self.crowd_of(turn);
                self.crowds[crowd].flush(now)?;
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
            if chore_due <= now {
                self.look_and_flush(chore)?;
                chore = (chore + 1) % self.crowds.len();
                chore_due = now + CHORE_NS;
            }
            self.rest(!is_any_busy && due_of(message) <= now);
        }
    }

    /// Only looks after the connections.
    fn idle(&mut self, window: Window) -> Result<(), String> {
        while clock::host_ns() < window.end {
            for crowd in 0..self.crowds.len() {
                self.look_and_flush(crowd)?;
            }
            clock::pause(IDLE_REST);
        }
        Ok(())
    }

    fn rest(&self, is_any: bool) {
        if self.load.is_relayed && !is_any {
            clock::pause(REST);
        }
    }

    fn is_busy(&self, crowd: usize) -> bool {
        let out = self.out.chunks(self.per_crowd).nth(crowd);
        out.is_some_and(|out| out.iter().any(|out| !out.waiting.is_empty()))
    }

    /// Waits for what is still out.
    fn settle(&mut self) -> Result<(), String> {
        let deadline = clock::now() + self.load.settle(self.may_lose);
        while self.out.iter().any(|out| !out.waiting.is_empty()) && clock::now() < deadline {
            for crowd in 0..self.crowds.len() {
                self.look_and_flush(crowd)?;
            }
            self.rest(false);
        }
        self.tally.count.lost = self.out.iter().map(|out| out.waiting.len() as u64).sum();
        Ok(())
    }

    fn look_and_flush(&mut self, crowd: usize) -> Result<(), String> {
        let now = clock::host_ns();
        self.look(crowd, now)?;
        self.crowds[crowd].flush(now)
    }

    /// Takes what came for one crowd.
    fn look(&mut self, crowd: usize, now: u64) -> Result<(), String> {
        let Self { crowds, out, came, tally, per_crowd, .. } = self;
        came.clear();
        let first = crowd * *per_crowd;
        crowds[crowd].poll(now, &mut |place, message| {
            let now = clock::host_ns();
            let connection = first + place;
            let due = number_of(message)
                .filter(|number| number >> CONNECTION_SHIFT == connection as u64)
                .and_then(|number| out.get_mut(connection)?.take(number));
            match due {
                Some(due) => {
                    tally.on_echo(now, now.saturating_sub(due));
                    came.push(connection);
                }
                None => tally.count.strangers += 1,
            }
        })?;
        tally.on_look(now, came.is_empty());
        Ok(())
    }

    /// Whether the connection took the message.
    fn send(&mut self, connection: usize, now: u64, due: u64) -> Result<bool, String> {
        let (crowd, place) = (self.crowd_of(connection), connection % self.per_crowd);
        let out = &mut self.out[connection];
        let channel = u8::try_from(out.next % u64::from(self.load.channels)).unwrap_or(0);
        let mut memory = [0; MESSAGE_MAX_BYTES];
        let message = &mut memory[..self.load.bytes];
        write_number(message, out.next);
        let is_taken = self.crowds[crowd].send(now, place, channel, message)?;
        if is_taken {
            out.waiting.push_back(Sent { number: out.next, due });
            out.next += 1;
            self.tally.on_sent(now);
        }
        Ok(is_taken)
    }

    const fn crowd_of(&self, connection: usize) -> usize {
        connection / self.per_crowd
    }
}

impl Out {
    fn of(connection: usize) -> Self {
        Self { next: (connection as u64) << CONNECTION_SHIFT, waiting: VecDeque::new() }
    }

    /// How many messages a closed loop waits for.
    fn out_count(&self, now: u64, may_lose: bool) -> usize {
        if !may_lose {
            return self.waiting.len();
        }
        self.waiting.iter().rev().take_while(|sent| sent.due + GIVEN_UP_NS >= now).count()
    }

    /// Takes a message that came back off the list and answers when it was to be sent.
    fn take(&mut self, number: u64) -> Option<u64> {
        let place = self.waiting.iter().position(|sent| sent.number == number)?;
        self.waiting.remove(place).map(|sent| sent.due)
    }
}

/// All bytes of a message follow from its number.
fn write_number(message: &mut [u8], number: u64) {
    for chunk in message.chunks_mut(8) {
        chunk.copy_from_slice(&number.to_be_bytes()[..chunk.len()]);
    }
}

/// Whose connection's message this is, by its number.
pub(crate) fn connection_of(message: &[u8]) -> usize {
    let number = message.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    usize::try_from(number >> CONNECTION_SHIFT).unwrap_or(usize::MAX)
}

/// The number of a message; nothing when it is not one that was sent, or the answer to it.
fn number_of(bytes: &[u8]) -> Option<u64> {
    let number = *bytes.first_chunk()?;
    bytes.chunks(8).all(|chunk| number.starts_with(chunk)).then(|| u64::from_be_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_its_number_only_when_no_byte_of_it_was_changed() {
        let mut message = [0; 64];
        write_number(&mut message, 0x0102_0304_0506_0708);
        assert_eq!(number_of(&message), Some(0x0102_0304_0506_0708));
        message[40] ^= 1;
        assert_eq!(number_of(&message), None);
        assert_eq!(number_of(&message[..7]), None);
    }

    #[test]
    fn a_closed_loop_goes_on_without_lost_messages_only_where_they_may_be_lost() {
        let mut out = Out::of(3);
        out.waiting.push_back(Sent { number: 1, due: 0 });
        out.waiting.push_back(Sent { number: 2, due: GIVEN_UP_NS });
        let now = GIVEN_UP_NS + 1;
        assert_eq!((out.out_count(now, true), out.out_count(now, false)), (1, 2));
        assert_eq!((out.take(1), out.take(1)), (Some(0), None));
    }
}
