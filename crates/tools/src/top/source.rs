//! The source of the view: a control socket, or the counters of a receiver in this process.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use drumfire::control::SurveyOrder;
use drumfire_control::{Answer, Ask, Connection, OpenError, Snapshot, Source as _};

use super::state::{Event, State};
use super::{EVERY, PEERS};
use crate::clock;
use crate::receiver::{NO_PEERS, ReceiverSource};

/// A server or a receiver that a view shows.
pub(crate) trait Source: Send + 'static {
    /// Sends a request and waits for the answer. The error is the reason why there is no answer, in one line.
    fn ask(&mut self, ask: Ask) -> Result<Answer, String>;
}

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
}

impl Source for ControlSocket {
    fn ask(&mut self, ask: Ask) -> Result<Answer, String> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.path).map_err(|error| error.to_string())?,
        };
        let answer = connection.ask(ask).map_err(|error| error.to_string())?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

impl Source for ReceiverSource {
    fn ask(&mut self, ask: Ask) -> Result<Answer, String> {
        let Ask::Snapshot { order, most } = ask else {
            return Ok(Answer::Error { text: NO_PEERS.to_owned() });
        };
        Ok(Answer::Snapshot(Snapshot { taken_at_nanos: clock::host_ns(), ..self.snapshot(order, most) }))
    }
}

/// A thread that asks the source and waits, so that keys never wait. It ends with this value, after the request that it waits
/// for. Requests and events have the same order.
pub(super) struct SourceThread {
    asks: Sender<Ask>,
    events: Receiver<Event>,
    /// Requests that were not answered.
    pub(super) open_count: usize,
}

impl SourceThread {
    pub(super) fn start(mut source: impl Source) -> std::io::Result<Self> {
        let (asks, requests) = channel();
        let (outbox, events) = channel();
        std::thread::Builder::new().name("drumfire-top".to_owned()).spawn(move || {
            while let Ok(ask) = requests.recv() {
                let event = source.ask(ask).map_or_else(
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

    pub(super) fn ask(&mut self, ask: Ask) {
        if self.asks.send(ask).is_ok() {
            self.open_count += 1;
        }
    }

    /// Returns the next event, if there is one.
    pub(super) fn take(&mut self) -> Option<Event> {
        let event = self.events.try_recv().ok()?;
        self.open_count = self.open_count.saturating_sub(1);
        Some(event)
    }
}

/// Takes two snapshots, [`EVERY`] apart, so that there are rates.
pub(crate) fn once(source: &mut impl Source, order: SurveyOrder) -> Result<State, String> {
    let mut state = State::new(order);
    for look in 0..2 {
        if look > 0 {
            clock::pause(EVERY);
        }
        match source.ask(Ask::Snapshot { order, most: PEERS })? {
            Answer::Error { text } => return Err(crate::text::printable(&text)),
            answer => state = state.update(Event::Answer(answer)).0,
        }
    }
    Ok(state)
}
