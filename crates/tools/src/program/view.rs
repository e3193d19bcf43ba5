//! `drumfire top`, and the same view for a running receiver.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::thread::JoinHandle;

use drumfire::SurveyOrder;
use drumfire::control::{Connection, OpenError};

use super::{Failure, is_interrupted, watch_for_interrupt};
use crate::cli::{TopArgs, UsageError};
use crate::top::{self, Look};

pub(super) fn run(args: &TopArgs) -> Result<(), Failure> {
    let mut connection = open(&args.socket())?;
    if args.once {
        let state = top::once(&mut connection, args.order).map_err(|why| unanswered(&args.socket(), &why))?;
        return io::stdout()
            .write_all(top::plain(&state).as_bytes())
            .map_err(|error| Failure::Run(format!("standard output: {error}")));
    }
    check_terminal("give --once for one look as text")?;
    // A first request finds out whether a server of this version listens, before the screen is cleared.
    let ask = drumfire::control::Ask::Snapshot { order: args.order, most: 0 };
    if let drumfire::control::Answer::Error { text } =
        connection.ask(ask).map_err(|error| unanswered(&args.socket(), &error.to_string()))?
    {
        return Err(unanswered(&args.socket(), &text));
    }
    watch_for_interrupt();
    let path = args.socket();
    top::run(path, connection, args.order, look(args.no_color), &is_interrupted)
        .map_err(|error| terminal(&error))
}

/// A view on its own thread.
pub(super) struct View(JoinHandle<io::Result<()>>);

impl View {
    /// Shows the source behind this socket until `is_over`, and then calls `on_quit`.
    pub(super) fn start(
        path: &Path,
        is_over: impl Fn() -> bool + Send + 'static,
        on_quit: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Failure> {
        let connection = open(path)?;
        let path = path.to_owned();
        let show = move || {
            let shown = top::run(path, connection, SurveyOrder::Rate, look(false), &is_over);
            on_quit();
            shown
        };
        let thread = std::thread::Builder::new().name("receiver-view".to_owned()).spawn(show);
        thread.map(Self).map_err(|error| Failure::Run(format!("--tui: {error}")))
    }

    /// Waits until the terminal is restored.
    pub(super) fn finish(self) -> Result<(), Failure> {
        // A thread that panicked has printed that, on a terminal that was restored before.
        self.0.join().unwrap_or(Ok(())).map_err(|error| terminal(&error))
    }
}

/// Checks that there is a terminal to draw on.
pub(super) fn check_terminal(way_out: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(UsageError::new("standard output", "a live view needs a terminal, and this is none", way_out).into())
}

fn look(no_color: bool) -> Look {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| value != OsStr::new(""));
    if no_color || is_unwanted { Look::Plain } else { Look::Coloured }
}

fn open(path: &Path) -> Result<Connection, Failure> {
    Connection::open(path).map_err(|error| {
        let way_out = match &error {
            OpenError::Missing => "give the path that the server listens at",
            OpenError::Abandoned => "start the server again, or give another path",
            OpenError::NoPermission => "run this as the user of the server",
            OpenError::Unsupported => "run this where the server runs on Linux",
            _ => "give the path of a server's control socket",
        };
        UsageError::new(&format!("--control {}", path.display()), error, way_out).into()
    })
}

fn unanswered(path: &Path, why: &str) -> Failure {
    let way_out = "give the control socket of a server of this version";
    UsageError::new(&format!("--control {}", path.display()), why, way_out).into()
}

fn terminal(error: &io::Error) -> Failure {
    Failure::Run(format!("the terminal: {error}"))
}
