//! The two faces every rival shows to the bench: a server that echoes until its standard input ends, and the connections of a
//! client. Nothing here knows a rival.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use drumfire_benches::RECEIVE_BUFFER_BYTES;
pub(crate) use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, print_counts, print_line, stop_flag};

/// How often a server that waits looks up when nothing comes.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(100);

/// A silent client says that it is there each time this has passed: drumfire's own time, given to every rival that lets it be set.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_millis(7_500);

/// No load has longer messages, and no answer is longer.
pub(crate) const MESSAGE_MAX_BYTES: usize = 1_024;

/// Channels of a connection, where a rival has channels.
pub(crate) const CHANNELS: u8 = 4;

/// What a server and its client agree on for a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Which of a rival's settings; the rival names them.
    pub(crate) variant: Variant,
    /// Whether messages arrive once and in order, or may be lost.
    pub(crate) is_reliable: bool,
    /// Bytes of an answer; 0 for as many as the message has.
    pub(crate) answer_bytes: usize,
}

/// One of a rival's settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Microseconds that datagrams may gather before they are drained; 0 for the rival's own way to wait.
    pub(crate) gather_us: u64,
    /// Whether ChaCha20-Poly1305 protects packets where AES-GCM would.
    pub(crate) is_chacha: bool,
}

/// A server.
pub(crate) trait Server: Sized {
    /// Binds it to a port of the loopback.
    fn bind(setup: &Setup) -> Result<Self, String>;

    /// Where it listens.
    fn address(&self) -> Result<SocketAddr, String>;

    /// Answers every message until the ending comes, and says what it counted: `received`, `echoed` and `refused` (answers for
    /// which there was no room) at least.
    fn echo(self, ending: &Ending) -> Result<Counts, String>;
}

/// Makes a client's connections to a server: so many on one socket.
pub(crate) type Connect = fn(SocketAddr, usize, &Setup) -> Result<Box<dyn Client>, String>;

/// Whether the bench has told a server to end.
#[derive(Clone, Debug)]
pub(crate) struct Ending(Arc<AtomicBool>);

impl Ending {
    /// Comes when the standard input ends.
    pub(crate) fn of_input() -> Self {
        Self(stop_flag())
    }

    /// Whether it came.
    pub(crate) fn is_here(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What every server counts of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// Messages that arrived.
    pub(crate) received: u64,
    /// Answers that were taken to be sent.
    pub(crate) echoed: u64,
    /// Answers for which there was no room.
    pub(crate) refused: u64,
}

impl Served {
    /// Counts an answer.
    pub(crate) fn on_answer(&mut self, is_taken: bool) {
        self.received += 1;
        self.echoed += u64::from(is_taken);
        self.refused += u64::from(!is_taken);
    }

    /// As a process tells it.
    pub(crate) fn counts(self) -> Counts {
        let Self { received, echoed, refused } = self;
        [("received", received), ("echoed", echoed), ("refused", refused)]
            .map(|(name, count)| (name.to_owned(), count))
            .into()
    }
}

/// Makes answers: the message itself, or the message over again until the answer is as long as it has to be.
#[derive(Debug)]
pub(crate) struct Answers {
    bytes: usize,
    memory: Vec<u8>,
}

impl Answers {
    /// Answers of this setup.
    pub(crate) fn new(setup: &Setup) -> Self {
        Self { bytes: setup.answer_bytes, memory: Vec::with_capacity(MESSAGE_MAX_BYTES) }
    }

    /// The answer to this message.
    pub(crate) fn to<'a>(&'a mut self, message: &'a [u8]) -> &'a [u8] {
        if self.bytes == 0 || message.is_empty() {
            return message;
        }
        self.memory.clear();
        self.memory.extend(message.iter().copied().cycle().take(self.bytes));
        &self.memory
    }
}

/// Runs a server's process.
pub(crate) fn serve<S: Server>(setup: &Setup) -> Result<(), String> {
    let ending = Ending::of_input();
    let server = S::bind(setup)?;
    print_line(&server.address()?.to_string()).map_err(|error| error.to_string())?;
    print_counts(&server.echo(&ending)?).map_err(|error| error.to_string())
}

/// An error as a line.
pub(crate) fn line(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_the_message_or_the_message_over_again() {
        let setup = |answer_bytes| Setup { variant: Variant::default(), is_reliable: true, answer_bytes };
        assert_eq!(Answers::new(&setup(0)).to(b"abc"), b"abc");
        assert_eq!(Answers::new(&setup(7)).to(b"abc"), b"abcabca");
        assert_eq!(Answers::new(&setup(7)).to(b""), b"");
    }
}
