//! The capabilities of the sockets of a world's workers, their simulated faults, and their counters.
//!
//! This module contains data only. The ports of the network apply it.

use std::time::Duration;

pub use drumfire_socket::{Fault, FaultCounts};

/// The capabilities of the sockets of a server's workers. They do not change while a world exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sockets {
    /// Whether the connection id of a packet selects the worker, as with the kernel's filter. Otherwise a hash of the source
    /// address selects it, as for Hellos. The default is true.
    pub is_steered: bool,
    /// Whether datagrams of equal length that arrive together from one address are received as one train (GRO). The worker of the
    /// first datagram receives the train. The default is false.
    pub has_gro: bool,
    /// Whether trains are sent in one call (GSO). The default is false.
    pub has_gso: bool,
    /// The maximum number of datagrams in one receive queue. The default is 4,096.
    pub queue_datagrams: usize,
}

impl Default for Sockets {
    fn default() -> Self {
        Self { is_steered: true, has_gro: false, has_gso: false, queue_datagrams: 4_096 }
    }
}

impl Sockets {
    /// Sets whether the connection id of a packet selects the worker.
    #[must_use]
    pub fn is_steered(mut self, is_steered: bool) -> Self {
        self.is_steered = is_steered;
        self
    }

    /// Sets whether trains are received in one piece.
    #[must_use]
    pub fn has_gro(mut self, has_gro: bool) -> Self {
        self.has_gro = has_gro;
        self
    }

    /// Sets whether trains are sent in one call.
    #[must_use]
    pub fn has_gso(mut self, has_gso: bool) -> Self {
        self.has_gso = has_gso;
        self
    }

    /// Sets the maximum number of datagrams in one receive queue.
    #[must_use]
    pub fn queue_datagrams(mut self, datagrams: usize) -> Self {
        self.queue_datagrams = datagrams;
        self
    }
}

/// The simulated faults of one worker's socket. By default there are none. Each rate is a fraction of all calls, from 0 to below 1.
#[derive(Clone, Debug, Default)]
pub struct SocketFaults {
    /// The rate of receive calls that fail.
    pub receive: f64,
    /// The faults of receive calls that fail. The descriptor is lost at most once per second of the worker's clock, and can always be
    /// opened again.
    pub receive_faults: Vec<Fault>,
    /// The rate of send calls that fail.
    pub send: f64,
    /// The faults of send calls that fail.
    pub send_faults: Vec<Fault>,
    /// The rate of send calls that send only a part of the datagrams.
    pub partial: f64,
    /// The rate of send calls that find the send buffer full.
    pub blocked: f64,
    /// The maximum time for which the send buffer then stays full.
    pub blocked_for: Duration,
    /// The rate of waits that fail.
    pub wait: f64,
}

/// The counters of one worker's socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketCounts {
    /// The number of times that the worker woke up.
    pub wakeups: u64,
    /// The number of moments at which datagrams waited although the worker was neither notified of them nor due to receive by itself. A
    /// value other than 0 means that the worker missed an edge of readiness.
    pub missed_wakeups: u64,
    /// The number of datagrams that were dropped because the receive queue was full.
    pub overflowed: u64,
    /// The number of trains that were received in one piece.
    pub trains: u64,
    /// The number of these trains that contained packets of several connections.
    pub mixed_trains: u64,
    /// The simulated faults of receive calls.
    pub receive_faults: FaultCounts,
    /// The simulated faults of send calls.
    pub send_faults: FaultCounts,
    /// The number of send calls that sent only a part of the datagrams.
    pub partial_sends: u64,
    /// The number of simulated faults of waits.
    pub wait_faults: u64,
    /// The number of simulated panics of receive calls.
    pub panics: u64,
}
