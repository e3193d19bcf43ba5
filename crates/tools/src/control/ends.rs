//! The two ends of the control connection, each as the order of calls that its side follows.
//!
//! They check what arrives against what was agreed on before. They do not send a datagram and keep no time:
//! every waiting call takes a `keep_waiting` that is asked between two reads and may look at a clock or at
//! Ctrl-C.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{Read, Write};

use serde::de::DeserializeOwned;

use super::VERSION;
use super::channel::Channel;
use super::error::ControlError;
use super::message::{Books, Finished, FromReceiver, FromSender, Hello, Versioned, Welcome};
use crate::text::printable;

/// The sender's end, after the receiver has welcomed it.
#[derive(Debug)]
pub struct SenderEnd<S> {
    channel: Channel<S>,
    flows: u32,
}

/// Somebody who has connected to the receiver and said nothing valid yet.
#[derive(Debug)]
pub struct Visitor<S> {
    channel: Channel<S>,
}

/// The receiver's end, after a sender has said a valid hello.
#[derive(Debug)]
pub struct ReceiverEnd<S> {
    channel: Channel<S>,
    flows: u32,
    /// Whether the sender was welcomed to deliver messages.
    has_messages: bool,
    sent: Option<u64>,
}

impl<S: Read + Write> SenderEnd<S> {
    /// Says hello and waits for the welcome.
    ///
    /// # Errors
    ///
    /// [`ControlError::Refused`] with the receiver's reason, or any other way the connection can end.
    pub fn greet(
        mut channel: Channel<S>,
        hello: &Hello,
        keep_waiting: impl FnMut() -> bool,
    ) -> Result<(Self, Welcome), ControlError> {
        channel.send("hello", &FromSender::Hello(hello.clone()))?;
        let welcome = match wait(&mut channel, "welcome", keep_waiting, |line| versioned("welcome", line))? {
            FromReceiver::Welcome(welcome) => welcome,
            other => return Err(unexpected("welcome", other)),
        };
        welcome.check(hello.flows).map_err(|problem| malformed("welcome", problem))?;
        Ok((Self { channel, flows: hello.flows }, welcome))
    }

    /// Says that the sockets are ready and the first datagram follows.
    ///
    /// # Errors
    ///
    /// How the connection ended.
    pub fn start(&mut self) -> Result<(), ControlError> {
        self.channel.send("started", &FromSender::Started)
    }

    /// Whether the receiver asked to stop early, looked at for one step of the read timeout.
    ///
    /// # Errors
    ///
    /// [`ControlError::Malformed`] for any other message, or how the connection ended.
    pub fn is_asked_to_stop(&mut self) -> Result<bool, ControlError> {
        match self.channel.poll_line("stop")? {
            None => Ok(false),
            Some(line) => match parse("stop", line)? {
                FromReceiver::Stop => Ok(true),
                other => Err(unexpected("stop", other)),
            },
        }
    }

    /// Hands over the sender's book and waits for the receiver's.
    ///
    /// # Errors
    ///
    /// How the connection ended, or [`ControlError::Malformed`] when either book does not add up.
    pub fn finish(
        &mut self,
        finished: Finished,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> Result<Books, ControlError> {
        finished.check(self.flows).map_err(|problem| malformed("finished", problem))?;
        let (sent, messages) = (finished.sent, finished.messages.clone());
        self.channel.send("finished", &FromSender::Finished(finished))?;
        loop {
            match wait(&mut self.channel, "books", &mut keep_waiting, |line| parse("books", line))? {
                FromReceiver::Books(books) => {
                    let checked = books.check(sent).and_then(|()| books.check_messages(messages.as_ref()));
                    checked.map_err(|problem| malformed("books", problem))?;
                    return Ok(books);
                }
                // It crossed the sender's book on the way: there is nothing left to stop.
                FromReceiver::Stop => {}
                other => return Err(unexpected("books", other)),
            }
        }
    }
}

impl<S> Visitor<S> {
    /// Somebody on this connection.
    pub const fn new(channel: Channel<S>) -> Self {
        Self { channel }
    }

    /// The stream below.
    pub const fn stream(&self) -> &S {
        self.channel.stream()
    }

    /// Takes the visitor as the sender that said this hello.
    #[must_use]
    pub fn admit(self, hello: &Hello) -> ReceiverEnd<S> {
        ReceiverEnd { channel: self.channel, flows: hello.flows, has_messages: false, sent: None }
    }
}

impl<S: Read + Write> Visitor<S> {
    /// The hello, once it is there; one that is not valid is refused on the wire before the error comes back.
    ///
    /// # Errors
    ///
    /// [`ControlError::VersionDiffers`], [`ControlError::Malformed`], or how the connection ended.
    pub fn poll_hello(&mut self) -> Result<Option<Hello>, ControlError> {
        let hello = match self.channel.poll_line("hello") {
            Ok(None) => return Ok(None),
            Ok(Some(line)) => read_hello(line),
            Err(error) => Err(error),
        };
        if let Err(error) = &hello {
            // The connection ends here either way; that it broke meanwhile would say less than the cause does.
            let _ = self.refuse(&told(error));
        }
        hello.map(Some)
    }

