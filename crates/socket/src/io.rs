//! The contracts between the pipeline and the world: one for a socket, one for waiting.
//!
//! Production keeps them with [`crate::Socket`] and [`crate::Poller`], tests and the simulator with fakes that
//! answer any [`Fault`] at any call. Every method is at most one system call.

use std::time::Duration;

use crate::{Fault, Outgoing, RecvBatch, SendMode};

/// One UDP socket, as the receive and send loops see it.
pub trait Io {
    /// Receives into `batch`, at most [`RecvBatch::limit`] messages, in one call.
    ///
    /// On success at least one message was put into the batch.
    ///
    /// # Errors
    ///
    /// The fault of the call; the batch is then empty.
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<(), Fault>;

    /// Sends a prefix of `outgoing` in one call and answers how many datagrams the kernel took, at least one.
    ///
    /// # Errors
    ///
    /// The fault of the first datagram (of the first train when segmenting); nothing was taken.
    fn send(&mut self, outgoing: &mut Outgoing<'_>, mode: SendMode) -> Result<usize, Fault>;

    /// Whether a receive that fills fewer slots than it was offered proves the socket empty.
    ///
    /// True only where the call itself ends on would-block and nothing else: Linux, an unconnected socket, no
    /// `IP_RECVERR`.
    fn is_emptied_by_short_batch(&self) -> bool;

    /// Lets the kernel hand over trains of equal datagrams whole; answers whether it will.
    ///
    /// There is no way back: trains already queued would be read as one datagram.
    fn enable_gro(&mut self) -> bool;

    /// What waits in front of the socket; `None` where nobody can tell.
    fn backlog(&self) -> Option<Backlog> {
        None
    }
}

/// The kernel's account of what nobody took from a socket yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Datagrams that were dropped for want of room since the socket was made, modulo 2^32 (trains, where they are handed over
    /// whole).
    pub drops: u32,
    /// Bytes of kernel memory that waiting datagrams hold, more than they are long; 0 = everything was read.
    pub queued_bytes: u32,
}

/// What became ready during a wait. Sockets are named by the index they were registered under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// One bit per socket that may be read.
    pub readable: u64,
    /// One bit per socket that may be written.
    pub writable: u64,
    /// Somebody called the waker.
    pub is_woken: bool,
}

/// How a worker's thread waits.
pub trait Parker {
    /// Waits until a socket is ready, the waker is called, or `timeout` has passed (`None` = for ever).
    ///
    /// # Errors
    ///
    /// The fault of the wait itself. An interrupted wait is not an error: nothing is ready.
    fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault>;

    /// Sleeps for `duration`, whatever arrives meanwhile.
    fn nap(&mut self, duration: Duration);
}
