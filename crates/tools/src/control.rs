//! The control connection: TCP between sender and receiver, on the number of the UDP port.
//!
//! One JSON object per line, in this order:
//!
//! | from | message | when |
//! | --- | --- | --- |
//! | sender | `hello` | it is connected |
//! | receiver | `welcome` or `refused` | it has a table for the flows, or a reason to refuse |
//! | sender | `started` | its sockets are ready and it is about to send |
//! | receiver | `stop` | optional: the sender should stop early |
//! | sender | `finished` | it has sent its last datagram |
//! | receiver | `books` | its queues are empty |
//!
//! Lines have a maximum length, and fields from the peer are checked. Nothing here starts a thread or reads a clock: every wait
//! takes a `keep_waiting`, which is called after each read. The connection is neither encrypted nor authenticated, so the port
//! belongs in a trusted network.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod message;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::error::{Error, printable};
use crate::report::Report;
pub use message::{Finished, Hello, Sealed, SentMessages, Welcome};
use message::{Message, check_report, malformed, parse};

/// The version of the messages. Two sides with different versions refuse each other.
pub const VERSION: u32 = 6;

/// The maximum length of a line in bytes, without its newline: room for 65,536 ids, or for 131,072 counters.
pub const MAX_LINE_BYTES: usize = 3 * 1024 * 1024;

/// The read timeout of the stream: how long a wait lasts before it asks its caller whether to go on.
const STEP: Duration = Duration::from_millis(20);

/// How long connecting, or one write, may block before the connection counts as broken.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a new connection may take to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of connections without a hello. More wait in the backlog of the listener.
const MAX_PENDING: usize = 16;

/// The maximum number of bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// A stream of lines. Reads end after the read timeout of the stream.
#[derive(Debug)]
struct Channel<S = TcpStream> {
    stream: BufReader<S>,
    /// The line that is being received.
    line: Vec<u8>,
}

/// The end of a sender that the receiver has accepted.
#[derive(Debug)]
pub struct SenderEnd {
    channel: Channel,
    /// The address of the receiver.
    pub peer: SocketAddr,
}

/// The end of a receiver, for a sender with a valid hello.
#[derive(Debug)]
pub struct ReceiverEnd {
    channel: Channel,
    /// The traffic that the sender announced.
    pub hello: Hello,
    /// The address of the sender.
    pub peer: SocketAddr,
    /// Whether the flows of this sender deliver messages.
    has_messages: bool,
}

/// The control port of a receiver. Connections without a hello block neither a run nor the next sender.
#[derive(Debug)]
pub struct ControlPort {
    listener: TcpListener,
    pending: VecDeque<Pending>,
}

#[derive(Debug)]
struct Pending {
    channel: Channel,
    peer: SocketAddr,
    deadline: Instant,
}

impl<S: Read> Channel<S> {
    fn over(stream: S) -> Self {
        Self { stream: BufReader::with_capacity(READ_BYTES, stream), line: Vec::new() }
    }

    /// Returns the next line without its newline, or `None` if it is not whole yet. It reads once, so that a peer that sends byte
    /// by byte does not block the caller.
    fn poll_line(&mut self, waiting_for: &'static str) -> Result<Option<Vec<u8>>, Error> {
        let bytes = match self.stream.fill_buf() {
            Ok([]) => return Err(closed_early(waiting_for)),
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {
                    return Ok(None);
                }
                _ => return Err(broken(&error, waiting_for)),
            },
        };
        let mut parts = bytes.split_inclusive(|byte| *byte == b'\n');
        let part = parts.next().unwrap_or_default();
        let text = part.strip_suffix(b"\n");
        let is_whole = text.is_some();
        self.line.extend_from_slice(text.unwrap_or(part));
        let taken = part.len();
        self.stream.consume(taken);
        if self.line.len() > MAX_LINE_BYTES {
            return Err(line_too_long());
        }
        Ok(is_whole.then(|| std::mem::take(&mut self.line)))
    }

    /// Returns the next message, or `None` if it has not arrived.
    fn poll(&mut self, name: &'static str) -> Result<Option<Message>, Error> {
        self.poll_line(name)?.map(|line| parse(name, &line)).transpose()
    }

    /// Waits for a message. Returns `None` if `keep_waiting` returns false.
    fn wait(
        &mut self,
        name: &'static str,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> Result<Option<Message>, Error> {
        loop {
            let message = self.poll(name)?;
            if message.is_some() || !keep_waiting() {
                return Ok(message);
            }
        }
    }
}

impl<S: Write> Channel<S> {
    fn send(&mut self, name: &'static str, message: &Message) -> Result<(), Error> {
        let mut line = serde_json::to_vec(message).map_err(Error::run)?;
        if line.len() > MAX_LINE_BYTES {
            return Err(line_too_long());
        }
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(|error| broken(&error, name))
    }
}

