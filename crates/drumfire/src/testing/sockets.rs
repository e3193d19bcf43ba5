//! What a world's workers have for sockets, what goes wrong at each, and how often it did.
//!
//! It decides nothing while a world runs.

use std::time::Duration;

pub use drumfire_socket::{Fault, FaultCounts};

/// The sockets of a server's workers, from the beginning to the end of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sockets {
    /// Whether packets are steered to their worker by what they say, as the kernel's filter does; else, like Hellos, they go by
    /// a hash of where they come from. True by default.
    pub is_steered: bool,
    /// Whether equal datagrams that arrive together from one address are read as one train, and come to the worker of the first.
    /// False by default.
    pub has_gro: bool,
    /// Whether trains are sent in one piece. False by default.
    pub has_gso: bool,
    /// Datagrams that wait in one receive queue, at most. 4,096 by default.
    pub queue_datagrams: usize,
}

impl Default for Sockets {
    fn default() -> Self {
        Self { is_steered: true, has_gro: false, has_gso: false, queue_datagrams: 4_096 }
    }
}

impl Sockets {
    /// Sets whether packets are steered by what they say.
    #[must_use]
    pub fn is_steered(mut self, is_steered: bool) -> Self {
        self.is_steered = is_steered;
        self
    }

    /// Sets whether trains are read whole.
    #[must_use]
    pub fn has_gro(mut self, has_gro: bool) -> Self {
        self.has_gro = has_gro;
        self
    }

    /// Sets whether trains are sent whole.
    #[must_use]
    pub fn has_gso(mut self, has_gso: bool) -> Self {
        self.has_gso = has_gso;
        self
    }

    /// Sets how many datagrams wait in one receive queue, at most.
    #[must_use]
    pub fn queue_datagrams(mut self, datagrams: usize) -> Self {
        self.queue_datagrams = datagrams;
        self
    }
}

/// What goes wrong at one worker's socket; by default nothing. Fractions are of all calls, from 0 up to, and not including, 1.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// How often a receive call fails,
    pub receive: f64,
    /// with one of these. A descriptor is lost once in a second at most, by its worker's clock; there is always another one.
    pub receive_faults: Vec<Fault>,
    /// How often a send call fails,
    pub send: f64,
    /// with one of these.
    pub send_faults: Vec<Fault>,
    /// How often a send call takes less than it was offered.
    pub partial: f64,
    /// How often a send call finds the buffer full,
    pub blocked: f64,
    /// which then has no room for so long, at most.
    pub blocked_for: Duration,
    /// How often a wait fails.
    pub wait: f64,
}

/// What happened at one worker's socket so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketCounts {
    /// Times that the worker woke up.
    pub turns: u64,
    /// Moments at which datagrams waited, the worker had not heard of them, and was not going to look by itself: 0, or it lost
    /// an edge.
    pub stranded: u64,
    /// Datagrams that found the receive queue full.
    pub overflowed: u64,
    /// Trains that were read whole,
    pub trains: u64,
    /// and those of them with packets of several connections.
    pub mixed_trains: u64,
    /// Receive calls that failed on purpose.
    pub receive_faults: FaultCounts,
    /// Send calls that failed on purpose.
    pub send_faults: FaultCounts,
    /// Send calls that took less than they were offered.
    pub partial_sends: u64,
    /// Waits that failed on purpose.
    pub wait_faults: u64,
    /// Receive calls that panicked on purpose.
    pub panics: u64,
}
