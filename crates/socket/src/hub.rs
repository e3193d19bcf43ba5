//! One wait for many pollers: a thread that serves several sockets waits here, and hears which of their pollers have
//! something.
//!
//! A [`Poller`] keeps its socket and its waker whatever thread it is on; the hub only watches it, and reads nothing of it.

use std::io;
use std::time::Duration;

use mio::{Events, Poll, Token};

use crate::group::ReuseportGroup;
use crate::poller::nap;
use crate::{Fault, Parker, Poller, Ready, sys};

/// Waits for as many pollers as a group has sockets. Make it on the thread that uses it: short sleeps need that thread's
/// timer slack set, which is done here, also for pollers that were made elsewhere.
///
/// A poller that was told of is not told of again until something more happens to it: look at what it is about whole, or
/// come back by yourself.
///
/// ```
/// use drumfire_socket::{GroupConfig, Hub, Parker, Poller, ReuseportGroup};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # if ReuseportGroup::MAX_SOCKETS < 2 { return Ok(()) }
/// let mut hub = Hub::new()?;
/// let pollers = [Poller::new()?, Poller::new()?];
/// for (index, poller) in pollers.iter().enumerate() {
///     hub.add(poller, index)?;
/// }
/// pollers[1].waker().wake()?;
/// hub.poll(None)?;
/// assert_eq!(hub.ready().collect::<Vec<_>>(), [1]);
/// # Ok(())
/// # }
/// ```
pub struct Hub {
    poll: Poll,
    events: Events,
}

impl Hub {
    /// A hub for this thread.
    ///
    /// # Errors
    ///
    /// What the system answers, usually that no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        sys::prepare_thread_for_naps();
        // All of them at once: what is left over would wait as long as a thread may nap.
        Ok(Self { poll, events: Events::with_capacity(ReuseportGroup::MAX_SOCKETS) })
    }

    /// Watches a poller under `index`. What it holds already is told with the next poll.
    ///
    /// # Errors
    ///
    /// What the system answers: it is watched here already, or no memory is left. `Unsupported` where a port has one
    /// socket.
    pub fn add(&self, poller: &Poller, index: usize) -> io::Result<()> {
        sys::watch_poll(self.poll.registry(), poller.inner(), Token(index))
    }

    /// Watches it no longer. It keeps what it holds.
    ///
    /// # Errors
    ///
    /// What the system answers: it is not watched here.
    pub fn remove(&self, poller: &Poller) -> io::Result<()> {
        sys::forget_poll(self.poll.registry(), poller.inner())
    }

    /// The pollers that the last poll told of, by their indices.
    pub fn ready(&self) -> impl Iterator<Item = usize> {
        self.events.iter().map(|event| event.token().0)
    }
}

impl Parker for Hub {
    fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault> {
        match self.poll.poll(&mut self.events, timeout) {
            // Which ones are ready may be more than fit the bits.
            Ok(()) => Ok(Ready { readable: u64::from(!self.events.is_empty()), ..Ready::default() }),
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

    fn nap(&mut self, duration: Duration) {
        nap(duration);
    }
}
