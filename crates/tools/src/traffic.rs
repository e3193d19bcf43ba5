//! The traffic of one sender: on the command line, in its hello, and in its report.

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::choices::SendMode;
use crate::error::Error;
use crate::limits::{MAX_CORE, MAX_FLOWS, MAX_RATE, MAX_SIZE, MAX_THREADS, MIN_SIZE};
use crate::values::{self, number};

/// The settings of one sender.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Threads that send, at most one per flow
    #[arg(long, value_name = "N", default_value = "1", value_parser = number(1..=MAX_THREADS))]
    pub threads: u32,
    /// Flows, each with its own socket
    #[arg(long, value_name = "N", default_value = "64", value_parser = number(1..=MAX_FLOWS))]
    pub flows: u32,
    /// Length of every datagram; where the receiver has a --mode, of one with a single message
    #[arg(long, value_name = "BYTES", default_value = "128", value_parser = number(MIN_SIZE..=MAX_SIZE))]
    pub size: u32,
    /// Packets, or messages of the receiver's --mode, per second in all; 0 = as fast as possible
    #[arg(long, value_name = "PPS", default_value = "100000", value_parser = number(0..=MAX_RATE))]
    pub rate: u64,
    /// How datagrams are handed to the kernel; single is what separate clients cost a receiver
    #[arg(long, value_name = "MODE", default_value = "single")]
    pub send: SendMode,
    /// How long to send
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = values::run_time)]
    #[serde(with = "values::in_seconds")]
    pub secs: Duration,
    /// Pin thread i to core CORE + i
    #[arg(long, value_name = "CORE", num_args = 0..=1, default_missing_value = "0", value_parser = number(0..=MAX_CORE))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<u32>,
}

impl Traffic {
    /// Checks that every thread has a flow to send.
    pub(crate) fn check(&self, threads_flag: &str) -> Result<(), Error> {
        let Self { threads, flows, .. } = self;
        if threads <= flows {
            return Ok(());
        }
        let problem = format!("a thread needs a flow to send, and --flows is {flows}");
        let advice = format!("give --flows {threads} or more, or {threads_flag} {flows} or fewer");
        Err(Error::usage(&format!("{threads_flag} {threads}"), problem, advice))
    }
}
