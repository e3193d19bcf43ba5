//! The command line of `sender`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser};

use super::UsageError;
use super::values::{self, Output, Target, number};
use crate::choices::SendMode;
use crate::limits::{MAX_CORE, MAX_FLOWS, MAX_RATE, MAX_SIZE, MAX_THREADS, MIN_SIZE};
use crate::report::Flags;
use serde_json::Value;

/// Sends numbered datagrams to a `receiver` and compares both books.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "sender", version)]
pub struct SenderArgs {
    /// Where the receiver is
    #[arg(long, value_name = "HOST:PORT")]
    pub to: Target,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a doc comment on a flattened field would become help text")]
    pub traffic: Traffic,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<Output>,
}

/// The traffic of one sender.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Threads that send, at most one per flow
    #[arg(long, value_name = "N", default_value = "1", value_parser = number(1..=MAX_THREADS), allow_negative_numbers = true)]
    pub threads: u32,
    /// Flows, each with its own socket
    #[arg(long, value_name = "N", default_value = "64", value_parser = number(1..=MAX_FLOWS), allow_negative_numbers = true)]
    pub flows: u32,
    /// Length of every datagram; where the receiver has a --mode, of one with a single message
    #[arg(long, value_name = "BYTES", default_value = "128", value_parser = number(MIN_SIZE..=MAX_SIZE), allow_negative_numbers = true)]
    pub size: u32,
    /// Packets, or messages of the receiver's --mode, per second in all; 0 = as fast as possible
    #[arg(long, value_name = "PPS", default_value = "100000", value_parser = number(0..=MAX_RATE), allow_negative_numbers = true)]
    pub rate: u64,
    /// How datagrams are handed to the kernel; single is what separate clients cost a receiver
    #[arg(long, value_name = "MODE", default_value = "single")]
    pub send: SendMode,
    /// How long to send
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = values::run_time, allow_negative_numbers = true)]
    pub secs: Duration,
    /// Pin thread i to core CORE + i
    #[arg(
        long, value_name = "CORE", num_args = 0..=1, default_missing_value = "0",
        value_parser = number(0..=MAX_CORE), allow_negative_numbers = true
    )]
    pub pin: Option<u32>,
}

impl SenderArgs {
    /// Reads the command line, without the name of the program.
    ///
    /// # Errors
    ///
    /// The help or the error to print.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let args: Self = super::parse(args)?;
        args.traffic.check("--threads").map_err(UsageError::of_command::<Self>)?;
        Ok(args)
    }

    /// Returns flags that [`SenderArgs::parse`] reads back to the same arguments.
    #[must_use]
    pub fn to_flags(&self) -> Vec<OsString> {
        let Traffic { threads, flows, size, rate, send, secs, pin } = &self.traffic;
        // All digits of the nanoseconds, because a rounded duration would be another one.
        let secs = format!("{}.{:09}", secs.as_secs(), secs.subsec_nanos());
        let mut flags = vec![
            format!("--to={}", self.to.text),
            format!("--threads={threads}"),
            format!("--flows={flows}"),
            format!("--size={size}"),
            format!("--rate={rate}"),
            format!("--send={send}"),
            format!("--secs={secs}"),
        ];
        flags.extend(pin.map(|core| format!("--pin={core}")));
        let mut flags: Vec<OsString> = flags.into_iter().map(OsString::from).collect();
        if let Some(json) = &self.json {
            let mut flag = OsString::from("--json=");
            flag.push(match json {
                Output::Stdout => "-".as_ref(),
                Output::File(path) => path.as_os_str(),
            });
            flags.push(flag);
        }
        flags
    }

    /// Returns the flags for the report, defaults included. The destination of the report is no part of the measurement.
    #[must_use]
    pub fn flags(&self) -> Flags {
        let Traffic { secs, pin, .. } = &self.traffic;
        let mut flags = self.traffic.flags("threads");
        flags.insert("to".to_owned(), self.to.text.as_str().into());
        flags.insert("secs".to_owned(), secs.as_secs_f64().into());
        flags.extend(pin.map(|core| ("pin".to_owned(), core.into())));
        flags
    }
}

impl Traffic {
    /// Checks that every thread has a flow to send.
    pub(super) fn check(&self, threads_flag: &str) -> Result<(), UsageError> {
        let Self { threads, flows, .. } = self;
        if threads <= flows {
            return Ok(());
        }
        let problem = format!("a thread needs a flow to send, and --flows is {flows}");
        let advice = format!("give --flows {threads} or more, or {threads_flag} {flows} or fewer");
        Err(UsageError::new(&format!("{threads_flag} {threads}"), problem, advice))
    }

    /// Returns the flags that both programs take, for the report.
    pub(super) fn flags(&self, threads_flag: &str) -> Flags {
        let Self { threads, flows, size, rate, send, .. } = self;
        let flags: [(&str, Value); 5] = [
            (threads_flag, (*threads).into()),
            ("flows", (*flows).into()),
            ("size", (*size).into()),
            ("rate", (*rate).into()),
            ("send", send.name().into()),
        ];
        flags.map(|(name, value)| (name.to_owned(), value)).into()
    }
}
