//! `receiver`: binds, starts a sender if it should, prints a line per second, and writes the report.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drumfire::control::Control;

use super::files::{Json, OutputFile, print_line};
use super::sender_process::{SenderFailure, SenderProcess};
use super::view::{self, View};
use super::{Failure, IS_INTERRUPTED, command, is_interrupted, watch_for_interrupt};
use crate::cli::{ReceiverArgs, UsageError};
use crate::receiver::{
    BoundReceiver, Observer, Outcome, Plan, ReceiverSource, Second, ServeError, StartError,
};
use crate::report::Flags;
use crate::{csv, host, metrics, plot, table};

pub(super) fn run(args: Vec<OsString>) -> Result<(), Failure> {
    let typed = command("receiver", &args);
    let args = ReceiverArgs::parse(args)?;
    if args.tui {
        view::check_terminal("leave --tui out")?;
    }
    let files = Files::prepare(&args)?;
    watch_for_interrupt();
    let receiver = BoundReceiver::open(plan(&args)).map_err(|error| refused(&args, &error))?;
    let address = receiver.address();
    if let Some(wanted) = &args.metrics_address {
        let page = metrics::serve(wanted.address, receiver.source())
            .map_err(|error| UsageError::for_bind("--metrics-address", &wanted.text, &error))?;
        print_line(&files.json, &format!("metrics at http://{page}/metrics"));
    }
    let control = listen(&args, &receiver)?;
    let source = args.tui.then(|| receiver.source());
    let sender = args.sender(address).map(|sender| SenderProcess::start(&sender)).transpose();
    let sender = sender.map_err(|error| Failure::Run(format!("the sender cannot be started: {error}")))?;
    let threads = args.threads;
    if sender.is_none() {
        let note =
            format!("receiving on udp and tcp {address}, {threads} threads; start `sender --to` there");
        print_line(&files.json, &note);
    }
    let view = source.map(start_view).transpose()?;
    let outcome = serve(receiver, &files.json, sender.as_ref(), view.is_some());
    view.map_or(Ok(()), LiveView::finish)?;
    drop(control);
    let sender_failure = sender.and_then(|sender| sender.finish().err()).map(failure);
    match outcome {
        Ok(outcome) => {
            files.write(outcome, &typed, args.flags())?;
            sender_failure.map_or(Ok(()), Err)
        }
        Err(error) => Err(unserved(&error, sender_failure, &files.json)),
    }
}

fn failure(error: SenderFailure) -> Failure {
    match error {
        // The sender printed its error on the same terminal.
        SenderFailure::Reported(code) => Failure::Reported(code),
        other => Failure::Run(other.to_string()),
    }
}

fn plan(args: &ReceiverArgs) -> Plan {
    let cores = if args.pin { host::allowed_cores().unwrap_or_default() } else { Vec::new() };
    Plan {
        bind: args.bind.address,
        threads: args.threads,
        drain: args.drain,
        gro: args.gro,
        wait: args.wait,
        steer: args.steer,
        cores,
        stage: args.stage,
        suite: args.suite(),
        mode: args.mode(),
        receive_buffer_bytes: Some(args.receive_buffer as usize),
        sample_interval: Plan::SAMPLE_INTERVAL,
        // A sender that this program started ends by itself.
        at_most: args.secs.filter(|_| !args.with_sender),
    }
}

fn refused(args: &ReceiverArgs, error: &StartError) -> Failure {
    match error {
        StartError::Bind(error) => UsageError::for_bind("--bind", &args.bind.text, error).into(),
        StartError::Descriptors(error) => UsageError::for_threads(args.threads, error).into(),
        StartError::Setting(line) => Failure::Setting(UsageError::from(line.clone())),
    }
}

/// Makes the control socket.
fn listen(args: &ReceiverArgs, receiver: &BoundReceiver) -> Result<Option<Control>, Failure> {
    let Some(path) = &args.control else { return Ok(None) };
    let control = Control::listen(path, receiver.source()).map_err(|error| {
        let subject = format!("--control {}", path.display());
        UsageError::new(&subject, error, "give a new name in a folder that you may write to")
    })?;
    Ok(Some(control))
}

/// The live view of a run. When the view or the run ends, the other ends too.
struct LiveView {
    view: View,
    is_over: Arc<AtomicBool>,
}

fn start_view(source: ReceiverSource) -> Result<LiveView, Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let on_quit = || IS_INTERRUPTED.store(true, Ordering::Release);
    let view = View::start(source, move || over.load(Ordering::Acquire), on_quit)?;
    Ok(LiveView { view, is_over })
}

impl LiveView {
    fn finish(self) -> Result<(), Failure> {
        self.is_over.store(true, Ordering::Release);
        self.view.finish()
    }
}

fn serve(
    receiver: BoundReceiver,
    json: &Json,
    sender: Option<&SenderProcess>,
    has_view: bool,
) -> Result<Outcome, ServeError> {
    let mut on_second = |second: &Second| {
        if !has_view {
            let line = table::live_line(second.second, &second.pps_per_thread, second.kernel_drops);
            print_line(json, &line);
        }
    };
    let mut on_note = |note: &str| {
        if !has_view {
            print_line(json, note);
        }
    };
    let is_stopped = || is_interrupted() || sender.is_some_and(SenderProcess::has_failed);
    receiver.serve(&mut Observer {
        on_second: &mut on_second,
        on_note: &mut on_note,
        is_stopped: &is_stopped,
    })
}

/// The reason why a run has no report. If the sender is gone or never connected, the failure of a sender that this program
/// started is the reason.
fn unserved(error: &ServeError, sender_failure: Option<Failure>, json: &Json) -> Failure {
    let is_the_senders = match error {
        ServeError::NoSender(_) | ServeError::Stopped | ServeError::Control(_) => true,
        ServeError::Steering(_) | ServeError::Thread(_) => false,
    };
    if let (Some(failure), true) = (sender_failure, is_the_senders) {
        return failure;
    }
    if let ServeError::NoSender(strays) = error {
        for (name, count) in strays {
            print_line(json, &format!("from strangers: {} {name}", table::thousands(*count)));
        }
    }
    Failure::Run(error.to_string())
}

/// The destinations of the results.
struct Files {
    json: Json,
    csv: Option<OutputFile>,
    plot: Option<OutputFile>,
}

impl Files {
    fn prepare(args: &ReceiverArgs) -> Result<Self, Failure> {
        Ok(Self {
            json: Json::prepare(args.json.as_ref())?,
            csv: OutputFile::create("--csv", args.csv.as_deref())?,
            plot: OutputFile::create("--plot", args.plot.as_deref())?,
        })
    }

    fn write(self, outcome: Outcome, typed: &str, flags: Flags) -> Result<(), Failure> {
        let broken = |error: &dyn std::fmt::Display| Failure::Run(error.to_string());
        let mut report = outcome.report;
        (report.command, report.flags) = (typed.to_owned(), flags);
        // The books are checked before the first file is written: rates of open books are worthless.
        report.check().map_err(|error| broken(&error))?;
        if let Some(file) = self.csv {
            file.write(&csv::render(&report.pps_per_second))?;
        }
        if let Some(file) = self.plot {
            let svg = plot::render(&report.pps_per_second, &report.machine, &report.flags);
            file.write(&svg.map_err(|error| broken(&error))?)?;
        }
        print_line(&self.json, &table::render(&report).map_err(|error| broken(&error))?);
        let text = report.to_json().map_err(|error| broken(&error))?;
        self.json.write(&text)
    }
}
