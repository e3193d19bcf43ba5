//! `drumfire top`, and the same view for a running receiver.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::thread::JoinHandle;

use drumfire::SurveyOrder;
use drumfire::control::{Answer, Ask, OpenError};

use super::{Failure, is_interrupted, watch_for_interrupt};
use crate::cli::{TopArgs, UsageError};
use crate::receiver::ReceiverSource;
use crate::top::{self, ControlSocket, Look, Source as _};

pub(super) fn run(args: &TopArgs) -> Result<(), Failure> {
    let path = args.socket();
    let mut source = open(&path)?;
    if args.once {
        let state = top::once(&mut source, args.order).map_err(|error| unanswered(&path, &error))?;
        return io::stdout()
            .write_all(top::plain(&state).as_bytes())
            .map_err(|error| Failure::Run(format!("standard output: {error}")));
    }
    check_terminal("give --once for one snapshot as text")?;
    // A first request finds out whether a server of this version listens, before the screen is cleared.
    let answer = source.ask(Ask::Snapshot { order: args.order, most: 0 });
    if let Answer::Error { text } = answer.map_err(|error| unanswered(&path, &error))? {
        return Err(unanswered(&path, &text));
    }
    watch_for_interrupt();
    top::run(source, args.order, look(args.no_color), &is_interrupted).map_err(|error| terminal(&error))
}

/// The view of a running receiver, on its own thread.
pub(super) struct View(JoinHandle<io::Result<()>>);

impl View {
    /// Shows the receiver until `is_over`, and then calls `on_quit`.
    pub(super) fn start(
        source: ReceiverSource,
        is_over: impl Fn() -> bool + Send + 'static,
        on_quit: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Failure> {
        let show = move || {
            let shown = top::run(source, SurveyOrder::Rate, look(false), &is_over);
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
pub(super) fn check_terminal(advice: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(UsageError::new("standard output", "a live view needs a terminal, and this is none", advice).into())
}

fn look(no_color: bool) -> Look {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| value != OsStr::new(""));
    if no_color || is_unwanted { Look::Plain } else { Look::Colored }
}

fn open(path: &Path) -> Result<ControlSocket, Failure> {
    ControlSocket::open(path).map_err(|error| {
        let advice = match &error {
            OpenError::Missing => "give the path that the server listens at",
            OpenError::Abandoned => "start the server again, or give another path",
            OpenError::NoPermission => "run this as the user of the server",
            OpenError::Unsupported => "run this where the server runs on Linux",
            _ => "give the path of a server's control socket",
        };
        UsageError::new(&format!("--control {}", path.display()), error, advice).into()
    })
}

fn unanswered(path: &Path, why: &str) -> Failure {
    let advice = "give the control socket of a server of this version";
    UsageError::new(&format!("--control {}", path.display()), why, advice).into()
}

fn terminal(error: &io::Error) -> Failure {
    Failure::Run(format!("the terminal: {error}"))
}