impl Channel {
    fn new(stream: TcpStream) -> io::Result<Self> {
        // Some systems copy the mode of the listener to the accepted stream.
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STEP))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        Ok(Self::over(stream))
    }

    fn stream(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Connects to the first of `addresses` that accepts.
    fn connect(addresses: &[SocketAddr]) -> Result<Self, Error> {
        let mut failure = Error::run("there is no address to connect to");
        for address in addresses {
            match TcpStream::connect_timeout(address, IO_TIMEOUT) {
                Ok(stream) => return Self::new(stream).map_err(|error| broken(&error, "hello")),
                Err(source) => {
                    failure = Error::run(format!(
                        "nothing answers at tcp {address} ({source}): start `receiver` there first, and open TCP and UDP of \
                         that port in the firewall"
                    ));
                }
            }
        }
        Err(failure)
    }
}

impl SenderEnd {
    /// Connects to the first of `addresses` that accepts, sends the hello, and waits for the welcome.
    ///
    /// # Errors
    ///
    /// The last address, the reason of a receiver that refuses, or how the connection ended.
    pub fn connect(
        addresses: &[SocketAddr],
        hello: &Hello,
        keep_waiting: impl FnMut() -> bool,
    ) -> Result<(Self, Welcome), Error> {
        let mut channel = Channel::connect(addresses)?;
        channel.send("hello", &Message::Hello(hello.clone()))?;
        let welcome = match channel.wait("welcome", keep_waiting)? {
            Some(Message::Welcome(welcome)) => welcome,
            other => return Err(unexpected("welcome", other)),
        };
        welcome.check(hello.traffic.flows).map_err(|problem| malformed("welcome", problem))?;
        let peer = channel.stream().peer_addr().map_err(|error| broken(&error, "started"))?;
        Ok((Self { channel, peer }, welcome))
    }

    /// Announces that the sockets are ready and the first datagram follows.
    ///
    /// # Errors
    ///
    /// How the connection ended.
    pub fn start(&mut self) -> Result<(), Error> {
        self.channel.send("started", &Message::Started)
    }

    /// Returns whether the receiver asked to stop early. It waits for one read timeout.
    pub(crate) fn is_asked_to_stop(&mut self) -> Result<bool, Error> {
        match self.channel.poll("stop")? {
            None => Ok(false),
            Some(Message::Stop) => Ok(true),
            other => Err(unexpected("stop", other)),
        }
    }

    /// Sends the sender's book and waits for the receiver's, which is in its report.
    ///
    /// # Errors
    ///
    /// The receiver's book does not add up, or how the connection ended.
    pub fn finish(
        &mut self,
        finished: Finished,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> Result<Report, Error> {
        let sent = finished.counts();
        self.channel.send("finished", &Message::Finished(finished))?;
        loop {
            match self.channel.wait("books", &mut keep_waiting)? {
                Some(Message::Books(report)) => {
                    check_report(&report, sent).map_err(|problem| malformed("books", problem))?;
                    return Ok(*report);
                }
                // It crossed the sender's book on the way. The sender has already stopped.
                Some(Message::Stop) => {}
                other => return Err(unexpected("books", other)),
            }
        }
    }
}

impl ControlPort {
    /// Listens at the address of the UDP group.
    ///
    /// # Errors
    ///
    /// The error of the system. If the kernel chose the UDP port, the TCP port of that number may be in use.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, pending: VecDeque::new() })
    }

    /// Returns the first sender whose hello has arrived, without waiting. `on_note` receives a line per refused connection. Such
    /// a connection receives a `refused` with the reason.
    pub fn next_sender(&mut self, now: Instant, on_note: &mut dyn FnMut(&str)) -> Option<ReceiverEnd> {
        self.accept_all(now);
        for _ in 0..self.pending.len() {
            let mut next = self.pending.pop_front()?;
            let polled = next.poll_hello();
            if matches!(polled, Ok(None)) && now < next.deadline {
                self.pending.push_back(next);
                continue;
            }
            let hello = polled.and_then(|hello| hello.ok_or_else(|| timed_out("hello")));
            match hello.and_then(|hello| next.into_end(hello)) {
                Ok(end) => return Some(end),
                Err(error) => on_note(&format!("a connection was refused: {error}")),
            }
        }
        None
    }

    /// Refuses every sender whose hello has arrived, without waiting.
    pub(crate) fn refuse_all(&mut self, now: Instant, reason: &str) {
        while let Some(mut end) = self.next_sender(now, &mut |_| {}) {
            refuse(&mut end.channel, reason);
        }
    }

    fn accept_all(&mut self, now: Instant) {
        // A full queue makes room for one connection per call, so that silent connections do not keep a sender out.
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
        }
        while self.pending.len() < MAX_PENDING {
            let Ok((stream, peer)) = self.listener.accept() else { return };
            // A stream whose reads would block the others is dropped.
            if let Ok(channel) = Channel::new(stream)
                && channel.stream().set_nonblocking(true).is_ok()
            {
                let deadline = now.checked_add(HELLO_TIMEOUT).unwrap_or(now);
                self.pending.push_back(Pending { channel, peer, deadline });
            }
        }
    }
}

