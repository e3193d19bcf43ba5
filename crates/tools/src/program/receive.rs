//! `receiver`: binds, starts a sender if it should, prints a line per second, and writes the report.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;

use clap::parser::ValueSource;
use clap::{ArgMatches, Parser};
use drumfire::control::SurveyOrder;
use drumfire_control::{ControlSocket, Source as _};
use serde_json::json;

use super::{OutputFile, command, is_interrupted, print_line, watch_for_interrupt, write_report};
use crate::choices::{Drain, Gro, Stage};
use crate::cli::{self, Load, Traffic};
use crate::error::Error;
use crate::limits::{MAX_CORE, MAX_THREADS, SEALED_MIN_SIZE};
use crate::receiver::{BoundReceiver, Plan};
use crate::report::{Flags, flags_of};
use crate::values::{self, number};
use crate::{host, metrics, plot, sender, table, top};

/// Receives on N threads that share one UDP port, and accounts for every datagram.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "receiver", version, mut_group("Load", |load| load.requires("with_sender")))]
pub(crate) struct ReceiverArgs {
    #[command(flatten)]
    pub plan: Plan,
    /// Pin thread i to core i
    #[arg(long)]
    pub pin: bool,
    /// Write packets per second and thread as CSV
    #[arg(long, value_name = "FILE", value_parser = values::file)]
    pub csv: Option<PathBuf>,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE", value_parser = values::json_file)]
    pub json: Option<PathBuf>,
    /// Draw packets per second of each thread as a box plot
    #[arg(long, value_name = "FILE.svg", value_parser = values::svg_file)]
    pub plot: Option<PathBuf>,
    /// Let Prometheus read the threads' numbers at http://HOST:PORT/metrics
    #[arg(long, value_name = "HOST:PORT", value_parser = values::bind_address)]
    pub metrics_address: Option<SocketAddr>,
    /// Make a local control socket there, for `drumfire top`
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Show a live view instead of a line a second
    #[arg(long)]
    pub tui: bool,
    /// Start a sender on this host too and stop with it
    #[arg(long)]
    pub with_sender: bool,
    /// Threads that send
    #[arg(
        long, value_name = "N", default_value = "1", value_parser = number(1..=MAX_THREADS), requires = "with_sender",
        help_heading = WITH_SENDER
    )]
    sender_threads: u32,
    #[command(flatten, next_help_heading = WITH_SENDER)]
    load: Load,
}

/// The heading of the flags of the sender that `--with-sender` starts.
const WITH_SENDER: &str = "Only with --with-sender";

impl ReceiverArgs {
    /// Reads the command line, without the name of the program.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        let (mut args, matches) = cli::parse::<Self>(args)?;
        args.check(&matches)?;
        if args.pin {
            args.plan.cores = host::allowed_cores().unwrap_or_default();
        }
        Ok(args)
    }

    /// The traffic of the sender that `--with-sender` starts.
    pub(crate) fn traffic(&self) -> Option<Traffic> {
        self.with_sender.then(|| Traffic {
            threads: self.sender_threads,
            load: self.load,
            secs: self.plan.secs.unwrap_or_default(),
            // The sender's threads begin on the core after the receiver's.
            pin: self.pin.then(|| self.plan.threads.min(MAX_CORE)),
        })
    }

    /// Returns the flags for the report, defaults included. The destinations of results are no part of the measurement.
    pub(crate) fn flags(&self) -> Flags {
        let Plan { bind, threads, drain, gro, wait, steer, secs, stage, suite, mode, .. } = &self.plan;
        let shown = json!({
            "bind": bind, "threads": threads, "drain": drain, "gro": gro, "wait": wait.to_string(),
            "steer": steer, "pin": self.pin, "secs": secs.map(|secs| secs.as_secs_f64()), "stage": stage,
            "suite": stage.is_sealed().then_some(suite), "mode": (*stage == Stage::Deliver).then_some(mode),
            "receive_buffer": self.plan.receive_buffer_bytes, "with_sender": self.with_sender,
            "sender_threads": self.with_sender.then_some(self.sender_threads),
        });
        let mut flags = flags_of(&shown);
        if self.with_sender {
            flags.extend(flags_of(&self.load));
        }
        flags
    }

    /// Checks the flags that depend on each other.
    fn check(&self, matches: &ArgMatches) -> Result<(), Error> {
        let Plan { drain, gro, stage, suite, mode, .. } = self.plan;
        let is_given = |flag| matches.value_source(flag) == Some(ValueSource::CommandLine);
        if drain == Drain::Recv && gro == Gro::On {
            let problem = "--drain recv takes one datagram per call and cannot split trains";
            return Err(Error::usage("--gro on", problem, "give --drain recvmmsg, or --gro off"));
        }
        if is_given("suite") && !stage.is_sealed() {
            let problem = format!("nothing is sealed in the stage {stage}");
            let advice = "add --stage open or --stage deliver";
            return Err(Error::usage(&format!("--suite {suite}"), problem, advice));
        }
        if is_given("mode") && stage != Stage::Deliver {
            let problem = format!("nothing is delivered in the stage {stage}");
            return Err(Error::usage(&format!("--mode {mode}"), problem, "add --stage deliver"));
        }
        self.check_files()?;
        self.traffic().map_or(Ok(()), |traffic| self.check_traffic(&traffic))
    }

    fn check_files(&self) -> Result<(), Error> {
        let mut seen = BTreeMap::new();
        for (flag, path) in [("--csv", &self.csv), ("--json", &self.json), ("--plot", &self.plot)] {
            let Some(path) = path else { continue };
            if let Some(first) = seen.insert(path, flag) {
                let problem = format!("{first} writes that file too");
                let advice = format!("give {flag} another file");
                return Err(Error::usage(&format!("{flag} {}", path.display()), problem, advice));
            }
        }
        Ok(())
    }

    fn check_traffic(&self, traffic: &Traffic) -> Result<(), Error> {
        traffic.check("--sender-threads")?;
        let Plan { stage, mode, .. } = self.plan;
        let most = mode.max_size();
        if !stage.is_sealed() || (SEALED_MIN_SIZE..=most).contains(&traffic.load.size) {
            return Ok(());
        }
        let what = if mode.has_messages() { format!("mode {mode}") } else { format!("stage {stage}") };
        let problem = format!("the {what} takes packets of {SEALED_MIN_SIZE} to {most} bytes");
        let advice = format!("give --size {SEALED_MIN_SIZE} to {most}");
        Err(Error::usage(&format!("--size {}", traffic.load.size), problem, advice))
    }
}

