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
//! | receiver | `books` | its queues have run dry |
//!
//! Lines have a maximum length, and fields from the peer are checked. Nothing here starts a thread or reads a clock: every wait
//! takes a `keep_waiting`, which is asked after each read timeout of the stream. The connection is neither encrypted nor
//! authenticated, so the port belongs into a trusted network.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod error;
mod message;
mod port;
#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::text::printable;
pub use error::ControlError;
use error::for_peer;
pub use message::{Books, Finished, Hello, PublicKey, Sealed, SentMessages, Welcome};
use message::{FromReceiver, FromSender};
pub use port::{AcceptedSender, ControlPort};

/// The version of the messages. Two sides with different versions refuse each other.
pub const VERSION: u32 = 3;

/// The maximum length of a line in bytes, without its newline: room for 65,536 ids, or for 131,072 counters.
pub const MAX_LINE_BYTES: usize = 3 * 1024 * 1024;

/// How long a write may block before the connection counts as broken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads per poll, so that a peer that sends byte by byte does not block the caller.
const MAX_READS_PER_POLL: usize = 256;

const READ_BYTES: usize = 16 * 1024;

/// A stream of lines. Reads end after the read timeout of the stream.
#[derive(Debug)]
pub struct Channel<S = TcpStream> {
    stream: S,
    /// Received bytes: at most one line, its newline, and one read.
    pending: Vec<u8>,
    /// The number of leading bytes of `pending` that contain no newline.
    scanned: usize,
}

/// The end of a sender that the receiver has accepted.
#[derive(Debug)]
pub struct SenderEnd {
    channel: Channel,
    flows: u32,
}

/// A connection to the receiver whose hello has not been read.
#[derive(Debug)]
pub struct Visitor {
    channel: Channel,
}

/// The end of a receiver, for a sender with a valid hello.
#[derive(Debug)]
pub struct ReceiverEnd {
    channel: Channel,
    flows: u32,
    /// Whether the flows of this sender deliver messages.
    has_messages: bool,
    /// The number of datagrams and messages in the sender's book.
    sent: Option<(u64, Option<u64>)>,
}

/// Connects to the first of `addresses` that accepts within `connect_timeout`.
///
/// `read_timeout` is the interval in which a wait asks its caller whether to go on; use 20 to 500 ms.
///
/// # Errors
///
/// [`ControlError::Unreachable`] with the last address, or [`ControlError::Io`].
pub fn connect(
    addresses: &[SocketAddr],
    connect_timeout: Duration,
    read_timeout: Duration,
) -> Result<Channel, ControlError> {
    let mut failure = ControlError::Io(io::Error::from(io::ErrorKind::InvalidInput));
    for address in addresses {
        match TcpStream::connect_timeout(address, connect_timeout) {
            Ok(stream) => return Channel::new(stream, read_timeout).map_err(ControlError::Io),
            Err(source) => failure = ControlError::Unreachable { address: *address, source },
        }
    }
    Err(failure)
}

/// Listens at the address of the UDP group. [`accept`] does not block.
///
/// # Errors
///
/// The error of the system. If the kernel chose the UDP port, the TCP port of that number may be in use.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts the next connection, if there is one.
///
/// # Errors
///
/// The error of the system. A connection that was closed before it was accepted is no error.
pub fn accept(listener: &TcpListener, read_timeout: Duration) -> io::Result<Option<(Channel, SocketAddr)>> {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    match listener.accept() {
        Ok((stream, peer)) => Ok(Some((Channel::new(stream, read_timeout)?, peer))),
        Err(error) if matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Channel {
    fn new(stream: TcpStream, read_timeout: Duration) -> io::Result<Self> {
        // Some systems copy the mode of the listener to the accepted stream.
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(read_timeout))?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Self { stream, pending: Vec::new(), scanned: 0 })
    }

    /// The stream, for its addresses.
    #[must_use]
    pub const fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl<S: Read> Channel<S> {
    /// Returns the next line without its newline, or `None` if the stream has no whole line yet.
    fn poll_line(&mut self, waiting_for: &'static str) -> Result<Option<Vec<u8>>, ControlError> {
        for _ in 0..MAX_READS_PER_POLL {
            let fresh = self.pending.get(self.scanned..).unwrap_or_default();
            let newline = fresh.iter().position(|byte| *byte == b'\n');
            let length = self.scanned.saturating_add(newline.unwrap_or(fresh.len()));
            if length > MAX_LINE_BYTES {
                return Err(ControlError::LineTooLong);
            }
            if newline.is_some() {
                self.scanned = 0;
                let mut line: Vec<u8> = self.pending.drain(..=length).collect();
                line.pop();
                return Ok(Some(line));
            }
            self.scanned = length;
            if !self.read(waiting_for)? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Appends the result of one read. Returns false if the stream has nothing for now.
    fn read(&mut self, waiting_for: &'static str) -> Result<bool, ControlError> {
        let mut bytes = [0; READ_BYTES];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ControlError::ClosedEarly { waiting_for }),
                Ok(length) => {
                    self.pending.extend_from_slice(bytes.get(..length).unwrap_or_default());
                    return Ok(true);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Ok(false),
                    _ => return Err(broken(error, waiting_for)),
                },
            }
        }
    }

    /// Waits for a message.
    fn wait<T: DeserializeOwned>(
        &mut self,
        name: &'static str,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> Result<T, ControlError> {
        loop {
            if let Some(line) = self.poll_line(name)? {
                return parse(name, &line);
            }
            if !keep_waiting() {
                return Err(ControlError::TimedOut { waiting_for: name });
            }
        }
    }
}

