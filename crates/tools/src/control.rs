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
//! Lines have a maximum length, and fields from the peer are checked. Nothing here reads a clock: every wait takes a `keep_waiting`,
//! which is called between its steps. The connection is neither encrypted nor authenticated, so the port belongs in a trusted network.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod message;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::error::{Error, printable};
use crate::report::Report;
pub use message::{Finished, Hello, Sealed, SentMessages, Welcome};
use message::{Message, check_report, malformed, parse};

/// The version of the messages. Two sides with different versions refuse each other.
pub const VERSION: u32 = 6;

/// The maximum length of a line in bytes, without its newline: room for 65,536 ids, or for 131,072 counters.
pub const MAX_LINE_BYTES: usize = 3 * 1024 * 1024;

/// The maximum length of a line in bytes, with its newline.
const READ_BYTES: u64 = MAX_LINE_BYTES as u64 + 1;

/// The time after which a wait asks its caller whether to continue.
const STEP: Duration = Duration::from_millis(20);

/// The maximum time of a connect or a write. After that the connection counts as broken.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum time from the accept of a connection to its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of connections without a hello. More wait in the backlog of the listener.
const MAX_PENDING: usize = 16;

/// One end of a connection. A thread reads its lines, so that a peer that sends byte by byte blocks no wait.
#[derive(Debug)]
struct Channel {
    stream: TcpStream,
    /// The lines without their newlines. The thread reads the next one when the last one was taken.
    lines: Receiver<io::Result<Vec<u8>>>,
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
    /// Connections without a hello, each with the address of its peer and the deadline for the hello.
    pending: VecDeque<(Channel, SocketAddr, Instant)>,
}