impl Pending {
    /// Returns the hello once it has arrived. The sender of an invalid hello receives a `refused`.
    fn poll_hello(&mut self) -> Result<Option<Hello>, Error> {
        let hello = self.channel.poll("hello").and_then(|message| match message {
            None => Ok(None),
            Some(Message::Hello(hello)) => {
                hello.check().map_err(|problem| malformed("hello", problem))?;
                Ok(Some(hello))
            }
            Some(_) => Err(out_of_turn("hello")),
        });
        hello.inspect_err(|error| refuse(&mut self.channel, &error.to_string()))
    }

    fn into_end(self, hello: Hello) -> Result<ReceiverEnd, Error> {
        let Self { channel, peer, .. } = self;
        channel.stream().set_nonblocking(false).map_err(|error| broken(&error, "welcome"))?;
        Ok(ReceiverEnd { channel, hello, peer, has_messages: false })
    }
}

/// Sends a reason that says what to do.
fn refuse(channel: &mut Channel, reason: &str) {
    // The connection ends in any case, so a failed write changes nothing.
    let _ = channel.send("refused", &Message::Refused { reason: reason.to_owned() });
}

impl ReceiverEnd {
    /// Sends the welcome.
    ///
    /// # Errors
    ///
    /// There is not one id per flow, or how the connection ended.
    pub fn welcome(&mut self, welcome: Welcome) -> Result<(), Error> {
        welcome.check(self.hello.traffic.flows).map_err(|problem| malformed("welcome", problem))?;
        self.has_messages = welcome.sealed.is_some_and(|sealed| sealed.mode.has_messages());
        self.channel.send("welcome", &Message::Welcome(welcome))
    }

    /// Asks the sender to stop early. Its book still follows.
    ///
    /// # Errors
    ///
    /// How the connection ended.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.channel.send("stop", &Message::Stop)
    }

    /// Waits until the sender announces that its first datagram follows.
    ///
    /// # Errors
    ///
    /// `keep_waiting` returned false, another message came, or how the connection ended.
    pub fn wait_for_start(&mut self, keep_waiting: impl FnMut() -> bool) -> Result<(), Error> {
        match self.channel.wait("started", keep_waiting)? {
            Some(Message::Started) => Ok(()),
            other => Err(unexpected("started", other)),
        }
    }

    /// Waits for the sender's book. Returns `None` if `keep_waiting` returns false; the call can then be repeated.
    ///
    /// # Errors
    ///
    /// The book does not add up, or how the connection ended.
    pub fn wait_for_finish(&mut self, keep_waiting: impl FnMut() -> bool) -> Result<Option<Finished>, Error> {
        let finished = match self.channel.wait("finished", keep_waiting)? {
            Some(Message::Finished(finished)) => finished,
            None => return Ok(None),
            other => return Err(unexpected("finished", other)),
        };
        finished.check(self.hello.traffic.flows).map_err(|problem| malformed("finished", problem))?;
        if finished.messages.is_some() != self.has_messages {
            let problem = "it has messages that were not asked for, or lacks those that were";
            return Err(malformed("finished", problem));
        }
        Ok(Some(finished))
    }

    /// Sends the receiver's report, whose books answer the sender's. The rates of each second stay here, because a long run has too
    /// many for a line.
    ///
    /// # Errors
    ///
    /// The books do not fit each other, or how the connection ended.
    pub fn close(mut self, finished: &Finished, report: &Report) -> Result<(), Error> {
        check_report(report, finished.counts()).map_err(|problem| malformed("books", problem))?;
        let report = Report { pps_per_second: Vec::new(), ..report.clone() };
        self.channel.send("books", &Message::Books(report.into()))
    }
}

/// The error of a wait for `name` that ended without a message, or with another one.
fn unexpected(name: &'static str, message: Option<Message>) -> Error {
    match message {
        None => timed_out(name),
        Some(Message::Refused { reason }) => {
            Error::run(format!("the receiver refused this sender: {}", printable(&reason)))
        }
        Some(_) => out_of_turn(name),
    }
}

fn out_of_turn(name: &'static str) -> Error {
    malformed(name, "another message came first")
}

fn closed_early(waiting_for: &'static str) -> Error {
    Error::run(format!(
        "the other side closed the control connection before `{waiting_for}`: see what it printed, then start both again"
    ))
}

/// The error of a wait for this message that the caller ended.
pub(crate) fn timed_out(waiting_for: &'static str) -> Error {
    Error::run(format!(
        "the other side did not send `{waiting_for}` in time: see whether it still runs, then start both again"
    ))
}

fn line_too_long() -> Error {
    Error::run(format!(
        "the other side sent a control line of more than {MAX_LINE_BYTES} bytes: only `sender` may connect to the port of a \
         `receiver`"
    ))
}

fn broken(error: &io::Error, waiting_for: &'static str) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::NotConnected
        | io::ErrorKind::WriteZero => closed_early(waiting_for),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => timed_out(waiting_for),
        _ => Error::run(format!(
            "the control connection failed ({error}): check the network, then start both again"
        )),
    }
}
