//! The command line of `receiver`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use clap::builder::ArgPredicate;
use drumfire_socket::Wait;

use super::values::{self, BindAddress, Output, Target, number};
use super::{SenderArgs, Traffic, UsageError};
use crate::choices::{Drain, Gro, Mode, SendMode, Stage, Steer, Suite};
use crate::limits::{
    MAX_CORE, MAX_FLOWS, MAX_RATE, MAX_RECEIVE_BUFFER_BYTES, MAX_SIZE, MAX_THREADS, MIN_SIZE, SEALED_MIN_SIZE,
};
use crate::receiver::Plan;
use crate::report::Flags;
use serde_json::Value;

/// Receives on N threads that share one UDP port, and accounts for every datagram.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "receiver", version)]
pub struct ReceiverArgs {
    /// Where to bind, UDP and TCP; port 0 = a free one [with --with-sender: 127.0.0.1:0]
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9000",
        default_value_if("with_sender", ArgPredicate::IsPresent, "127.0.0.1:0")
    )]
    pub bind: BindAddress,
    /// Threads, each with its own socket
    #[arg(
        long, value_name = "N", default_value_t = Plan::DEFAULT_THREADS,
        value_parser = number(1..=MAX_THREADS), allow_negative_numbers = true
    )]
    pub threads: u32,
    /// How a thread takes datagrams
    #[arg(long, value_name = "WAY", default_value_t = Drain::best())]
    pub drain: Drain,
    /// Whether the kernel may hand over trains of datagrams
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub gro: Gro,
    /// How a thread waits: notify, gather, gather=MICROSECONDS or spin
    #[arg(long, value_name = "WAY", default_value_t = Wait::best(), value_parser = values::wait)]
    pub wait: Wait,
    /// How a datagram finds its thread
    #[arg(long, value_name = "WAY", default_value = "tag")]
    pub steer: Steer,
    /// Pin thread i to core i
    #[arg(long)]
    pub pin: bool,
    /// When to stop [default: at Ctrl-C, with --with-sender after 10]
    #[arg(
        long, value_name = "SECONDS", value_parser = values::run_time, allow_negative_numbers = true,
        default_value_if("with_sender", ArgPredicate::IsPresent, "10")
    )]
    pub secs: Option<Duration>,
    /// Write packets per second and thread as CSV
    #[arg(long, value_name = "FILE", value_parser = values::file)]
    pub csv: Option<PathBuf>,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<Output>,
    /// Draw packets per second of each thread as a box plot
    #[arg(long, value_name = "FILE.svg", value_parser = values::svg_file)]
    pub plot: Option<PathBuf>,
    /// How far a datagram goes before it is counted
    #[arg(long, value_name = "STAGE", default_value = "parse")]
    pub stage: Stage,
    /// The suite that seals packets in the stages open and deliver [default: the fastest here]
    #[arg(long, value_name = "SUITE")]
    pub suite: Option<Suite>,
    /// The payload of the stage deliver [default: packets]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// Receive buffer to ask for, per socket
    #[arg(
        long, value_name = "BYTES", default_value = "4194304",
        value_parser = number(1..=MAX_RECEIVE_BUFFER_BYTES), allow_negative_numbers = true
    )]
    pub receive_buffer: u32,
    /// Let Prometheus read the threads' numbers at http://HOST:PORT/metrics
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics_address: Option<BindAddress>,
    /// Make a local control socket there, for `drumfire top`
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Show a live view instead of a line a second
    #[arg(long)]
    pub tui: bool,
    /// Start a sender on this host too and stop with it
    #[arg(long)]
    pub with_sender: bool,
    #[command(flatten)]
    sender: SenderFlags,
}

/// The flags of the sender that `--with-sender` starts.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Only with --with-sender")]
struct SenderFlags {
    /// Threads that send
    #[arg(
        long, value_name = "N", default_value = "1", requires = "with_sender",
        value_parser = number(1..=MAX_THREADS), allow_negative_numbers = true
    )]
    sender_threads: u32,
    /// Flows, each with its own socket
    #[arg(
        long, value_name = "N", default_value = "64", requires = "with_sender",
        value_parser = number(1..=MAX_FLOWS), allow_negative_numbers = true
    )]
    flows: u32,
    /// Length of every datagram, with a --mode of one with a single message
    #[arg(
        long, value_name = "BYTES", default_value = "128", requires = "with_sender",
        value_parser = number(MIN_SIZE..=MAX_SIZE), allow_negative_numbers = true
    )]
    size: u32,
    /// Packets, or messages of a --mode, per second in all; 0 = as fast as possible
    #[arg(
        long, value_name = "PPS", default_value = "100000", requires = "with_sender",
        value_parser = number(0..=MAX_RATE), allow_negative_numbers = true
    )]
    rate: u64,
    /// How datagrams are handed to the kernel
    #[arg(long, value_name = "MODE", default_value = "single", requires = "with_sender")]
    send: SendMode,
}