impl Channel {
    fn new(stream: TcpStream) -> io::Result<Self> {
        // Some systems copy the mode of the listener to the accepted stream.
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let (outbox, lines) = sync_channel(0);
        let read = move || {
            loop {
                let line = read_line(&mut reader);
                let is_last = line.is_err();
                if outbox.send(line).is_err() || is_last {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("control-lines".to_owned()).spawn(read)?;
        Ok(Self { stream, lines })
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

    /// Returns the next message, or `None` if it does not arrive in this time.
    fn poll(&mut self, name: &'static str, time: Duration) -> Result<Option<Message>, Error> {
        match self.lines.recv_timeout(time) {
            Ok(line) => parse(name, &line.map_err(|error| broken(&error, name))?).map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(broken(&io::ErrorKind::NotConnected.into(), name)),
        }
    }

    /// Waits for a message. Returns `None` if `keep_waiting` returns false.
    fn wait(
        &mut self,
        name: &'static str,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> Result<Option<Message>, Error> {
        loop {
            let message = self.poll(name, STEP)?;
            if message.is_some() || !keep_waiting() {
                return Ok(message);
            }
        }
    }

    fn send(&mut self, name: &'static str, message: &Message) -> Result<(), Error> {
        let line = to_line(message).map_err(|error| broken(&error, name))?;
        self.stream.write_all(&line).map_err(|error| broken(&error, name))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // This ends the read of the thread. It fails if the peer has closed the connection.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Reads a line, and removes its newline. It stores no more of a longer one than a line may have.
fn read_line(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    reader.take(READ_BYTES).read_until(b'\n', &mut line)?;
    if line.pop_if(|byte| *byte == b'\n').is_some() {
        return Ok(line);
    }
    let is_too_long = line.len() > MAX_LINE_BYTES;
    Err(if is_too_long { io::ErrorKind::FileTooLarge } else { io::ErrorKind::UnexpectedEof }.into())
}

fn to_line(message: &Message) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    if line.len() > MAX_LINE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    line.push(b'\n');
    Ok(line)
}

impl SenderEnd {
    /// Connects to the first of `addresses` that accepts, sends the hello, and waits for the welcome.
    ///
    /// # Errors
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
        welcome.check(hello.traffic.load.flows).map_err(|problem| malformed("welcome", problem))?;
        let peer = channel.stream.peer_addr().map_err(|error| broken(&error, "started"))?;
        Ok((Self { channel, peer }, welcome))
    }

    /// Announces that the sockets are ready and the first datagram follows.
    ///
    /// # Errors
    /// How the connection ended.
    pub fn start(&mut self) -> Result<(), Error> {
        self.channel.send("started", &Message::Started)
    }

    /// Returns whether the receiver asked to stop early. It waits for one step.
    pub(crate) fn is_asked_to_stop(&mut self) -> Result<bool, Error> {
        match self.channel.poll("stop", STEP)? {
            None => Ok(false),
            Some(Message::Stop) => Ok(true),
            other => Err(unexpected("stop", other)),
        }
    }

    /// Sends the sender's book and waits for the receiver's, which is in its report.
    ///
    /// # Errors
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
            let (mut channel, peer, deadline) = self.pending.pop_front()?;
            match poll_hello(&mut channel) {
                Ok(Some(hello)) => return Some(ReceiverEnd { channel, hello, peer, has_messages: false }),
                Ok(None) if now < deadline => self.pending.push_back((channel, peer, deadline)),
                Ok(None) => on_note(&format!("a connection was refused: {}", timed_out("hello"))),
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
            // Without a descriptor or a thread for it, a connection is dropped.
            if let Ok(channel) = Channel::new(stream) {
                let deadline = now.checked_add(HELLO_TIMEOUT).unwrap_or(now);
                self.pending.push_back((channel, peer, deadline));
            }
        }
    }
}

/// Returns the hello once it has arrived. The sender of an invalid hello receives a `refused`.
fn poll_hello(channel: &mut Channel) -> Result<Option<Hello>, Error> {
    let hello = channel.poll("hello", Duration::ZERO).and_then(|message| match message {
        None => Ok(None),
        Some(Message::Hello(hello)) => {
            hello.check().map_err(|problem| malformed("hello", problem))?;
            Ok(Some(hello))
        }
        Some(_) => Err(out_of_turn("hello")),
    });
    hello.inspect_err(|error| refuse(channel, &error.to_string()))
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
    /// There is not one id per flow, or how the connection ended.
    pub fn welcome(&mut self, welcome: Welcome) -> Result<(), Error> {
        welcome.check(self.hello.traffic.load.flows).map_err(|problem| malformed("welcome", problem))?;
        self.has_messages = welcome.sealed.is_some_and(|sealed| sealed.mode.has_messages());
        self.channel.send("welcome", &Message::Welcome(welcome))
    }

    /// Asks the sender to stop early. Its book still follows.
    pub(crate) fn stop(&mut self) -> Result<(), Error> {
        self.channel.send("stop", &Message::Stop)
    }

    /// Waits until the sender announces that its first datagram follows.
    ///
    /// # Errors
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
    /// The book does not add up, or how the connection ended.
    pub fn wait_for_finish(&mut self, keep_waiting: impl FnMut() -> bool) -> Result<Option<Finished>, Error> {
        let finished = match self.channel.wait("finished", keep_waiting)? {
            Some(Message::Finished(finished)) => finished,
            None => return Ok(None),
            other => return Err(unexpected("finished", other)),
        };
        finished.check(self.hello.traffic.load.flows).map_err(|problem| malformed("finished", problem))?;
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

/// The error of a wait for this message that the caller ended.
pub(crate) fn timed_out(waiting_for: &'static str) -> Error {
    Error::run(format!(
        "the other side did not send `{waiting_for}` in time: see whether it still runs, then start both again"
    ))
}

fn broken(error: &io::Error, waiting_for: &'static str) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => timed_out(waiting_for),
        io::ErrorKind::FileTooLarge => Error::run(format!(
            "the other side sent a control line of more than {MAX_LINE_BYTES} bytes: only `sender` may connect to the port of a \
             `receiver`"
        )),
        _ => Error::run(format!(
            "the other side closed the control connection before `{waiting_for}` ({error}): see what it printed, then \
             start both again"
        )),
    }
}
