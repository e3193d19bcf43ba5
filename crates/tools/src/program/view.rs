//! `drumfire top`, and the same view for a running receiver.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drumfire::control::SurveyOrder;
use drumfire_control::{Command, Connection, OpenError, Response, Source as _};

use super::{IS_INTERRUPTED, is_interrupted, watch_for_interrupt, write_stdout};
use crate::cli::TopArgs;
use crate::error::Error;
use crate::receiver::ReceiverSource;
use crate::top::{self, Theme};

pub(super) fn run(args: &TopArgs) -> Result<(), Error> {
    let path = args.socket();
    let refused = |problem: &dyn std::fmt::Display, advice: &str| {
        Error::usage(&format!("--control {}", path.display()), problem, advice)
    };
    let unanswered = |why: String| refused(&why, "give the control socket of a server of this version");
    let connection = Connection::open(&path).map_err(|error| refused(&error, advice(&error)))?;
    let mut source = top::reconnecting(path.clone(), connection);
    if args.once {
        let state = top::once(source, args.order).map_err(unanswered)?;
        return write_stdout(&top::plain(&state));
    }
    check_terminal("give --once for one snapshot as text")?;
    // A first request finds out whether a server of this version listens, before the screen is cleared.
    let answer = source(Command::Snapshot { order: args.order, limit: 0 }).map_err(unanswered)?;
    if let Response::Error { text } = answer {
        return Err(unanswered(text));
    }
    watch_for_interrupt();
    top::run(source, args.order, theme(args.no_color), &is_interrupted).map_err(|error| terminal(&error))
}

fn advice(error: &OpenError) -> &'static str {
    match error {
        OpenError::Missing => "give the path that the server listens at",
        OpenError::Abandoned => "start the server again, or give another path",
        OpenError::NoPermission => "run this as the user of the server",
        OpenError::Unsupported => "run this where the server runs on Linux",
        _ => "give the path of a server's control socket",
    }
}

/// Shows a running receiver on a thread of its own. When the view ends, the run ends too. Returns the function that ends the view and
/// waits until the terminal is restored.
pub(super) fn start(mut source: ReceiverSource) -> Result<impl FnOnce() -> Result<(), Error>, Error> {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let show = move || {
        let answer = move |command| Ok(source.respond(command));
        let shown = top::run(answer, SurveyOrder::Rate, theme(false), &|| over.load(Ordering::Acquire));
        IS_INTERRUPTED.store(true, Ordering::Release);
        shown
    };
    let thread = std::thread::Builder::new().name("receiver-view".to_owned()).spawn(show);
    let thread = thread.map_err(|error| Error::run(format!("--tui: {error}")))?;
    Ok(move || {
        is_over.store(true, Ordering::Release);
        // A thread that panicked has printed that, on a terminal that was restored before.
        thread.join().unwrap_or(Ok(())).map_err(|error| terminal(&error))
    })
}

/// Checks that there is a terminal to draw on.
pub(super) fn check_terminal(advice: &str) -> Result<(), Error> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Error::usage("standard output", "a live view needs a terminal, and this is not one", advice))
}

fn theme(no_color: bool) -> Theme {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| value != OsStr::new(""));
    if no_color || is_unwanted { Theme::Plain } else { Theme::Colored }
}

fn terminal(error: &io::Error) -> Error {
    Error::run(format!("the terminal: {error}"))
}
