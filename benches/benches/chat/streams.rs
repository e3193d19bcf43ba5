//! The clients of the baseline: a TCP connection each, all driven by one poll.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_benches::Counts;
use drumfire_tools::clock;
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::bots::{Bots, CONNECT_MAX};
use crate::ears::{Ears, Span, Tally};
use crate::plan::{Plan, ns};
use crate::schedule::{MESSAGE_MAX_BYTES, Schedule};

/// Bytes that are read at a time.
const READ_BYTES: usize = 65_536;

/// How long a poll waits: clients look so often whether they are to say something.
const LOOK: Duration = Duration::from_millis(1);

/// A connection.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    /// The begin of a message whose end has not come.
    begun: Vec<u8>,
    /// What was said and not written.
    unwritten: Vec<u8>,
}

/// All connections; one more than speak where one stops reading.
#[derive(Debug)]
pub(crate) struct Streams {
    poll: Poll,
    events: Events,
    lines: Vec<Line>,
    memory: Vec<u8>,
    voice: Schedule,
    ears: Ears,
    stalled: Ears,
    speaking: usize,
}

impl Streams {
    /// Connects all.
    pub(crate) fn connect(plan: Plan, server: SocketAddr) -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("the clients' connections: {error}");
        let deadline = clock::host_ns() + ns(CONNECT_MAX);
        let mut bots = Self {
            poll: Poll::new().map_err(fail)?,
            events: Events::with_capacity(1_024),
            lines: Vec::new(),
            memory: vec![0; READ_BYTES],
            voice: Schedule::new(plan, 0, plan.clients),
            ears: Ears::new(plan, plan.clients, true)?,
            stalled: Ears::new(plan, 1, false)?,
            speaking: plan.clients as usize,
        };
        for place in 0..plan.connections() as usize {
            let stream = std::net::TcpStream::connect(server).map_err(fail)?;
            stream.set_nodelay(true).map_err(fail)?;
            stream.set_nonblocking(true).map_err(fail)?;
            let mut stream = TcpStream::from_std(stream);
            let interest = Interest::READABLE.add(Interest::WRITABLE);
            bots.poll.registry().register(&mut stream, Token(place), interest).map_err(fail)?;
            bots.lines.push(Line { stream, begun: Vec::new(), unwritten: Vec::new() });
            if clock::host_ns() > deadline {
                return Err(format!("{place} of {} connected in time", plan.connections()));
            }
        }
        Ok(bots)
    }

    fn speak(&mut self, span: &Span) -> Result<(), String> {
        let (now, mut memory) = (clock::host_ns(), [0; MESSAGE_MAX_BYTES]);
        while let Some(turn) = self.voice.next(now, span.start_ns, span.end_ns) {
            let tally = &mut self.ears.tally;
            tally.offered += 1;
            let line = self.lines.get_mut(turn.place).ok_or("no such client")?;
            if turn.is_over {
                tally.skipped += 1;
            } else if line.unwritten.is_empty() {
                let message = turn.write(&mut memory);
                line.unwritten.push(u8::try_from(message.len()).unwrap_or(0));
                line.unwritten.extend_from_slice(message);
                self.voice.said(turn.place);
                tally.said += 1;
                line.write()?;
            } else {
                tally.refused += 1;
            }
        }
        Ok(())
    }

    /// Reads what there is, up to the last byte: another event comes only when more does.
    fn hear(&mut self, place: usize, span: &Span) -> Result<(), String> {
        let Self { lines, memory, ears, stalled, speaking, .. } = self;
        let line = lines.get_mut(place).ok_or("no such client")?;
        let (ears, place) = if place < *speaking { (ears, place) } else { (stalled, 0) };
        loop {
            match line.stream.read(memory) {
                // That the server is gone shows in what never came.
                Ok(0) => return Ok(()),
                Ok(count) => {
                    line.begun.extend_from_slice(memory.get(..count).unwrap_or_default());
                    line.take(|message| ears.hear(place, message, span));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(format!("a client's connection: {error}")),
            }
        }
    }
}

impl Line {
    fn write(&mut self) -> Result<(), String> {
        while !self.unwritten.is_empty() {
            match self.stream.write(&self.unwritten) {
                Ok(count) => drop(self.unwritten.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(format!("a client's connection: {error}")),
            }
        }
        Ok(())
    }

    /// Takes out all messages that are whole.
    fn take(&mut self, mut heard: impl FnMut(&[u8])) {
        let mut rest = self.begun.as_slice();
        while let Some((length, after)) = rest.split_first()
            && let Some((message, after)) = after.split_at_checked(usize::from(*length))
        {
            heard(message);
            rest = after;
        }
        let taken = self.begun.len() - rest.len();
        self.begun.drain(..taken);
    }
}

impl Bots for Streams {
    fn work(&mut self, span: &Span, is_held: bool) -> Result<bool, String> {
        self.speak(span)?;
        let before = self.tally().heard;
        self.poll.poll(&mut self.events, Some(LOOK)).map_err(|error| error.to_string())?;
        let ready: Vec<(usize, bool)> =
            self.events.iter().map(|event| (event.token().0, event.is_writable())).collect();
        for (place, is_writable) in ready {
            if is_writable && let Some(line) = self.lines.get_mut(place) {
                line.write()?;
            }
            if place < self.speaking {
                self.hear(place, span)?;
            }
            // Nobody who waits for these is to wait for all the others' too.
            self.speak(span)?;
        }
        // Its events came while it did not read.
        if !is_held && self.lines.len() > self.speaking {
            self.hear(self.speaking, span)?;
        }
        Ok(self.tally().heard > before)
    }

    fn tally(&self) -> Tally {
        self.ears.tally.plus(&self.stalled.tally)
    }

    fn latency(&self) -> Result<Histogram<u64>, String> {
        Ok(self.ears.latency.clone())
    }

    fn slowest_mean_ns(&self) -> u64 {
        self.ears.slowest_mean_ns()
    }

    fn carried(&self) -> Counts {
        Counts::new()
    }
}
