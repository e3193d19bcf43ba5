//! The settings of a receiver. Documentation of a flag is its help text.

use std::net::SocketAddr;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, Command, FromArgMatches};
use drumfire_socket::{ReuseportGroup, Wait};

use crate::choices::{Drain, Gro, Mode, Stage, Steer, Suite};
use crate::limits::{MAX_RECEIVE_BUFFER_BYTES, MAX_THREADS};
use crate::values::{self, number};

/// The settings of one receiver, from the command line or from a bench.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct Plan {
    /// Where to bind, UDP and TCP; port 0 = a free one [with --with-sender: 127.0.0.1:0]
    #[arg(
        long, value_name = "HOST:PORT", value_parser = values::bind_address, default_value = "127.0.0.1:9000",
        default_value_if("with_sender", ArgPredicate::IsPresent, "127.0.0.1:0")
    )]
    pub bind: SocketAddr,
    /// Threads, each with its own socket
    #[arg(long, value_name = "N", default_value_t = Self::DEFAULT_THREADS, value_parser = number(1..=MAX_THREADS))]
    pub threads: u32,
    /// How a thread takes datagrams
    #[arg(long, value_name = "WAY", default_value_t = Drain::best())]
    pub drain: Drain,
    /// Whether the kernel may hand over trains of datagrams
    #[arg(long, value_name = "WHEN", default_value_t = Gro::Auto)]
    pub gro: Gro,
    /// How a thread waits: notify, gather, gather=MICROSECONDS or spin
    #[arg(long, value_name = "WAY", default_value_t = Wait::best(), value_parser = values::wait)]
    pub wait: Wait,
    /// How a datagram finds its thread
    #[arg(long, value_name = "WAY", default_value_t = Steer::Tag)]
    pub steer: Steer,
    /// When to stop [default: at Ctrl-C, with --with-sender after 10]
    #[arg(
        long, value_name = "SECONDS", value_parser = values::run_time,
        default_value_if("with_sender", ArgPredicate::IsPresent, "10")
    )]
    pub secs: Option<Duration>,
    /// How far a datagram goes before it is counted
    #[arg(long, value_name = "STAGE", default_value_t = Stage::Parse)]
    pub stage: Stage,
    /// The suite that seals packets in the stages open and deliver
    #[arg(long, value_name = "SUITE", default_value_t = Suite::best())]
    pub suite: Suite,
    /// The payload of the stage deliver
    #[arg(long, value_name = "MODE", default_value_t = Mode::Packets)]
    pub mode: Mode,
    /// Receive buffer to ask for, per socket
    #[arg(
        long = "receive-buffer", value_name = "BYTES", default_value = "4194304",
        value_parser = number(1..=MAX_RECEIVE_BUFFER_BYTES)
    )]
    pub receive_buffer_bytes: Option<usize>,
    /// The cores to which threads are pinned: thread `i` to core `i` modulo their number. Empty means not pinned.
    #[arg(skip)]
    pub cores: Vec<usize>,
}

impl Plan {
    /// The default number of threads: four, or one if the platform cannot share a port.
    pub const DEFAULT_THREADS: u32 = if ReuseportGroup::MAX_SOCKETS < 4 { 1 } else { 4 };

    /// The defaults of the command line, at this address and with the receive buffer of the system.
    pub fn new(bind: SocketAddr) -> Self {
        let matches = Self::augment_args(Command::new("receiver")).get_matches_from(["receiver"]);
        let defaults = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        Self { bind, receive_buffer_bytes: None, ..defaults }
    }

    /// Returns whether the kernel may hand over trains, so that it counts trains instead of datagrams.
    pub(super) fn may_see_trains(&self) -> bool {
        self.gro != Gro::Off && self.drain != Drain::Recv
    }

    /// Returns whether routing tags select the thread. One socket has nothing to steer, and some platforms allow only one.
    pub(super) fn is_steered(&self) -> bool {
        self.steer == Steer::Tag && self.threads > 1
    }

    /// The core of thread `index`, if threads are pinned.
    pub(super) fn core(&self, index: usize) -> Option<usize> {
        self.cores.get(index % self.cores.len().max(1)).copied()
    }
}
