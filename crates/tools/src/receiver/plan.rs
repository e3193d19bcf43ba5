//! The settings of a receiver, and the errors of settings that cannot be used.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_socket::{ReuseportGroup, Wait};

use crate::choices::{Drain, Gro, Mode, Stage, Steer, Suite};

/// The settings of one receiver, from the command line or from a bench.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address of the UDP group and of the control connection. Port 0 takes a free port.
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
    /// The cores to which threads are pinned: thread `i` to core `i` modulo their number. Empty means not pinned.
    pub cores: Vec<usize>,
    /// How far a datagram goes before it is counted.
    pub stage: Stage,
    /// The cipher suite of the stages that have connections.
    pub suite: Suite,
    /// The mode of the stage that delivers.
    pub mode: Mode,
    /// Receive buffer to ask for, per socket, in bytes; `None` = the system's default.
    pub receive_buffer_bytes: Option<usize>,
    /// The interval between samples of the rates; at least 20 ms, the interval of the control loop.
    pub sample_interval: Duration,
    /// The maximum length of a run; `None` means until the sender is done.
    pub at_most: Option<Duration>,
}

impl Plan {
    /// The default number of threads: four, or one if the platform cannot share a port.
    pub const DEFAULT_THREADS: u32 = if ReuseportGroup::MAX_SOCKETS < 4 { 1 } else { 4 };

    /// The default interval between samples.
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

/// The reason why the threads could not start.
#[derive(Debug)]
pub enum StartError {
    /// The group could not be bound.
    Bind(io::Error),
    /// The descriptors of a thread could not be opened: the limit of open files is too low for the number of threads.
    Descriptors(io::Error),
    /// A setting cannot be used here, in one line.
    Setting(String),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bind(error) | Self::Descriptors(error) => error.fmt(f),
            Self::Setting(line) => f.write_str(line),
        }
    }
}

impl std::error::Error for StartError {}