    /// Sends the visitor away with a reason that says what to do.
    ///
    /// # Errors
    ///
    /// How the connection ended before that.
    pub fn refuse(&mut self, reason: &str) -> Result<(), ControlError> {
        self.channel.send("refused", &FromReceiver::Refused { reason: reason.to_owned() })
    }
}

impl<S: Read + Write> ReceiverEnd<S> {
    /// Takes the sender.
    ///
    /// # Errors
    ///
    /// [`ControlError::Malformed`] when there is not one id per flow, or how the connection ended.
    pub fn welcome(&mut self, welcome: Welcome) -> Result<(), ControlError> {
        welcome.check(self.flows).map_err(|problem| malformed("welcome", problem))?;
        self.has_messages = welcome.sealed.is_some_and(|sealed| sealed.mode.has_messages());
        self.channel.send("welcome", &FromReceiver::Welcome(welcome))
    }

    /// Asks the sender to stop early; its book still follows.
    ///
    /// # Errors
    ///
    /// How the connection ended before that.
    pub fn stop(&mut self) -> Result<(), ControlError> {
        self.channel.send("stop", &FromReceiver::Stop)
    }

    /// Waits until the sender says that its first datagram follows.
    ///
    /// # Errors
    ///
    /// How the connection ended.
    pub fn wait_for_start(&mut self, keep_waiting: impl FnMut() -> bool) -> Result<(), ControlError> {
        match wait(&mut self.channel, "started", keep_waiting, |line| parse("started", line))? {
            FromSender::Started => Ok(()),
            _ => Err(malformed("started", "another message came first")),
        }
    }

    /// Waits for the sender's book.
    ///
    /// # Errors
    ///
    /// [`ControlError::Malformed`] when it does not add up, or how the connection ended. After
    /// [`ControlError::TimedOut`] the call can be made again.
    pub fn wait_for_finish(&mut self, keep_waiting: impl FnMut() -> bool) -> Result<Finished, ControlError> {
        match wait(&mut self.channel, "finished", keep_waiting, |line| parse("finished", line))? {
            FromSender::Finished(finished) => {
                finished.check(self.flows).map_err(|problem| malformed("finished", problem))?;
                if finished.messages.is_some() != self.has_messages {
                    return Err(malformed(
                        "finished",
                        "it has messages where none belong, or none where they do",
                    ));
                }
                self.sent = Some(finished.sent);
                Ok(finished)
            }
            _ => Err(malformed("finished", "another message came first")),
        }
    }

    /// Settles the receiver's book against what the sender sent, hands it over and returns it settled.
    ///
    /// # Errors
    ///
    /// [`ControlError::TimedOut`] when the sender's book never came, or how the connection ended.
    pub fn close(mut self, books: Books) -> Result<Books, ControlError> {
        let sent = self.sent.ok_or(ControlError::TimedOut { waiting_for: "finished" })?;
        let books = books.settle(sent);
        books.check(sent).map_err(|problem| malformed("books", problem))?;
        self.channel.send("books", &FromReceiver::Books(books.clone()))?;
        Ok(books)
    }
}

fn read_hello(line: &[u8]) -> Result<Hello, ControlError> {
    match versioned("hello", line)? {
        FromSender::Hello(hello) => {
            hello.check().map_err(|problem| malformed("hello", problem))?;
            Ok(hello)
        }
        _ => Err(malformed("hello", "another message came first")),
    }
}

/// Polls until a line is there or the caller has waited enough, and reads it.
fn wait<S: Read, T>(
    channel: &mut Channel<S>,
    name: &'static str,
    mut keep_waiting: impl FnMut() -> bool,
    read: impl FnOnce(&[u8]) -> Result<T, ControlError>,
) -> Result<T, ControlError> {
    loop {
        if let Some(line) = channel.poll_line(name)? {
            return read(line);
        }
        if !keep_waiting() {
            return Err(ControlError::TimedOut { waiting_for: name });
        }
    }
}

fn parse<T: DeserializeOwned>(name: &'static str, line: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(line).map_err(|error| malformed(name, error.to_string()))
}

/// Looks at the version before the rest, whose shape another version may have changed.
fn versioned<T: DeserializeOwned>(name: &'static str, line: &[u8]) -> Result<T, ControlError> {
    let head: Versioned = parse(name, line)?;
    match head.version {
        Some(theirs) if theirs != u64::from(VERSION) => Err(ControlError::VersionDiffers { theirs }),
        _ => parse(name, line),
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

/// A cause in words that are right on the peer's screen.
fn told(error: &ControlError) -> String {
    match error {
        ControlError::VersionDiffers { theirs } => format!(
            "the receiver speaks control version {VERSION}, the sender version {theirs}: build both from the same source"
        ),
        ControlError::Malformed { expected, problem } => {
            format!("its `{expected}` is not valid ({problem}): build both from the same source")
        }
        other => other.to_string(),
    }
}
