//! `drumfire top`: a live view of a running server, or of a receiver in this process.
//!
//! [`state::State`] decides what is shown, without a clock, a terminal, or a socket. [`screen::draw`] draws it. [`run`] is the loop that has
//! a terminal and a source of answers: a control socket, or [`answer`]. It changes a server only when a key asks for it and a second key confirms.

mod lines;
mod screen;
mod state;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use drumfire::control::SurveyOrder;
use drumfire_control::{Answer, Ask, Connection, OpenError, Snapshot, Source as _};

use crate::clock;
use crate::error::printable;
use crate::receiver::{NO_PEERS, ReceiverSource};

pub(crate) use lines::plain;
pub(crate) use screen::{Theme, run};
use state::{Event, State};

/// The interval between two snapshots of the server.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

/// The number of connections that are requested: more than fit on a screen.
const PEERS: usize = 200;

/// The control socket of a server. A connection that broke is opened again with the next request, so that the view outlives a
/// restart of the server.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
    connection: Option<Connection>,
}

impl ControlSocket {
    /// Connects to the control socket at this path.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self { path: path.to_owned(), connection: Some(Connection::open(path)?) })
    }

    /// Sends a request and waits for the answer. The error is the reason why there is no answer, in one line.
    pub(crate) fn ask(&mut self, ask: Ask) -> Result<Answer, String> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.path).map_err(|error| error.to_string())?,
        };
        let answer = connection.ask(ask).map_err(|error| error.to_string())?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

/// Returns the answer of a receiver in this process to a request.
pub(crate) fn answer(receiver: &mut ReceiverSource, ask: &Ask) -> Answer {
    let Ask::Snapshot { order, most } = *ask else { return Answer::Error { text: NO_PEERS.to_owned() } };
    Answer::Snapshot(Snapshot { taken_at_nanos: clock::host_ns(), ..receiver.snapshot(order, most) })
}

/// A thread that asks the source and waits, so that keys never wait. It ends with this value, after the request that it waits
/// for. Requests and events have the same order.
struct SourceThread {
    asks: Sender<Ask>,
    events: Receiver<Event>,
    /// Requests that were not answered.
    open_count: usize,
}

impl SourceThread {
    fn start(
        mut source: impl FnMut(Ask) -> Result<Answer, String> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (asks, requests) = channel();
        let (outbox, events) = channel();
        std::thread::Builder::new().name("drumfire-top".to_owned()).spawn(move || {
            while let Ok(ask) = requests.recv() {
                let event = source(ask).map_or_else(
                    |error| Event::Failed(format!("no answer: {error}; trying again")),
                    Event::Answer,
                );
                if outbox.send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { asks, events, open_count: 0 })
    }

    fn ask(&mut self, ask: Ask) {
        if self.asks.send(ask).is_ok() {
            self.open_count += 1;
        }
    }

    /// Returns the next event, if there is one.
    fn next_event(&mut self) -> Option<Event> {
        let event = self.events.try_recv().ok()?;
        self.open_count = self.open_count.saturating_sub(1);
        Some(event)
    }
}

/// Takes two snapshots, [`SNAPSHOT_INTERVAL`] apart, so that there are rates.
pub(crate) fn once(source: &mut ControlSocket, order: SurveyOrder) -> Result<State, String> {
    let mut state = State::new(order);
    for look in 0..2 {
        if look > 0 {
            clock::pause(SNAPSHOT_INTERVAL);
        }
        match source.ask(Ask::Snapshot { order, most: PEERS })? {
            Answer::Error { text } => return Err(printable(&text)),
            answer => state = state.update(Event::Answer(answer)).0,
        }
    }
    Ok(state)
}
