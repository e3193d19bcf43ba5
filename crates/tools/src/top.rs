//! `drumfire top`: a live view of a running server, or of a receiver in this process.
//!
//! [`state::State`] decides what is shown, without a clock, a terminal, or a socket. [`screen::draw`] draws it. [`run`] is the loop that has
//! a terminal and a source of answers: a control socket, or a receiver. It changes a server only when a key asks for it and a second key confirms.

mod lines;
mod screen;
mod state;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use drumfire::control::SurveyOrder;
use drumfire_control::{Command, Connection, Response};

use crate::clock;
use crate::error::printable;

pub(crate) use lines::plain;
pub(crate) use screen::{Theme, run};
use state::State;

/// The interval between two snapshots of the server.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

/// The number of connections that are requested: more than fit on a screen.
const PEERS: usize = 200;

/// Returns a function that asks the server at this path. A connection that broke is opened again with the next request, so that the
/// view outlives a restart of the server. The error is the reason why there is no answer, in one line.
pub(crate) fn reconnecting(
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

/// A thread that asks the source and waits, so that keys never wait. It ends with this value, after the request that it waits
/// for. Requests and answers have the same order.
struct SourceThread {
    commands: Sender<Command>,
    answers: Receiver<Response>,
    /// Requests that were not answered.
    open_count: usize,
}

impl SourceThread {
    fn start(
        mut source: impl FnMut(Command) -> Result<Response, String> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (commands, requests) = channel();
        let (outbox, answers) = channel();
        std::thread::Builder::new().name("drumfire-top".to_owned()).spawn(move || {
            while let Ok(command) = requests.recv() {
                let answer = source(command).unwrap_or_else(|error| {
                    let text = format!("no answer: {error}; trying again");
                    Response::Error { text }
                });
                if outbox.send(answer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { commands, answers, open_count: 0 })
    }

    fn request(&mut self, command: Command) {
        if self.commands.send(command).is_ok() {
            self.open_count += 1;
        }
    }

    /// Returns the next answer, if there is one.
    fn next_answer(&mut self) -> Option<Response> {
        let answer = self.answers.try_recv().ok()?;
        self.open_count = self.open_count.saturating_sub(1);
        Some(answer)
    }
}

/// Takes two snapshots, [`SNAPSHOT_INTERVAL`] apart, so that there are rates.
pub(crate) fn once(
    mut source: impl FnMut(Command) -> Result<Response, String>,
    order: SurveyOrder,
) -> Result<State, String> {
    let mut state = State::new(order);
    for look in 0..2 {
        if look > 0 {
            clock::pause(SNAPSHOT_INTERVAL);
        }
        match source(Command::Snapshot { order, limit: PEERS })? {
            Response::Error { text } => return Err(printable(&text)),
            answer => state.on_answer(answer),
        }
    }
    Ok(state)
}
