//! Thousands of connections on one thread that never sleeps, and the two loads of the reference: echoes in a closed loop until
//! so many are back, and turns at fixed times, whatever comes back.
//!
//! Each look at a socket sends one message at most: what all connections have out at once would not fit the server's receive
//! buffer, and where the client is the slower one, that is where it would wait.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_benches::numbered::{connection_of, number_of, write_number};
use drumfire_benches::{GIVEN_UP_NS, PER_SOCKET, Schedule, Tally, Turns, Window};
use drumfire_tools::clock;

use super::connecting::Connecting;
use super::line::{Line, OUT_MAX, PAYLOAD_BYTES};
use super::meter::Meter;
use crate::load::{Carried, Crowd};

/// Connections with a handshake begun in a second: a server takes 2,000.
pub(crate) const RAMP_PER_SECOND: u64 = 1_700;

/// Sockets whose connections are being made at a time: what is begun and not looked after in time has to begin anew.
const PENDING_MAX: usize = 8;

/// Connections that are made are looked after this often while others are: they have acks to take and to send.
const CHORE_NS: u64 = 100_000_000;

/// Beyond the time that the ramp is to take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Echoes that take so long will not come to an end.
const LOAD_PATIENCE: Duration = Duration::from_secs(300);

/// What is still out at the window's end has this long to come back; what comes later was undelivered.
const SETTLE: Duration = Duration::from_secs(1);

/// A reliable message that is not back after so long never will be.
const LAST_PATIENCE: Duration = Duration::from_secs(20);

/// A schedule begins this long after it was made.
const LEAD_NS: u64 = 1_000_000;

/// All connections, sixteen on a socket.
pub(crate) struct Fleet<C> {
    /// How they were made.
    pub(crate) connecting: Connecting,
    crowds: Vec<C>,
    lines: Vec<Line>,
    /// Of each socket: which connections may send, and since when.
    ready: Vec<VecDeque<(usize, u64)>>,
    /// Connections on which something came in the last look.
    came: Vec<usize>,
    tally: Tally,
    /// Whether messages may be lost for good: then one that is long gone is not waited for.
    may_lose: bool,
}

/// What came of a load.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// Not back after [`SETTLE`]; of reliable messages, those that came after all included.
    pub(crate) undelivered: u64,
    /// Of a schedule alone.
    pub(crate) turns: Option<Turns>,
}

impl<C: Crowd> Fleet<C> {
    /// Makes all connections, so many in a second where it matters; `crowd` begins some that share a socket.
    ///
    /// # Errors
    ///
    /// Why one of them could not be made.
    pub(crate) fn connect(
        count: usize,
        may_lose: bool,
        per_second: Option<u64>,
        mut crowd: impl FnMut(usize) -> Result<C, String>,
    ) -> Result<Self, String> {
        let interval = per_second.map_or(0, |rate| PER_SOCKET as u64 * 1_000_000_000 / rate);
        let ramp = Duration::from_nanos(interval * count.div_ceil(PER_SOCKET) as u64);
        let deadline = clock::now() + PATIENCE + 2 * ramp;
        let (mut crowds, mut made, mut chore) = (Vec::<C>::new(), 0, 0);
        let mut times = Vec::<(u64, Option<u64>)>::new();
        // All before this one are ready.
        let (mut ready, mut due, mut before) = (0, 0, clock::host_ns());
        while ready < crowds.len() || made < count {
            let now = clock::host_ns();
            if made < count && due <= now && crowds.len() - ready < PENDING_MAX {
                let some = PER_SOCKET.min(count - made);
                crowds.push(crowd(some)?);
                times.push((now, None));
                made += some;
                // What was late is not made up for: a server refuses what comes too fast.
                due = now + interval;
            }
            // However long it took to begin others, nobody is forgotten for it.
            let owed = 1 + (now - before) * ready as u64 / CHORE_NS;
            before = now;
            for _ in 0..owed.min(ready as u64) {
                chore = (chore + 1) % ready;
                look_idly(&mut crowds[chore])?;
            }
            for (pending, (_, there)) in crowds[ready..].iter_mut().zip(&mut times[ready..]) {
                look_idly(pending)?;
                if pending.is_ready() {
                    there.get_or_insert_with(clock::host_ns);
                }
            }
            ready += times[ready..].iter().take_while(|(_, there)| there.is_some()).count();
            if clock::now() > deadline {
                return Err(format!("{made} of {count} connections were begun in time"));
            }
        }
        let (lines, sockets) = ((0..count).map(Line::of).collect(), crowds.len());
        let ready = (0..sockets).map(|_| VecDeque::with_capacity(2 * PER_SOCKET)).collect();
        let came = Vec::with_capacity(OUT_MAX * PER_SOCKET);
        let times: Vec<_> = times.into_iter().map(|(begun, there)| (begun, there.unwrap_or(begun))).collect();
        let connecting = Connecting::of(count, &times)?;
        Ok(Self { connecting, crowds, lines, ready, came, tally: Tally::default(), may_lose })
    }