impl<S: Write> Channel<S> {
    fn send(&mut self, name: &'static str, message: &impl Serialize) -> Result<(), ControlError> {
        let mut line = serde_json::to_vec(message).map_err(|error| ControlError::Io(error.into()))?;
        if line.len() > MAX_LINE_BYTES {
            return Err(ControlError::LineTooLong);
        }
        line.push(b'\n');
        self.stream.write_all(&line).map_err(|error| broken(error, name))
    }
}

impl SenderEnd {
    /// Sends the hello and waits for the welcome.
    ///
    /// # Errors
    ///
    /// [`ControlError::Refused`] with the reason of the receiver, or how the connection ended.
    pub fn greet(
        mut channel: Channel,
        hello: &Hello,
        keep_waiting: impl FnMut() -> bool,
    ) -> Result<(Self, Welcome), ControlError> {
        channel.send("hello", &FromSender::Hello(hello.clone()))?;
        let welcome = match channel.wait("welcome", keep_waiting)? {
            FromReceiver::Welcome(welcome) => welcome,
            other => return Err(unexpected("welcome", other)),
        };
        welcome.check(hello.flows).map_err(|problem| malformed("welcome", problem))?;
        Ok((Self { channel, flows: hello.flows }, welcome))
    }

    /// Announces that the sockets are ready and the first datagram follows.
    ///
    /// # Errors
    ///
    /// How the connection ended.
    pub fn start(&mut self) -> Result<(), ControlError> {
        self.channel.send("started", &FromSender::Started)
    }

    /// Returns whether the receiver asked to stop early. It waits for one read timeout.
    ///
    /// # Errors
    ///
    /// [`ControlError::Malformed`] for any other message, or how the connection ended.
    pub fn is_asked_to_stop(&mut self) -> Result<bool, ControlError> {
        match self.channel.poll_line("stop")? {
            None => Ok(false),
            Some(line) => match parse("stop", &line)? {
                FromReceiver::Stop => Ok(true),
                other => Err(unexpected("stop", other)),
            },
        }
    }

    /// Sends the sender's book and waits for the receiver's.
    ///
    /// # Errors
    ///
    /// [`ControlError::Malformed`] if either book does not add up, or how the connection ended.
    pub fn finish(
        &mut self,
        finished: Finished,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> Result<Books, ControlError> {
        finished.check(self.flows).map_err(|problem| malformed("finished", problem))?;
        let (sent, messages) = (finished.sent, finished.messages.as_ref().map(|messages| messages.sent));
        self.channel.send("finished", &FromSender::Finished(finished))?;
        loop {
            match self.channel.wait("books", &mut keep_waiting)? {
                FromReceiver::Books(books) => {
                    books.check(sent, messages).map_err(|problem| malformed("books", problem))?;
                    return Ok(books);
                }
                // It crossed the sender's book on the way. The sender has already stopped.
                FromReceiver::Stop => {}
                other => return Err(unexpected("books", other)),
            }
        }
    }
}

impl Visitor {
    /// Wraps an accepted connection.
    #[must_use]
    pub const fn new(channel: Channel) -> Self {
        Self { channel }
    }

    /// The stream, for its addresses and its mode.
    #[must_use]
    pub const fn stream(&self) -> &TcpStream {
        self.channel.stream()
    }

    /// Accepts the sender of this hello.
    #[must_use]
    pub fn admit(self, hello: &Hello) -> ReceiverEnd {
        ReceiverEnd { channel: self.channel, flows: hello.flows, has_messages: false, sent: None }
    }

    /// Returns the hello once it has arrived. The sender of an invalid hello receives a `refused`.
    ///
    /// # Errors
    ///
    /// [`ControlError::VersionDiffers`], [`ControlError::Malformed`], or how the connection ended.
    pub fn poll_hello(&mut self) -> Result<Option<Hello>, ControlError> {
        let hello = match self.channel.poll_line("hello") {
            Ok(None) => return Ok(None),
            Ok(Some(line)) => read_hello(&line),
            Err(error) => Err(error),
        };
        if let Err(error) = &hello {
            // The connection ends in any case. A failed write would say less than the first error.
            let _ = self.refuse(&for_peer(error));
        }
        hello.map(Some)
    }

