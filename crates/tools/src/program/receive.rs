//! `receiver`: binds, starts a sender if it should, prints a line per second, and writes the report.

use std::ffi::OsString;
use std::thread::JoinHandle;

use drumfire::control::SurveyOrder;
use drumfire_control::{ControlSocket, Source as _};

use super::view;
use super::{OutputFile, command, is_interrupted, print_line, watch_for_interrupt, write_report};
use crate::cli::ReceiverArgs;
use crate::error::Error;
use crate::receiver::{BoundReceiver, Plan};
use crate::{metrics, plot, sender, table};

pub(super) fn run(args: Vec<OsString>) -> Result<(), Error> {
    let typed = command("receiver", &args);
    let args = ReceiverArgs::parse(args)?;
    if args.tui {
        view::check_terminal("leave --tui out")?;
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
    let view = source.map(view::start).transpose()?;
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