    /// What all sockets carried so far.
    pub(crate) fn carried(&self) -> Carried {
        self.crowds.iter().map(Crowd::carried).sum()
    }

    /// Lets each connection have one message out all the time: `warm_up` echoes that do not count, then `total` that do.
    ///
    /// # Errors
    ///
    /// Why a connection failed.
    pub(crate) fn echo(
        &mut self,
        warm_up: u64,
        total: u64,
        meter: &mut Meter<'_>,
    ) -> Result<Outcome, String> {
        self.begin(Window { start: u64::MAX, end: u64::MAX });
        let begun = clock::host_ns();
        for line in 0..self.lines.len() {
            self.ready[line / PER_SOCKET].push_back((line, begun));
        }
        let deadline = clock::now() + LOAD_PATIENCE;
        let mut looked_for = begun;
        let mut is_looking = false;
        for crowd in (0..self.crowds.len()).cycle() {
            let now = clock::host_ns();
            if crowd == 0 {
                is_looking = self.may_lose && now > looked_for + GIVEN_UP_NS / 5;
                looked_for = if is_looking { now } else { looked_for };
                if clock::now() > deadline {
                    return Err("the echoes came to no end".to_owned());
                }
            }
            self.look(crowd, now)?;
            self.make_ready(crowd, now, is_looking);
            if let Some((line, since)) = self.ready[crowd].pop_front() {
                self.send(line, since)?;
            }
            self.crowds[crowd].flush(now)?;
            meter.on_pass(now, &self.tally.window);
            let back = self.lines_back();
            if self.tally.window.start == u64::MAX {
                if back >= warm_up {
                    meter.begin(self.carried())?;
                    self.tally.window.start = clock::host_ns();
                }
            } else if self.tally.counts.echoed >= total {
                self.tally.window.end = clock::host_ns();
                meter.end(self.carried())?;
                break;
            }
        }
        let undelivered = self.settle()?;
        Ok(Outcome { tally: self.finish(), undelivered, turns: None })
    }

