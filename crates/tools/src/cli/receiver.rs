//! The command line of `receiver`.
//!
//! What it means to receive is not here, nor the start of the second process for `--with-sender`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use drumfire_socket::Wait;
use serde_json::{Map, Value, json};

use super::address::{self, BindAddress, Endpoint, Resolver, Target, resolve_by_system};
use super::output::{self, Output};
use super::sender::{SenderArgs, Traffic};
use super::usage::UsageError;
use super::{Stop, refusal, values};
use crate::choices::{Drain, Gro, Mode, SendMode, Stage, Steer, Suite};
use crate::limits::SEALED_MIN_SIZE;
use crate::receiver::Plan;

/// What `receiver` was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverArgs {
    /// Where to bind, UDP and TCP alike.
    pub bind: BindAddress,
    /// Threads, each with its own socket.
    pub threads: u32,
    /// How a thread takes datagrams.
    pub drain: Drain,
    /// Whether the kernel may hand over trains; never [`Gro::On`] with [`Drain::Recv`].
    pub gro: Gro,
    /// How a thread waits.
    pub wait: Wait,
    /// How a datagram finds its thread.
    pub steer: Steer,
    /// Whether thread i is pinned to core i, modulo the cores there are.
    pub pin: bool,
    /// When to stop by itself; never, when there is none and no sender of its own.
    pub secs: Option<Duration>,
    /// Where the rates per second and thread go.
    pub csv: Option<PathBuf>,
    /// Where the report goes.
    pub json: Option<Output>,
    /// Where the box plot goes.
    pub plot: Option<PathBuf>,
    /// How far a datagram goes before it is counted.
    pub stage: Stage,
    /// What seals packets, in the stages that have connections.
    pub suite: Suite,
    /// What is delivered, in the stage that delivers.
    pub mode: Mode,
    /// The receive buffer to ask for, in bytes and per socket; what the kernel grants may differ.
    pub receive_buffer_bytes: u32,
    /// Where the threads' numbers can be read by Prometheus, if anywhere.
    pub metrics_address: Option<BindAddress>,
    /// Where the control socket is made, if one is.
    pub control: Option<PathBuf>,
    /// Whether a live view is shown instead of a line a second.
    pub has_view: bool,
    /// The traffic of the sender to start beside it, if any.
    pub with_sender: Option<Traffic>,
}

/// Receives on N threads that share one UDP port, and accounts for every datagram.
#[derive(Debug, Parser)]
#[command(name = "receiver", version, no_binary_name = true)]
struct Flags {
    /// Where to bind, UDP and TCP; port 0 = a free one [default: 127.0.0.1:9000, with --with-sender 127.0.0.1:0]
    #[arg(long, value_name = "HOST:PORT", value_parser = address::bind)]
    bind: Option<Endpoint>,
    /// Threads, each with its own socket
    #[arg(
        long, value_name = "N", default_value_t = Plan::DEFAULT_THREADS,
        value_parser = values::receiver_threads, allow_negative_numbers = true
    )]
    threads: u32,
    /// How a thread takes datagrams
    #[arg(long, value_name = "WAY", default_value_t = Drain::best())]
    drain: Drain,
    /// Whether the kernel may hand over trains of datagrams
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    gro: Gro,
    /// How a thread waits: notify, gather, gather=MICROSECONDS or spin
    #[arg(long, value_name = "WAY", default_value_t = Wait::best(), value_parser = values::wait)]
    wait: Wait,
    /// How a datagram finds its thread
    #[arg(long, value_name = "WAY", default_value = "tag")]
    steer: Steer,
    /// Pin thread i to core i
    #[arg(long)]
    pin: bool,
    /// When to stop [default: at Ctrl-C, with --with-sender after 10]
    #[arg(long, value_name = "SECONDS", value_parser = values::secs, allow_negative_numbers = true)]
    secs: Option<Duration>,
    /// Write packets per second and thread as CSV
    #[arg(long, value_name = "FILE", value_parser = output::csv)]
    csv: Option<PathBuf>,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE", value_parser = output::json)]
    json: Option<Output>,
    /// Draw packets per second of each thread as a box plot
    #[arg(long, value_name = "FILE.svg", value_parser = output::plot)]
    plot: Option<PathBuf>,
    /// How far a datagram goes before it is counted
    #[arg(long, value_name = "STAGE", default_value = "parse")]
    stage: Stage,
    /// What seals packets in the stages open and deliver [default: the fastest here]
    #[arg(long, value_name = "SUITE")]
    suite: Option<Suite>,
    /// What is delivered in the stage deliver [default: packets]
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Receive buffer to ask for, per socket
    #[arg(
        long, value_name = "BYTES", default_value = "4194304",
        value_parser = values::receive_buffer, allow_negative_numbers = true
    )]
    receive_buffer: u32,
    /// Let Prometheus read the threads' numbers at http://HOST:PORT/metrics
    #[arg(long, value_name = "HOST:PORT", value_parser = address::metrics)]
    metrics_address: Option<Endpoint>,
    /// Make a local control socket there, for `drumfire top`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Show a live view instead of a line a second
    #[arg(long)]
    tui: bool,
    /// Start a sender on this host too and stop with it
    #[arg(long)]
    with_sender: bool,
    #[command(flatten)]
    sender: SenderFlags,
}

