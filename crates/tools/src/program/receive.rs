//! `receiver`: binds, starts a sender if it should, prints a line per second, and writes the report.

use std::ffi::OsString;

use drumfire::control::SurveyOrder;
use drumfire_control::{ControlSocket, Source as _};

use super::view::{self, View};
use super::{OutputFile, command, is_interrupted, print_line, watch_for_interrupt};
use crate::cli::ReceiverArgs;
use crate::error::Error;
use crate::receiver::{BoundReceiver, Observer, Plan, Second};
use crate::report::Report;
use crate::sender::LocalSender;
use crate::{metrics, plot, table};

pub(super) fn run(args: Vec<OsString>) -> Result<(), Error> {
    let typed = command("receiver", &args);
    let args = ReceiverArgs::parse(args)?;
    if args.tui {
        view::check_terminal("leave --tui out")?;
    }
    let files = Files::create(&args)?;
    let note = |text: &str| print_line(files.json.as_ref(), text);
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
    let sender = args.traffic().map(|traffic| LocalSender::start(address, traffic)).transpose()?;
    if sender.is_none() {
        let threads = args.plan.threads;
        note(&format!("receiving on udp and tcp {address}, {threads} threads; start `sender --to` there"));
    }
    let view = source.map(View::start).transpose()?;
    let outcome = receiver.serve(&mut Observer {
        on_second: &mut |second: &Second| {
            if view.is_none() {
                note(&table::live_line(second.second, &second.pps_per_thread, second.kernel_drops));
            }
        },
        on_note: &mut |text| {
            if view.is_none() {
                note(text);
            }
        },
        is_stopped: &|| is_interrupted() || sender.as_ref().is_some_and(LocalSender::has_ended),
    });
    view.map_or(Ok(()), View::finish)?;
    let finished = sender.map_or(Ok(()), LocalSender::finish);
    match outcome {
        Ok(outcome) => {
            let mut report = outcome.report;
            (report.command, report.flags) = (typed, args.flags());
            files.write(&report)?;
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

/// The destinations of the results.
struct Files {
    json: Option<OutputFile>,
    csv: Option<OutputFile>,
    plot: Option<OutputFile>,
}

impl Files {
    fn create(args: &ReceiverArgs) -> Result<Self, Error> {
        Ok(Self {
            json: OutputFile::create("--json", args.json.as_deref())?,
            csv: OutputFile::create("--csv", args.csv.as_deref())?,
            plot: OutputFile::create("--plot", args.plot.as_deref())?,
        })
    }

    fn write(self, report: &Report) -> Result<(), Error> {
        // The table is rendered before the first file is written, because that checks the books: rates of open books are worthless.
        let table = table::render(report)?;
        if let Some(file) = self.csv {
            file.write(&table::csv(&report.pps_per_second))?;
        }
        if let Some(file) = self.plot {
            file.write(&plot::render(&report.pps_per_second, &report.machine, &report.flags)?)?;
        }
        print_line(self.json.as_ref(), &table);
        let text = report.to_json()?;
        self.json.map_or(Ok(()), |json| json.write(&text))
    }
}