    /// Gives each connection so many turns in a second, at fixed times: `warm_up` that does not count, then `counted` that
    /// does. A turn is left out when the connection has [`OUT_MAX`] messages out, or when the next one has come before it.
    ///
    /// # Errors
    ///
    /// Why a connection failed.
    pub(crate) fn rate(
        &mut self,
        per_second: u64,
        (warm_up, counted): (Duration, Duration),
        meter: &mut Meter<'_>,
    ) -> Result<Outcome, String> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let first = clock::host_ns() + LEAD_NS;
        let start = first + nanos(warm_up);
        let window = Window { start, end: start + nanos(counted) };
        let schedule = Schedule::new(first, per_second, self.lines.len(), window.start..window.end);
        let mut turns = Turns::default();
        self.begin(window);
        let mut has_begun = false;
        for crowd in (0..self.crowds.len()).cycle() {
            let now = clock::host_ns();
            if !has_begun && now >= window.start {
                meter.begin(self.carried())?;
                has_begun = true;
            }
            if now >= window.end {
                meter.end(self.carried())?;
                break;
            }
            self.look(crowd, now)?;
            self.take_turn(crowd, now, &schedule, &mut turns)?;
            self.crowds[crowd].flush(now)?;
            meter.on_pass(now, &window);
        }
        for (place, line) in self.lines.iter().enumerate() {
            turns.late += schedule.counted(place, line.turn, u64::MAX);
        }
        turns.offered = schedule.offered();
        let undelivered = self.settle()?;
        Ok(Outcome { tally: self.finish(), undelivered, turns: Some(turns) })
    }

    fn begin(&mut self, window: Window) {
        self.tally = Tally::default();
        self.tally.window = window;
        self.ready.iter_mut().for_each(VecDeque::clear);
        self.lines.iter_mut().for_each(Line::forget);
    }

    fn finish(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Messages that came back since the load began.
    fn lines_back(&self) -> u64 {
        self.tally.counts.early + self.tally.counts.echoed
    }

    /// The connections on which something came may send; so may those whose message is long gone, if they are looked for.
    fn make_ready(&mut self, crowd: usize, now: u64, is_looking: bool) {
        while let Some(line) = self.came.pop() {
            // What came late of one that was given up gives no second turn.
            if self.lines[line].out.awaited(now, self.may_lose) == 0 && !self.lines[line].is_ready {
                self.lines[line].is_ready = true;
                self.ready[crowd].push_back((line, now));
            }
        }
        let first = crowd * PER_SOCKET;
        for line in (first..self.lines.len().min(first + PER_SOCKET)).filter(|_| is_looking) {
            let it = &mut self.lines[line];
            if !it.out.is_empty() && it.out.awaited(now, true) == 0 && !it.is_ready {
                it.is_ready = true;
                self.ready[crowd].push_back((line, now));
            }
        }
    }

    /// Lets one connection of this socket have its newest turn, and counts those of all that were left out.
    fn take_turn(
        &mut self,
        crowd: usize,
        now: u64,
        schedule: &Schedule,
        turns: &mut Turns,
    ) -> Result<(), String> {
        let first = crowd * PER_SOCKET;
        let count = PER_SOCKET.min(self.lines.len() - first);
        let mut is_sent = false;
        for step in 0..count {
            // Where to begin changes, so that nobody comes first all the time.
            let place = first + (step + self.lines[first].turn_of_socket) % count;
            let line = &mut self.lines[place];
            let Some(newest) = schedule.newest(place, now).filter(|newest| *newest >= line.turn) else {
                continue;
            };
            let has_room = line.out.awaited(now, self.may_lose) < OUT_MAX;
            let left_out = schedule.counted(place, line.turn, newest);
            let newest_counts = schedule.counted(place, newest, newest + 1);
            if has_room {
                turns.late += left_out;
            } else {
                turns.no_room += left_out + newest_counts;
            }
            line.turn = if has_room { newest } else { newest + 1 };
            if !has_room || is_sent {
                continue;
            }
            line.turn = newest + 1;
            is_sent = true;
            if self.send(place, schedule.due(place, newest))? {
                turns.sent += newest_counts;
            } else {
                turns.refused += newest_counts;
            }
        }
        self.lines[first].turn_of_socket = (self.lines[first].turn_of_socket + 1) % count;
        Ok(())
    }

    /// Waits for what is still out, and answers how much of it took too long. What may be lost is not waited for longer.
    fn settle(&mut self) -> Result<u64, String> {
        self.look_until_all_is_back(SETTLE)?;
        let undelivered = self.out_count();
        if !self.may_lose {
            self.look_until_all_is_back(LAST_PATIENCE)?;
        }
        self.tally.counts.lost = self.out_count();
        Ok(undelivered)
    }

    fn look_until_all_is_back(&mut self, patience: Duration) -> Result<(), String> {
        let deadline = clock::now() + patience;
        while self.lines.iter().any(|line| !line.out.is_empty()) && clock::now() < deadline {
            for crowd in 0..self.crowds.len() {
                let now = clock::host_ns();
                self.look(crowd, now)?;
                self.crowds[crowd].flush(now)?;
            }
        }
        Ok(())
    }

    fn out_count(&self) -> u64 {
        self.lines.iter().map(|line| line.out.count()).sum()
    }

    /// Takes what came for one socket.
    fn look(&mut self, crowd: usize, now: u64) -> Result<(), String> {
        let Self { crowds, lines, came, tally, .. } = self;
        came.clear();
        let first = crowd * PER_SOCKET;
        crowds[crowd].receive(now, &mut |place, message| {
            let place = first.saturating_add(place);
            let due = number_of(message, PAYLOAD_BYTES)
                .filter(|number| connection_of(*number) == place)
                .and_then(|number| lines.get_mut(place)?.out.take(number));
            match due {
                Some(due) => {
                    let now = clock::host_ns();
                    tally.on_echo(now, now.saturating_sub(due));
                    came.push(place);
                }
                None => tally.counts.strangers += 1,
            }
        })
    }

    /// Sends the next message of a connection, which was to leave at `due`; false when there was no room for it.
    fn send(&mut self, place: usize, due: u64) -> Result<bool, String> {
        let (line, now) = (&mut self.lines[place], clock::host_ns());
        let mut message = [0; PAYLOAD_BYTES];
        write_number(&mut message, line.out.next());
        let crowd = &mut self.crowds[place / PER_SOCKET];
        line.is_ready = false;
        if crowd.send(now, place % PER_SOCKET, 0, &message)? {
            line.out.sent_at(now, due);
            self.tally.on_sent(now);
            return Ok(true);
        }
        self.tally.counts.refused += 1;
        Ok(false)
    }
}

fn look_idly(crowd: &mut impl Crowd) -> Result<(), String> {
    let now = clock::host_ns();
    crowd.receive(now, &mut |_, _| {})?;
    crowd.flush(now)
}