/// The flags that are handed on to the sender; none has a default here, so that it shows whether it was given.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Only with --with-sender")]
struct SenderFlags {
    /// Threads that send [default: 1]
    #[arg(long, value_name = "N", value_parser = values::threads_of_sender, allow_negative_numbers = true)]
    sender_threads: Option<u32>,
    /// Flows, each with its own socket [default: 64]
    #[arg(long, value_name = "N", value_parser = values::flows, allow_negative_numbers = true)]
    flows: Option<u32>,
    /// Length of every datagram, with a --mode of one with a single message [default: 128]
    #[arg(long, value_name = "BYTES", value_parser = values::size, allow_negative_numbers = true)]
    size: Option<u32>,
    /// Packets, or messages of a --mode, per second in all; 0 = as fast as possible [default: 100000]
    #[arg(long, value_name = "PPS", value_parser = values::rate, allow_negative_numbers = true)]
    rate: Option<u64>,
    /// How datagrams are handed to the kernel [default: single]
    #[arg(long, value_name = "MODE")]
    send: Option<SendMode>,
}

const DEFAULT_BIND: &str = "127.0.0.1:9000";

/// A free port, so that two runs at once never meet.
const DEFAULT_BIND_WITH_SENDER: &str = "127.0.0.1:0";

const DEFAULT_RUN_WITH_SENDER: Duration = Duration::from_secs(10);

impl ReceiverArgs {
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
        flags.check()?;
        let with_sender = flags.traffic()?;
        let bind = flags.bind(resolver)?;
        let metrics = flags.metrics_address.as_ref();
        let metrics = metrics.map(|endpoint| BindAddress::resolve("--metrics-address", endpoint, resolver));
        let mode = flags.mode();
        Ok(Self {
            bind,
            threads: flags.threads,
            drain: flags.drain,
            gro: flags.gro,
            wait: flags.wait,
            steer: flags.steer,
            pin: flags.pin,
            secs: with_sender.as_ref().map(|traffic| traffic.secs).or(flags.secs),
            csv: flags.csv,
            json: flags.json,
            plot: flags.plot,
            stage: flags.stage,
            suite: flags.suite.unwrap_or_else(Suite::best),
            mode,
            receive_buffer_bytes: flags.receive_buffer,
            metrics_address: metrics.transpose()?,
            control: flags.control,
            has_view: flags.tui,
            with_sender,
        })
    }

    /// The sender to start beside a receiver that is bound to `bound`, if one was asked for.
    #[must_use]
    pub fn sender(&self, bound: SocketAddr) -> Option<SenderArgs> {
        let to = Target::from(BindAddress::reachable(bound));
        self.with_sender.clone().map(|traffic| SenderArgs { to, traffic, json: None })
    }

    /// The flags with their values for the report, those that were not given at their defaults.
    ///
    /// Where results go is left out: it has no part in what was measured.
    #[must_use]
    pub fn flags(&self) -> Map<String, Value> {
        let mut flags =
            self.with_sender.as_ref().map_or_else(Map::new, |traffic| traffic.flags("sender_threads"));
        let own = [
            ("bind", json!(self.bind.text)),
            ("threads", json!(self.threads)),
            ("drain", json!(self.drain)),
            ("gro", json!(self.gro)),
            ("wait", json!(self.wait.to_string())),
            ("steer", json!(self.steer)),
            ("pin", json!(self.pin)),
            ("secs", json!(self.secs.map(|run| run.as_secs_f64()))),
            ("stage", json!(self.stage)),
            ("suite", json!(self.stage.is_sealed().then_some(self.suite))),
            ("mode", json!((self.stage == Stage::Deliver).then_some(self.mode))),
            ("receive_buffer", json!(self.receive_buffer_bytes)),
            ("with_sender", json!(self.with_sender.is_some())),
        ];
        flags.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
        flags
    }
}

