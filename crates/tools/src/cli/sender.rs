//! The command line of `sender`.
//!
//! What it means to send is not here, nor the connection that announces it.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;
use serde_json::{Map, Value, json};

use super::address::{self, Endpoint, Resolver, Target, resolve_by_system};
use super::output::{self, Output};
use super::usage::UsageError;
use super::{Stop, refusal, values};
use crate::choices::SendMode;

/// What `sender` was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderArgs {
    /// Where to send.
    pub to: Target,
    /// What to send.
    pub traffic: Traffic,
    /// Where the report goes, if anywhere.
    pub json: Option<Output>,
}

/// The traffic of one sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Threads that send, at most as many as flows.
    pub threads: u32,
    /// Flows, each with its own socket.
    pub flows: u32,
    /// Length of every datagram in bytes.
    pub size: u32,
    /// Packets per second in all, offered whether or not they get through; 0 = as fast as possible.
    pub rate: u64,
    /// How datagrams are handed to the kernel.
    pub send: SendMode,
    /// How long to send.
    pub secs: Duration,
    /// Pin thread i to core `pin` + i, modulo the cores there are.
    pub pin: Option<u32>,
}

/// Sends numbered datagrams to a `receiver` and compares both books.
#[derive(Debug, Parser)]
#[command(name = "sender", version, no_binary_name = true)]
struct Flags {
    /// Where the receiver is
    #[arg(long, value_name = "HOST:PORT", value_parser = address::to)]
    to: Endpoint,
    /// Threads that send, at most one per flow
    #[arg(
        long, value_name = "N", default_value = "1",
        value_parser = values::sender_threads, allow_negative_numbers = true
    )]
    threads: u32,
    /// Flows, each with its own socket
    #[arg(
        long, value_name = "N", default_value = "64",
        value_parser = values::flows, allow_negative_numbers = true
    )]
    flows: u32,
    /// Length of every datagram; where the receiver has a --mode, of one with a single message
    #[arg(
        long, value_name = "BYTES", default_value = "128",
        value_parser = values::size, allow_negative_numbers = true
    )]
    size: u32,
    /// Packets, or messages of the receiver's --mode, per second in all; 0 = as fast as possible
    #[arg(
        long, value_name = "PPS", default_value = "100000",
        value_parser = values::rate, allow_negative_numbers = true
    )]
    rate: u64,
    /// How datagrams are handed to the kernel; single is what separate clients cost a receiver
    #[arg(long, value_name = "MODE", default_value = "single")]
    send: SendMode,
    /// How long to send
    #[arg(
        long, value_name = "SECONDS", default_value = "10",
        value_parser = values::secs, allow_negative_numbers = true
    )]
    secs: Duration,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE", value_parser = output::json)]
    json: Option<Output>,
    /// Pin thread i to core CORE + i
    #[arg(
        long, value_name = "CORE", num_args = 0..=1, default_missing_value = "0",
        value_parser = values::core, allow_negative_numbers = true
    )]
    pin: Option<u32>,
}

impl SenderArgs {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    ///
    /// [`Stop`] with the help or the one line to show.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, Stop> {
        Self::parse_with(args, &resolve_by_system)
    }

    pub(super) fn parse_with(
        args: impl IntoIterator<Item = OsString>,
        resolver: Resolver<'_>,
    ) -> Result<Self, Stop> {
        let flags = Flags::try_parse_from(args).map_err(|error| refusal::stop(&error))?;
        let Flags { to, threads, flows, size, rate, send, secs, json, pin } = flags;
        let traffic = Traffic { threads, flows, size, rate, send, secs, pin };
        traffic.check("--threads")?;
        Ok(Self { to: Target::resolve(&to, resolver)?, traffic, json })
    }

    /// The flags that [`SenderArgs::parse`] reads back to the same arguments; no shell is needed in between.
    #[must_use]
    pub fn to_flags(&self) -> Vec<OsString> {
        let Traffic { threads, flows, size, rate, send, secs, pin } = &self.traffic;
        let mut flags = vec![
            format!("--to={}", self.to.text),
            format!("--threads={threads}"),
            format!("--flows={flows}"),
            format!("--size={size}"),
            format!("--rate={rate}"),
            format!("--send={send}"),
            format!("--secs={}", values::secs_text(*secs)),
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

    /// The flags with their values for the report, those that were not given at their defaults.
    ///
    /// Where the report goes is left out: it has no part in what was measured.
    #[must_use]
    pub fn flags(&self) -> Map<String, Value> {
        let mut flags = self.traffic.flags("threads");
        flags.insert("to".to_owned(), json!(self.to.text));
        flags.insert("pin".to_owned(), json!(self.traffic.pin));
        flags.insert("secs".to_owned(), json!(self.traffic.secs.as_secs_f64()));
        flags
    }
}

impl Traffic {
    pub(super) fn check(&self, threads_flag: &str) -> Result<(), UsageError> {
        if self.threads <= self.flows {
            return Ok(());
        }
        let Self { threads, flows, .. } = self;
        let problem = format!("a thread needs a flow to send, and --flows is {flows}");
        let way_out = format!("give --flows {threads} or more, or {threads_flag} {flows} or fewer");
        Err(UsageError::new(threads_flag, problem, way_out).with_value(threads.to_string()))
    }

    /// The flags that both programs take.
    pub(super) fn flags(&self, threads_flag: &str) -> Map<String, Value> {
        let Self { threads, flows, size, rate, send, .. } = self;
        [
            (threads_flag, json!(threads)),
            ("flows", json!(flows)),
            ("size", json!(size)),
            ("rate", json!(rate)),
            ("send", json!(send)),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}
