//! The parts of command lines that `receiver` and `sender` share.
//!
//! Parsing opens no socket and no file. It resolves host names. For bad input a program prints an error that names the flag and
//! the accepted values, and exits with code 2.

use std::ffi::OsString;
use std::iter;
use std::time::Duration;

use clap::{Arg, ArgMatches, Args, Parser};
use serde::{Deserialize, Serialize};

use crate::choices::SendMode;
use crate::error::Error;
use crate::limits::{MAX_CORE, MAX_FLOWS, MAX_RATE, MAX_SIZE, MAX_THREADS, MIN_SIZE};
use crate::values::{self, number};

/// Reads a command line that does not begin with the name of the program.
pub(crate) fn parse<P: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<(P, ArgMatches), Error> {
    let command = P::command().mut_args(take_negative_numbers);
    let command = command.mut_subcommands(|command| command.mut_args(take_negative_numbers));
    let name = OsString::from(command.get_name());
    let matches = command.try_get_matches_from(iter::once(name).chain(args))?;
    Ok((P::from_arg_matches(&matches)?, matches))
}

/// Lets `--threads -4` be an error about the value of `--threads`, not about an unknown flag.
fn take_negative_numbers(arg: Arg) -> Arg {
    let has_value = arg.get_action().takes_values();
    arg.allow_negative_numbers(has_value)
}

/// The load of a sender, for a run of any length.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
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
}

/// The traffic of one sender: on the command line, in its hello, and in its report.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Threads that send, at most one per flow
    #[arg(long, value_name = "N", default_value = "1", value_parser = number(1..=MAX_THREADS))]
    pub threads: u32,
    /// The load of all threads together
    #[command(flatten)]
    #[serde(flatten)]
    pub load: Load,
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
        let Self { threads, load: Load { flows, .. }, .. } = self;
        if threads <= flows {
            return Ok(());
        }
        let problem = format!("a thread needs a flow to send, and --flows is {flows}");
        let advice = format!("give --flows {threads} or more, or {threads_flag} {flows} or fewer");
        Err(Error::usage(&format!("{threads_flag} {threads}"), problem, advice))
    }
}
