//! What a receiver is asked to do, checked and ready to run.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_socket::{ReuseportGroup, Wait};

use crate::choices::{Drain, Gro, Mode, Stage, Steer, Suite};

/// The settings of one receiver, whoever asks: the command line or a bench.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Address of the UDP group and of the control connection; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Receiver threads, each with a socket of its own.
    pub threads: u32,
    /// How a thread takes datagrams from its socket.
    pub drain: Drain,
    /// Whether the kernel may hand over trains.
    pub gro: Gro,
    /// How a thread waits.
    pub wait: Wait,
    /// How a datagram finds its thread.
    pub steer: Steer,
    /// Whether each thread hands its datagrams to a second one, which does the stages: only to measure what that costs.
    pub has_hop: bool,
    /// The cores threads are pinned to, thread `i` to the `i`-th, round and round, second threads
    /// behind them; empty = not pinned.
    pub cores: Vec<usize>,
    /// How far a datagram goes before it is counted.
    pub stage: Stage,
    /// What seals packets, in the stages that have connections.
    pub suite: Suite,
    /// What is delivered, in the stage that delivers.
    pub mode: Mode,
    /// Receive buffer to ask for, per socket, in bytes; `None` = the system's default.
    pub receive_buffer_bytes: Option<usize>,
    /// How often the threads' rates are sampled; 20 ms or more, since nobody looks more often.
    pub sample_interval: Duration,
    /// How long to receive at most; `None` = until the sender is done.
    pub at_most: Option<Duration>,
}

impl Plan {
    /// Threads unless told otherwise: four, or one where the platform shares no port among them.
    pub const DEFAULT_THREADS: u32 = if ReuseportGroup::MAX_SOCKETS < 4 { 1 } else { 4 };

    /// A sample a second, unless told otherwise.
    pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

    /// The defaults of the command line, at this address.
    #[must_use]
    pub fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            threads: Self::DEFAULT_THREADS,
            drain: Drain::best(),
            gro: Gro::Auto,
            wait: Wait::best(),
            steer: Steer::Tag,
            has_hop: false,
            cores: Vec::new(),
            stage: Stage::Parse,
            suite: Suite::best(),
            mode: Mode::Packets,
            receive_buffer_bytes: None,
            sample_interval: Self::SAMPLE_INTERVAL,
            at_most: None,
        }
    }
}
