//! The real wait: mio's poll, its waker, and a sleep of microseconds.
//!
//! It belongs to one thread and never reads a datagram.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

use crate::{Fault, Parker, Ready, Socket, sys};

/// The most sockets one poller watches: one bit each in [`Ready`].
const MAX_SOCKETS: usize = 64;

const WAKER: Token = Token(usize::MAX);

/// Waits for up to 64 sockets and a waker. Make it on the thread that uses it: short sleeps need that thread's
/// timer slack set, which is done here. A thread that takes it over later has it set by a [`crate::Hub`] of its own.
pub struct Poller {
    poll: Poll,
    events: Events,
    waker: Arc<mio::Waker>,
}

/// Ends the wait of a [`Poller`] from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    /// Wakes the poller, now or at its next poll.
    ///
    /// # Errors
    ///
    /// What the system answers.
    pub fn wake(&self) -> io::Result<()> {
        self.0.wake()
    }
}

impl Poller {
    /// A poller for this thread.
    ///
    /// # Errors
    ///
    /// What the system answers, usually that no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(mio::Waker::new(poll.registry(), WAKER)?);
        sys::prepare_thread_for_naps();
        Ok(Self { poll, events: Events::with_capacity(MAX_SOCKETS + 1), waker })
    }

    /// Watches a socket for datagrams under `index`, 0 to 63.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the index is above 63, else what the system answers.
    pub fn register(&mut self, socket: &mut Socket, index: usize) -> io::Result<()> {
        self.poll.registry().register(socket.source(), token(index)?, Interest::READABLE)
    }

    /// Watches it for room to write too, or no longer. Only while a flush is blocked: a socket that is always
    /// watched for room wakes its thread after each datagram that leaves.
    ///
    /// # Errors
    ///
    /// As [`Poller::register`].
    pub fn watch_writable(&mut self, socket: &mut Socket, index: usize, is_blocked: bool) -> io::Result<()> {
        let interest = if is_blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.poll.registry().reregister(socket.source(), token(index)?, interest)
    }

    /// Lets a socket of a group go on with another descriptor, because the system says that the one in use is closed or no
    /// socket's (`EBADF`, `ENOTSOCK`): something in the process closed it. It is the same socket as before, with all that waits
    /// in it, and in the same place of its group. It is watched for datagrams alone, under `index`; drain it before the next
    /// wait.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a socket that is connected to one peer: connect another. Else what the system answers: the descriptor in
    /// reserve is gone too, or none are left.
    pub fn reopen(&mut self, socket: &mut Socket, index: usize) -> io::Result<()> {
        let (registry, token) = (self.poll.registry(), token(index)?);
        let watch =
            |fresh: &mut mio::net::UdpSocket| match registry.register(fresh, token, Interest::READABLE) {
                // It has the number of the one that was closed, which is still watched: the socket behind it lives.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    registry.reregister(fresh, token, Interest::READABLE)
                }
                answer => answer,
            };
        socket.reopen(watch, |lost| registry.deregister(lost))
    }

    /// A handle that ends this poller's wait.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.waker))
    }

    pub(crate) fn inner(&self) -> &Poll {
        &self.poll
    }
}

fn token(index: usize) -> io::Result<Token> {
    if index < MAX_SOCKETS {
        Ok(Token(index))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "a poller watches at most 64 sockets"))
    }
}

impl Parker for Poller {
    fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault> {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Ready::default()),
            Err(error) => return Err(sys::fault(&error)),
        }
        let mut ready = Ready::default();
        for event in &self.events {
            if event.token() == WAKER {
                ready.is_woken = true;
                continue;
            }
            let bit = 1_u64 << event.token().0;
            // An error on a UDP socket is read like a datagram.
            if event.is_readable() || event.is_error() || event.is_read_closed() {
                ready.readable |= bit;
            }
            if event.is_writable() {
                ready.writable |= bit;
            }
        }
        Ok(ready)
    }

    fn nap(&mut self, duration: Duration) {
        nap(duration);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that sleeps: gathering is a short sleep"
)]
pub(crate) fn nap(duration: Duration) {
    std::thread::sleep(duration);
}