pub(super) fn run(args: Vec<OsString>) -> Result<(), Error> {
    let typed = command("receiver", &args);
    let args = ReceiverArgs::parse(args)?;
    if args.tui {
        top::check_terminal("leave --tui out")?;
    }
    let json = OutputFile::create("--json", args.json.as_deref())?;
    let csv = OutputFile::create("--csv", args.csv.as_deref())?;
    let plot = OutputFile::create("--plot", args.plot.as_deref())?;
    let note = |text: &str| print_line(json.as_ref(), text);
    watch_for_interrupt();
    // A sender that this program started ends by itself.
    let secs = args.plan.secs.filter(|_| !args.with_sender);
    let receiver = BoundReceiver::open(Plan { secs, ..args.plan.clone() })?;
    let address = receiver.address();
    if let Some(wanted) = args.metrics_address {
        let mut source = receiver.source();
        let page = metrics::serve(wanted, move || source.snapshot(SurveyOrder::Rate, 0).workers)
            .map_err(|error| Error::for_bind("--metrics-address", wanted, &error))?;
        note(&format!("metrics at http://{page}/metrics"));
    }
    // The socket lives as long as the run.
    let _control = listen(&args, &receiver)?;
    let source = args.tui.then(|| receiver.source());
    let sender = args.traffic().map(|traffic| sender::start_local(address, traffic)).transpose()?;
    if sender.is_none() {
        let threads = args.plan.threads;
        note(&format!("receiving on udp and tcp {address}, {threads} threads; start `sender --to` there"));
    }
    let view = source.map(top::start).transpose()?;
    // The view has the whole terminal.
    let mut print = |text: &str| {
        if view.is_none() {
            note(text);
        }
    };
    let is_stopped = || is_interrupted() || sender.as_ref().is_some_and(JoinHandle::is_finished);
    let outcome = receiver.serve(&mut print, &is_stopped);
    view.map_or(Ok(()), |end_view| end_view())?;
    // A thread that panicked has printed that.
    let join =
        |sender: JoinHandle<_>| sender.join().unwrap_or_else(|_| Err(Error::run("the sender panicked")));
    let finished = sender.map(join).transpose().map(drop);
    match outcome {
        Ok(outcome) => {
            let mut report = outcome.report;
            (report.command, report.flags) = (typed, args.flags());
            // Rates of open books are worthless.
            report.check()?;
            if let Some(file) = csv {
                file.write(&table::csv(&report.pps_per_second))?;
            }
            if let Some(file) = plot {
                file.write(&plot::render(&report.pps_per_second, &report.machine, &report.flags)?)?;
            }
            write_report(&report, json)?;
            finished
        }
        // Unless a thread of this receiver failed, a sender that failed is the reason.
        Err(error @ Error::Thread(_)) => Err(error),
        Err(error) => finished.and(Err(error)),
    }
}

/// Makes the control socket.
fn listen(args: &ReceiverArgs, receiver: &BoundReceiver) -> Result<Option<ControlSocket>, Error> {
    let Some(path) = &args.control else { return Ok(None) };
    let control = ControlSocket::listen(path, receiver.source()).map_err(|error| {
        let subject = format!("--control {}", path.display());
        Error::usage(&subject, error, "give a new name in a folder that you may write to")
    })?;
    Ok(Some(control))
}