    /// Refuses the connection, with a reason that says what to do.
    ///
    /// # Errors
    ///
    /// How the connection ended.
    pub fn refuse(&mut self, reason: &str) -> Result<(), ControlError> {
        self.channel.send("refused", &FromReceiver::Refused { reason: reason.to_owned() })
    }
}

impl ReceiverEnd {
    /// Sends the welcome.
    ///
    /// # Errors
    ///
    /// [`ControlError::Malformed`] if there is not one id per flow, or how the connection ended.
    pub fn welcome(&mut self, welcome: Welcome) -> Result<(), ControlError> {
        welcome.check(self.flows).map_err(|problem| malformed("welcome", problem))?;
        self.has_messages = welcome.sealed.is_some_and(|sealed| sealed.mode.has_messages());
        self.channel.send("welcome", &FromReceiver::Welcome(welcome))
    }

    /// Asks the sender to stop early. Its book still follows.
    ///
    /// # Errors
    ///
    /// How the connection ended.
    pub fn stop(&mut self) -> Result<(), ControlError> {
        self.channel.send("stop", &FromReceiver::Stop)
    }

    /// Waits until the sender announces that its first datagram follows.
    ///
    /// # Errors
    ///
    /// How the connection ended.
    pub fn wait_for_start(&mut self, keep_waiting: impl FnMut() -> bool) -> Result<(), ControlError> {
        match self.channel.wait("started", keep_waiting)? {
            FromSender::Started => Ok(()),
            _ => Err(malformed("started", "another message came first")),
        }
    }

    /// Waits for the sender's book. After [`ControlError::TimedOut`] the call can be repeated.
    ///
    /// # Errors
    ///
    /// [`ControlError::Malformed`] if the book does not add up, or how the connection ended.
    pub fn wait_for_finish(&mut self, keep_waiting: impl FnMut() -> bool) -> Result<Finished, ControlError> {
        let FromSender::Finished(finished) = self.channel.wait("finished", keep_waiting)? else {
            return Err(malformed("finished", "another message came first"));
        };
        finished.check(self.flows).map_err(|problem| malformed("finished", problem))?;
        if finished.messages.is_some() != self.has_messages {
            let problem = "it has messages that were not asked for, or lacks those that were";
            return Err(malformed("finished", problem));
        }
        let messages = finished.messages.as_ref().map(|messages| messages.sent);
        self.sent = Some((finished.sent, messages));
        Ok(finished)
    }

    /// Settles the receiver's book against the sender's, sends it, and returns it.
    ///
    /// # Errors
    ///
    /// [`ControlError::TimedOut`] if the sender's book never came, or how the connection ended.
    pub fn close(mut self, books: Books) -> Result<Books, ControlError> {
        let (sent, messages) = self.sent.ok_or(ControlError::TimedOut { waiting_for: "finished" })?;
        let books = books.settle(sent);
        books.check(sent, messages).map_err(|problem| malformed("books", problem))?;
        self.channel.send("books", &FromReceiver::Books(books.clone()))?;
        Ok(books)
    }
}

fn read_hello(line: &[u8]) -> Result<Hello, ControlError> {
    match parse("hello", line)? {
        FromSender::Hello(hello) => {
            hello.check().map_err(|problem| malformed("hello", problem))?;
            Ok(hello)
        }
        _ => Err(malformed("hello", "another message came first")),
    }
}

/// The field that every version of `hello` and `welcome` has.
#[derive(serde::Deserialize)]
struct Versioned {
    version: Option<u64>,
}

/// Reads a message. The version comes first, because another version may have changed the other fields.
fn parse<T: DeserializeOwned>(name: &'static str, line: &[u8]) -> Result<T, ControlError> {
    let fail = |error: serde_json::Error| malformed(name, error.to_string());
    let head: Versioned = serde_json::from_slice(line).map_err(fail)?;
    match head.version {
        Some(theirs) if theirs != u64::from(VERSION) => Err(ControlError::VersionDiffers { theirs }),
        _ => serde_json::from_slice(line).map_err(fail),
    }
}

fn unexpected(name: &'static str, message: FromReceiver) -> ControlError {
    match message {
        FromReceiver::Refused { reason } => ControlError::Refused { reason: printable(&reason) },
        _ => malformed(name, "another message came first"),
    }
}

fn malformed(expected: &'static str, problem: impl AsRef<str>) -> ControlError {
    // The problem may quote the peer.
    ControlError::Malformed { expected, problem: printable(problem.as_ref()) }
}

fn broken(error: io::Error, waiting_for: &'static str) -> ControlError {
    match error.kind() {
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::NotConnected
        | io::ErrorKind::WriteZero => ControlError::ClosedEarly { waiting_for },
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::TimedOut { waiting_for },
        _ => ControlError::Io(error),
    }
}