impl Flags {
    /// What two flags make of each other.
    fn check(&self) -> Result<(), UsageError> {
        if self.drain == Drain::Recv && self.gro == Gro::On {
            let problem = "--drain recv takes one datagram per call and cannot take trains apart";
            return Err(
                UsageError::new("--gro", problem, "give --drain recvmmsg, or --gro off").with_value("on")
            );
        }
        if let Some(suite) = self.suite.filter(|_| !self.stage.is_sealed()) {
            let problem = format!("nothing is sealed in the stage {}", self.stage);
            return Err(UsageError::new("--suite", problem, "add --stage open or --stage deliver")
                .with_value(suite.name()));
        }
        if let Some(mode) = self.mode.filter(|_| self.stage != Stage::Deliver) {
            let problem = format!("nothing is delivered in the stage {}", self.stage);
            return Err(UsageError::new("--mode", problem, "add --stage deliver").with_value(mode.name()));
        }
        if let Some(flag) = self.sender.first_given().filter(|_| !self.with_sender) {
            let way_out = format!("add --with-sender, or give {flag} to `sender`");
            return Err(UsageError::new(flag, "it is for the sender, and none is started here", way_out));
        }
        self.check_files()
    }

    fn check_files(&self) -> Result<(), UsageError> {
        let json = match &self.json {
            Some(Output::File(path)) => Some(path),
            _ => None,
        };
        let files = [("--csv", self.csv.as_ref()), ("--json", json), ("--plot", self.plot.as_ref())];
        for (place, (first, path)) in files.iter().enumerate() {
            let Some(path) = path else { continue };
            if let Some((second, _)) = files.iter().skip(place + 1).find(|(_, other)| *other == Some(path)) {
                let problem = format!("{first} writes that file too");
                return Err(UsageError::new(second, problem, format!("give {second} another file"))
                    .with_value(path.to_string_lossy()));
            }
        }
        Ok(())
    }

    fn traffic(&self) -> Result<Option<Traffic>, UsageError> {
        if !self.with_sender {
            return Ok(None);
        }
        let traffic = Traffic {
            threads: self.sender.sender_threads.unwrap_or(1),
            flows: self.sender.flows.unwrap_or(64),
            size: self.sender.size.unwrap_or(128),
            rate: self.sender.rate.unwrap_or(100_000),
            send: self.sender.send.unwrap_or(SendMode::Single),
            secs: self.secs.unwrap_or(DEFAULT_RUN_WITH_SENDER),
            // The sender's threads begin on the core after the receiver's.
            pin: self.pin.then_some(self.threads.min(crate::limits::MAX_CORE)),
        };
        traffic.check("--sender-threads")?;
        let (mode, most) = (self.mode(), self.mode().max_size());
        if self.stage.is_sealed() && !(SEALED_MIN_SIZE..=most).contains(&traffic.size) {
            let what =
                if mode.has_messages() { format!("mode {mode}") } else { format!("stage {}", self.stage) };
            let problem = format!("the {what} takes packets of {SEALED_MIN_SIZE} to {most} bytes");
            let way_out = format!("give --size {SEALED_MIN_SIZE} to {most}");
            return Err(UsageError::new("--size", problem, way_out).with_value(traffic.size.to_string()));
        }
        Ok(Some(traffic))
    }

    fn mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::Packets)
    }

    fn bind(&self, resolver: Resolver<'_>) -> Result<BindAddress, UsageError> {
        let default = if self.with_sender { DEFAULT_BIND_WITH_SENDER } else { DEFAULT_BIND };
        match &self.bind {
            Some(endpoint) => BindAddress::resolve("--bind", endpoint, resolver),
            None => address::bind(default)
                .map_err(|bad| UsageError::new("--bind", bad.problem, bad.way_out))
                .and_then(|endpoint| BindAddress::resolve("--bind", &endpoint, resolver)),
        }
    }
}

impl SenderFlags {
    fn first_given(&self) -> Option<&'static str> {
        [
            ("--flows", self.flows.is_some()),
            ("--size", self.size.is_some()),
            ("--rate", self.rate.is_some()),
            ("--send", self.send.is_some()),
            ("--sender-threads", self.sender_threads.is_some()),
        ]
        .into_iter()
        .find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}
