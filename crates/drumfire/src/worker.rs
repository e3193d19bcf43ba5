//! The worker: one socket, one endpoint, one loop. Hidden from the documentation, because only the simulator
//! drives it beside this crate; it keeps no promise of stability.
//!
//! A pass is [`Worker::wait`] and then [`Worker::work`]: read the clock once; drain the socket in batches and
//! take every batch through the stages, opened in place; datagrams from other workers; commands; timers; one
//! flush; reports in one slice with one wake-up. What the world is, sockets or a simulation, is behind three
//! contracts: [`drumfire_socket::Io`], [`Park`] and [`Clock`].

mod arena;
mod backlog;
mod busy;
mod core;
mod draining;
mod face;
mod fan_out;
mod net;
mod overflow;
mod pass;
mod peers;
mod queue;
mod ring;
mod starved;
mod survey;
#[cfg(test)]
mod tests;
mod unsent;

use std::time::{Duration, Instant};

use drumfire_proto::Now;
use drumfire_socket::{Io, Parker, Poller, Socket};

pub(crate) use self::core::{Abandoned, Core, Notice};
pub(crate) use arena::Arena;
pub(crate) use busy::Busy;
#[cfg(test)]
pub(crate) use busy::tests::passes;
pub use draining::Undelivered;
pub(crate) use draining::{Drain, Share};
pub(crate) use face::Face;
pub use net::{inbound, push};
#[cfg(test)]
pub(crate) use pass::PANICS_IN_A_ROW;
pub(crate) use pass::Parts;
pub use pass::Worker;
pub(crate) use peers::Message;
pub(crate) use queue::Queue;
pub use ring::{Ring, Wake, rings};

pub use crate::owners::{Owners, WorkerPlacement};

/// What the clocks showed, once per pass.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// For the wait strategy.
    pub instant: Instant,
    /// For the protocol.
    pub now: Now,
}

/// Reads the clocks.
pub trait Clock {
    /// What they show.
    fn read(&mut self) -> Reading;

    /// The CPU time that this thread used since it began; `None` where nobody keeps it.
    fn thread_cpu_time(&mut self) -> Option<Duration>;
}

/// Waits for a socket: [`Parker`], and telling it that room to write matters too.
pub trait Park<I>: Parker {
    /// Watches the socket for room to write while `is_blocked`.
    fn watch_writable(&mut self, io: &mut I, is_blocked: bool);

    /// Lets a socket whose descriptor is gone go on with another one, watched for datagrams alone; false where it has none.
    fn reopen(&mut self, _io: &mut I) -> bool {
        false
    }
}

impl Park<Socket> for Poller {
    fn watch_writable(&mut self, io: &mut Socket, is_blocked: bool) {
        // Without the watch the flush is tried again in the next pass, as it is anyway.
        let _ = Self::watch_writable(self, io, 0, is_blocked);
    }

    fn reopen(&mut self, io: &mut Socket) -> bool {
        Self::reopen(self, io, 0).is_ok()
    }
}

/// The worker of a real socket.
#[cfg(not(feature = "testing"))]
pub(crate) type SocketWorker<P> = Worker<P, Socket, Poller, crate::clock::SystemClock>;

/// The worker of a real socket, which in a world is one in memory.
#[cfg(feature = "testing")]
pub(crate) type SocketWorker<P> = crate::testing::EitherWorker<P>;

/// Datagrams taken in one pass before timers and commands get their turn.
pub(crate) const BUDGET_DATAGRAMS: usize = 1_024;

/// Time after which a pass takes no more datagrams, however few it has taken. The sender chooses
/// what a datagram costs, within bounds: the time keeps a pass short where many senders choose the most expensive.
pub(crate) const BUDGET_TIME: Duration = Duration::from_millis(2);

/// Retries are due this soon where nothing will tell that there is room again.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(1);

/// A socket whose descriptor is lost again within this time is given up: something is after it.
pub(crate) const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// Asserts at compile time that the contracts suit real sockets.
const fn is_park<K: Park<I>, I: Io>() {}
const _: () = is_park::<Poller, Socket>();
