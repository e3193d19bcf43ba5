//! The production implementations of [`Parker`]: [`Poller`] for the sockets of one thread, and [`MultiPoller`] for many pollers.
//!
//! Both use mio, which is edge-triggered, and neither reads a datagram. A [`Poller`] keeps its sockets and its waker
//! when it moves to another thread. The multi-poller of that thread only watches it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

use crate::error::Fault;
use crate::group::ReuseportGroup;
use crate::socket::Socket;
use crate::sys;
use crate::wait::{Parker, Ready};

/// The maximum number of sockets of one poller: each has one bit in [`Ready`].
const MAX_SOCKETS: usize = 64;

const WAKER: Token = Token(usize::MAX);

/// Waits for up to 64 sockets and a waker.
///
/// Create the poller on the thread that uses it: its creation sets the timer slack of the calling thread, which short
/// sleeps need. If another thread uses it later, the [`MultiPoller`] of that thread sets the timer slack there.
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
    /// The error of the system call.
    pub fn wake(&self) -> io::Result<()> {
        self.0.wake()
    }
}

impl Poller {
    /// Returns a poller for this thread.
    ///
    /// # Errors
    ///
    /// The error of the system call, usually because no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(mio::Waker::new(poll.registry(), WAKER)?);
        sys::lower_timer_slack();
        Ok(Self { poll, events: Events::with_capacity(MAX_SOCKETS + 1), waker })
    }

    /// Registers a socket for datagrams under `index`, 0 to 63.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the index is above 63, else the error of the system call.
    pub fn register(&mut self, socket: &mut Socket, index: usize) -> io::Result<()> {
        self.poll.registry().register(socket.source(), token(index)?, Interest::READABLE)
    }

    /// Starts or stops waiting until the socket is writable, in addition to datagrams.
    ///
    /// Start only while a flush is blocked. Otherwise each datagram that leaves the send buffer wakes the thread.
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::register`].
    pub fn watch_writable(&mut self, socket: &mut Socket, index: usize, is_blocked: bool) -> io::Result<()> {
        let interest = if is_blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.poll.registry().reregister(socket.source(), token(index)?, interest)
    }

    /// Replaces the descriptor of a socket of a group.
    ///
    /// Use it after a call returned `EBADF` or `ENOTSOCK`. Other code in the process then closed the descriptor by
    /// mistake, and may have opened another file with its number. The socket itself, its queue, and its index in the
    /// group do not change. It is registered for datagrams under `index`, and not for writing. Drain it before the next
    /// wait.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a connected socket: connect another one instead. Otherwise the error of the system call: the
    /// descriptor in reserve is closed too, or no descriptors are left.
    pub fn reopen(&mut self, socket: &mut Socket, index: usize) -> io::Result<()> {
        let (registry, token) = (self.poll.registry(), token(index)?);
        let register = |new: &mut mio::net::UdpSocket| match registry.register(new, token, Interest::READABLE)
        {
            // epoll identifies a registration by descriptor number and open file (epoll(7)). The socket is still
            // open, so the registration of the closed descriptor exists. The new descriptor got the same number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                registry.reregister(new, token, Interest::READABLE)
            }
            result => result,
        };
        socket.reopen(register, |old| registry.deregister(old))
    }

    /// Returns a handle that ends this poller's wait.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.waker))
    }
}

/// The descriptor of the poll, for an event loop that watches this poller with others. It does not change when a socket is replaced.
///
/// It is readable while a socket or the waker has an event that no poll has returned. Watch it level-triggered.
#[cfg(unix)]
impl std::os::fd::AsFd for Poller {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.poll.registry().as_fd()
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
            // A signal is not an event. The caller's loop polls again.
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
            // A receive call returns the pending error of a UDP socket, so an error counts as readable.
            if event.is_readable() || event.is_error() || event.is_read_closed() {
                ready.readable |= bit;
            }
            if event.is_writable() {
                ready.writable |= bit;
            }
        }
        Ok(ready)
    }

    fn sleep(&mut self, duration: Duration) {
        sleep(duration);
    }
}

/// Waits for the pollers of all sockets that one thread serves.
///
/// Create the multi-poller on the thread that uses it, even if other threads created the pollers. Its creation sets the
/// timer slack of the calling thread, which short sleeps need.
///
/// A poller that was reported is not reported again until something else happens to it. Poll it and drain its sockets
/// completely, or come back without a report.
///
/// ```
/// use drumfire_socket::{GroupConfig, MultiPoller, Parker, Poller, ReuseportGroup};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # if ReuseportGroup::MAX_SOCKETS < 2 { return Ok(()) }
/// let mut multi_poller = MultiPoller::new()?;
/// let pollers = [Poller::new()?, Poller::new()?];
/// for (index, poller) in pollers.iter().enumerate() {
///     multi_poller.add(poller, index)?;
/// }
/// pollers[1].waker().wake()?;
/// multi_poller.poll(None)?;
/// assert_eq!(multi_poller.ready().collect::<Vec<_>>(), [1]);
/// # Ok(())
/// # }
/// ```
pub struct MultiPoller {
    poll: Poll,
    events: Events,
}

impl MultiPoller {
    /// Returns a multi-poller for this thread.
    ///
    /// # Errors
    ///
    /// The error of the system call, usually because no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        sys::lower_timer_slack();
        // One poll returns the events of all pollers. The rest would otherwise wait for the next poll, which may come
        // only after a sleep.
        Ok(Self { poll, events: Events::with_capacity(ReuseportGroup::MAX_SOCKETS) })
    }

    /// Adds a poller under `index`. If it has events already, the next poll reports it.
    ///
    /// # Errors
    ///
    /// The error of the system call: this multi-poller watches the poller already, or no memory is left. `Unsupported`
    /// on a platform whose groups have one socket.
    pub fn add(&self, poller: &Poller, index: usize) -> io::Result<()> {
        sys::register_poll(self.poll.registry(), &poller.poll, Token(index))
    }

    /// Removes a poller. The poller keeps its events.
    ///
    /// # Errors
    ///
    /// The error of the system call: this multi-poller does not watch the poller.
    pub fn remove(&self, poller: &Poller) -> io::Result<()> {
        sys::deregister_poll(self.poll.registry(), &poller.poll)
    }

    /// Returns the indices of the pollers that the last poll reported.
    pub fn ready(&self) -> impl Iterator<Item = usize> {
        self.events.iter().map(|event| event.token().0)
    }
}

impl Parker for MultiPoller {
    fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault> {
        match self.poll.poll(&mut self.events, timeout) {
            // A multi-poller may have more pollers than `Ready` has bits. The caller gets their indices from `ready`.
            Ok(()) => Ok(Ready { readable: u64::from(!self.events.is_empty()), ..Ready::default() }),
            // mio does not document which events are left after a failed poll.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(Ready::default())
            }
            Err(error) => {
                self.events.clear();
                Err(sys::fault(&error))
            }
        }
    }

    fn sleep(&mut self, duration: Duration) {
        sleep(duration);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the only place that sleeps: gathering is a short sleep"
)]
fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}