impl ReceiverArgs {
    /// Reads the command line, without the name of the program.
    ///
    /// # Errors
    ///
    /// The help or the error to print.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let args: Self = super::parse(args)?;
        args.check().map_err(UsageError::of_command::<Self>)?;
        Ok(args)
    }

    /// The suite that seals packets.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite.unwrap_or_else(Suite::best)
    }

    /// The mode that is delivered.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::Packets)
    }

    /// The traffic of the sender that `--with-sender` starts.
    #[must_use]
    pub fn traffic(&self) -> Option<Traffic> {
        let SenderFlags { sender_threads, flows, size, rate, send } = self.sender;
        self.with_sender.then(|| Traffic {
            threads: sender_threads,
            flows,
            size,
            rate,
            send,
            secs: self.secs.unwrap_or_default(),
            // The sender's threads begin on the core after the receiver's.
            pin: self.pin.then(|| self.threads.min(MAX_CORE)),
        })
    }

    /// The arguments of the sender that `--with-sender` starts for a receiver at `bound`.
    #[must_use]
    pub fn sender(&self, bound: SocketAddr) -> Option<SenderArgs> {
        let to = Target::from(BindAddress::reachable(bound));
        self.traffic().map(|traffic| SenderArgs { to, traffic, json: None })
    }

    /// Returns the flags for the report, defaults included. The destinations of results are no part of the measurement.
    #[must_use]
    pub fn flags(&self) -> Flags {
        let mut flags = self.traffic().map_or_else(Flags::new, |traffic| traffic.flags("sender_threads"));
        let is_delivered = self.stage == Stage::Deliver;
        let own: [(&str, Option<Value>); 13] = [
            ("bind", Some(self.bind.text.as_str().into())),
            ("threads", Some(self.threads.into())),
            ("drain", Some(self.drain.name().into())),
            ("gro", Some(self.gro.name().into())),
            ("wait", Some(self.wait.to_string().into())),
            ("steer", Some(self.steer.name().into())),
            ("pin", Some(on_or_off(self.pin).into())),
            ("secs", self.secs.map(|run| run.as_secs_f64().into())),
            ("stage", Some(self.stage.name().into())),
            ("suite", self.stage.is_sealed().then(|| self.suite().name().into())),
            ("mode", is_delivered.then(|| self.mode().name().into())),
            ("receive_buffer", Some(self.receive_buffer.into())),
            ("with_sender", Some(on_or_off(self.with_sender).into())),
        ];
        flags.extend(own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        flags
    }

    /// Checks the flags that depend on each other.
    fn check(&self) -> Result<(), UsageError> {
        if self.drain == Drain::Recv && self.gro == Gro::On {
            let problem = "--drain recv takes one datagram per call and cannot split trains";
            return Err(UsageError::new("--gro on", problem, "give --drain recvmmsg, or --gro off"));
        }
        if let Some(suite) = self.suite.filter(|_| !self.stage.is_sealed()) {
            let problem = format!("nothing is sealed in the stage {}", self.stage);
            let advice = "add --stage open or --stage deliver";
            return Err(UsageError::new(&format!("--suite {suite}"), problem, advice));
        }
        if let Some(mode) = self.mode.filter(|_| self.stage != Stage::Deliver) {
            let problem = format!("nothing is delivered in the stage {}", self.stage);
            return Err(UsageError::new(&format!("--mode {mode}"), problem, "add --stage deliver"));
        }
        self.check_files()?;
        self.traffic().map_or(Ok(()), |traffic| self.check_traffic(&traffic))
    }

    fn check_files(&self) -> Result<(), UsageError> {
        let json = match &self.json {
            Some(Output::File(path)) => Some(path),
            _ => None,
        };
        let mut seen: Vec<(&str, &Path)> = Vec::new();
        for (flag, path) in [("--csv", self.csv.as_ref()), ("--json", json), ("--plot", self.plot.as_ref())] {
            let Some(path) = path else { continue };
            if let Some((first, _)) = seen.iter().find(|(_, other)| other == path) {
                let subject = format!("{flag} {}", path.display());
                return Err(UsageError::new(
                    &subject,
                    format!("{first} writes that file too"),
                    format!("give {flag} another file"),
                ));
            }
            seen.push((flag, path));
        }
        Ok(())
    }

    fn check_traffic(&self, traffic: &Traffic) -> Result<(), UsageError> {
        traffic.check("--sender-threads")?;
        let (mode, most) = (self.mode(), self.mode().max_size());
        if !self.stage.is_sealed() || (SEALED_MIN_SIZE..=most).contains(&traffic.size) {
            return Ok(());
        }
        let what = if mode.has_messages() { format!("mode {mode}") } else { format!("stage {}", self.stage) };
        let problem = format!("the {what} takes packets of {SEALED_MIN_SIZE} to {most} bytes");
        let advice = format!("give --size {SEALED_MIN_SIZE} to {most}");
        Err(UsageError::new(&format!("--size {}", traffic.size), problem, advice))
    }
}

const fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}
