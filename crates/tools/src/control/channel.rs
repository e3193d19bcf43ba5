//! One JSON object per line over a byte stream, with a cap on the line and a bound on each wait.
//!
//! It knows no message: what a line means, and which comes when, is decided by the two ends.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Read, Write};

use serde::Serialize;

use super::MAX_LINE_BYTES;
use super::error::ControlError;

const CHUNK_BYTES: usize = 16 * 1024;

/// Reads of one [`Channel::poll_line`], so that a peer that sends byte by byte does not hold its caller.
const MAX_READS_PER_POLL: usize = 256;

/// A stream of lines.
#[derive(Debug)]
pub struct Channel<S> {
    stream: S,
    /// What was read and not handed out: at most one line, its newline and one chunk.
    pending: Vec<u8>,
    /// How much of `pending` is known to hold no newline.
    scanned: usize,
    /// How much of `pending` the line handed out last took.
    consumed: usize,
}

impl<S> Channel<S> {
    /// A channel over a stream whose reads give up after a while, or never block.
    pub const fn new(stream: S) -> Self {
        Self { stream, pending: Vec::new(), scanned: 0, consumed: 0 }
    }

    /// The stream below, for its addresses.
    pub const fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: Read> Channel<S> {
    /// The next line without its newline, or none when the stream has nothing for now; what has come of it is
    /// kept.
    ///
    /// It takes as long as one quiet read of the stream, or 256 reads that brought something.
    ///
    /// # Errors
    ///
    /// [`ControlError::LineTooLong`], [`ControlError::ClosedEarly`] naming `waiting_for`, or
    /// [`ControlError::Io`].
    pub fn poll_line(&mut self, waiting_for: &'static str) -> Result<Option<&[u8]>, ControlError> {
        self.pending.drain(..self.consumed.min(self.pending.len()));
        self.consumed = 0;
        for _ in 0..MAX_READS_PER_POLL {
            if let Some(end) = self.find_newline() {
                if end > MAX_LINE_BYTES {
                    return Err(ControlError::LineTooLong);
                }
                self.scanned = 0;
                self.consumed = end.saturating_add(1);
                return Ok(self.pending.get(..end));
            }
            if self.pending.len() > MAX_LINE_BYTES {
                return Err(ControlError::LineTooLong);
            }
            if !self.read_chunk(waiting_for)? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn find_newline(&mut self) -> Option<usize> {
        let fresh = self.pending.get(self.scanned..)?;
        let found = fresh.iter().position(|byte| *byte == b'\n').map(|at| at.saturating_add(self.scanned));
        if found.is_none() {
            self.scanned = self.pending.len();
        }
        found
    }

    /// Appends what the stream has, at most one chunk; false when it has nothing for now.
    fn read_chunk(&mut self, waiting_for: &'static str) -> Result<bool, ControlError> {
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ControlError::ClosedEarly { waiting_for }),
                Ok(length) => {
                    self.pending.extend_from_slice(chunk.get(..length).unwrap_or_default());
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
}

impl<S: Write> Channel<S> {
    /// Writes one message as one line.
    ///
    /// # Errors
    ///
    /// [`ControlError::LineTooLong`] with nothing written, [`ControlError::ClosedEarly`] naming `name`, or
    /// [`ControlError::Io`].
    pub fn send(&mut self, name: &'static str, message: &impl Serialize) -> Result<(), ControlError> {
        let mut line = serde_json::to_vec(message).map_err(|error| ControlError::Io(error.into()))?;
        if line.len() > MAX_LINE_BYTES {
            return Err(ControlError::LineTooLong);
        }
        line.push(b'\n');
        self.stream.write_all(&line).and_then(|()| self.stream.flush()).map_err(|error| broken(error, name))
    }
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
