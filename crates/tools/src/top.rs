//! `drumfire top`: a live view of a running server, or of a receiver in this process.
//!
//! [`State`] decides what is shown, without a clock, a terminal, or a socket, and [`lines`] makes its text. This file has the terminal and
//! the source of answers: a control socket, or a receiver. The view changes a server only when a key asks for it and a second key confirms.

mod lines;
mod state;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use drumfire::control::SurveyOrder;
use drumfire_control::{Command, Connection, OpenError, Response, Source as _};
use ratatui::crossterm::event::{self, Event as Input};
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};

use crate::clock;
use crate::error::{Error, printable};
use crate::program::{IS_INTERRUPTED, TopArgs, is_interrupted, watch_for_interrupt, write_stdout};
use crate::receiver::ReceiverSource;
use state::State;

/// The interval between two snapshots of the server.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

/// How long a wait for a key lasts before answers are handled.
const STEP: Duration = Duration::from_millis(50);

/// Shows the server of a control socket.
pub(crate) fn run(args: &TopArgs) -> Result<(), Error> {
    let path = args.socket();
    let refused = |problem: &dyn Display, advice: &str| {
        Error::usage(&format!("--control {}", path.display()), problem, advice)
    };
    let unanswered = |why: String| refused(&why, "give the control socket of a server of this version");
    let connection = Connection::open(&path).map_err(|error| refused(&error, advice(&error)))?;
    let mut source = reconnecting(path.clone(), connection);
    if args.once {
        return write_stdout(&once(source, args.order).map_err(unanswered)?);
    }
    check_terminal("give --once for one snapshot as text")?;
    // A first request finds out whether a server of this version listens, before the screen is cleared.
    let answer = source(Command::Snapshot { order: args.order, limit: 0 }).map_err(unanswered)?;
    if let Response::Error { text } = answer {
        return Err(unanswered(text));
    }
    watch_for_interrupt();
    show(source, State::new(args.order), has_color(args.no_color), &is_interrupted)
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
pub(crate) fn start(mut source: ReceiverSource) -> Result<impl FnOnce() -> Result<(), Error>, Error> {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let run = move || {
        let answer = move |command| Ok(source.respond(command));
        let is_over = || over.load(Ordering::Acquire);
        let shown = show(answer, State::new(SurveyOrder::Rate), has_color(false), &is_over);
        IS_INTERRUPTED.store(true, Ordering::Release);
        shown
    };
    let thread = std::thread::Builder::new().name("receiver-view".to_owned()).spawn(run);
    let thread = thread.map_err(|error| Error::run(format!("--tui: {error}")))?;
    Ok(move || {
        is_over.store(true, Ordering::Release);
        // A thread that panicked has printed that, on a terminal that was restored before.
        thread.join().unwrap_or(Ok(()))
    })
}

/// Checks that there is a terminal to draw on.
pub(crate) fn check_terminal(advice: &str) -> Result<(), Error> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Error::usage("standard output", "a live view needs a terminal, and this is not one", advice))
}

fn has_color(is_unwanted: bool) -> bool {
    !is_unwanted && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns a function that asks the server at this path. A connection that broke is opened again with the next request, so that the
/// view outlives a restart of the server. The error is the reason why there is no answer, in one line.
fn reconnecting(
    path: PathBuf,
    connection: Connection,
) -> impl FnMut(Command) -> Result<Response, String> + Send + 'static {
    let mut connection = Some(connection);
    move |command| {
        let opened = connection.take().map_or_else(|| Connection::open(&path), Ok);
        let mut opened = opened.map_err(|error| error.to_string())?;
        let answer = opened.request(command).map_err(|error| error.to_string())?;
        connection = Some(opened);
        Ok(answer)
    }
}

/// Takes two snapshots, [`SNAPSHOT_INTERVAL`] apart, so that there are rates. Returns them as text.
fn once(
    mut source: impl FnMut(Command) -> Result<Response, String>,
    order: SurveyOrder,
) -> Result<String, String> {
    let mut state = State::new(order);
    for look in 0..2 {
        if look > 0 {
            clock::pause(SNAPSHOT_INTERVAL);
        }
        match source(state.snapshot_request())? {
            Response::Error { text } => return Err(printable(&text)),
            answer => state.on_answer(answer),
        }
    }
    Ok(lines::plain(&state))
}

/// Shows what `source` answers until a key or `is_over` ends it, and restores the terminal, after a panic too.
fn show(
    mut source: impl FnMut(Command) -> Result<Response, String> + Send + 'static,
    state: State,
    is_colored: bool,
    is_over: &dyn Fn() -> bool,
) -> Result<(), Error> {
    let (commands, requests) = channel();
    let (outbox, answers) = channel();
    // This thread waits for answers, so that keys never wait. It ends with the other ends of the channels.
    let ask = move || {
        for command in requests {
            let answer = source(command).unwrap_or_else(|error| {
                let text = format!("no answer: {error}; trying again");
                Response::Error { text }
            });
            let _ = outbox.send(answer);
        }
    };
    let shown = std::thread::Builder::new().name("drumfire-top".to_owned()).spawn(ask).and_then(|_| {
        let mut terminal = ratatui::try_init()?;
        let shown = handle(&mut terminal, &commands, &answers, state, is_colored, is_over);
        let restored = ratatui::try_restore();
        shown.and(restored)
    });
    shown.map_err(|error| Error::run(format!("the terminal: {error}")))
}

/// Handles keys and answers, and draws, until a key or `is_over` ends it.
fn handle(
    terminal: &mut DefaultTerminal,
    commands: &Sender<Command>,
    answers: &Receiver<Response>,
    mut state: State,
    is_colored: bool,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut due = clock::now();
    let mut unanswered_count = 0_usize;
    while !state.is_over && !is_over() {
        let now = clock::now();
        let mut command = None;
        // One snapshot at a time, however slow the answers are.
        if now >= due && unanswered_count == 0 {
            due = now + SNAPSHOT_INTERVAL;
            command = state.due_request();
        } else if let Ok(answer) = answers.try_recv() {
            unanswered_count = unanswered_count.saturating_sub(1);
            state.on_answer(answer);
        } else if !event::poll(STEP)? {
            continue;
        } else if let Input::Key(key) = event::read()? {
            command = state.on_key(key);
        }
        if let Some(command) = command
            && commands.send(command).is_ok()
        {
            unanswered_count += 1;
        }
        terminal.draw(|frame| draw(frame, &state, is_colored))?;
    }
    Ok(())
}

/// Draws the view over the whole frame.
fn draw(frame: &mut Frame<'_>, state: &State, is_colored: bool) {
    let area = frame.area();
    let width = usize::from(area.width);
    let rows = lines::lines(state, width, area.height.into()).into_iter().map(|(mut style, text)| {
        if !is_colored {
            style.fg = None;
        }
        // A reversed line is reversed up to the edge of the screen.
        Line::styled(format!("{text:<width$}"), style)
    });
    frame.render_widget(Paragraph::new(Text::from_iter(rows)), area);
}
