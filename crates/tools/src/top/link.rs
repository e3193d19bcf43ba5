//! The server's side of the view: a thread that asks and waits, so that keys never do.
//!
//! A connection that broke is opened again with the next question: the view outlives a restart of the server.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use drumfire::SurveyOrder;
use drumfire::control::{Answer, Ask, Connection};

use super::state::{Event, State};
use super::{EVERY, PEERS};
use crate::clock;

/// Questions go in, events come out, in the same order.
pub(super) struct Link {
    asks: Sender<Ask>,
    events: Receiver<Event>,
    /// Questions that were not answered.
    pub(super) open_count: usize,
}

impl Link {
    /// Goes on with this connection, and with others to the same path when it breaks. It ends with this value, after the question
    /// that it waits for.
    pub(super) fn start(path: PathBuf, connection: Connection) -> std::io::Result<Self> {
        let (asks, questions) = channel();
        let (outbox, events) = channel();
        std::thread::Builder::new().name("drumfire-top".to_owned()).spawn(move || {
            let mut connection = Some(connection);
            while let Ok(ask) = questions.recv() {
                let event = answered(&path, &mut connection, ask);
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

    /// The next event that is there.
    pub(super) fn take(&mut self) -> Option<Event> {
        match self.events.try_recv() {
            Ok(event) => {
                self.open_count = self.open_count.saturating_sub(1);
                Some(event)
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

fn answered(path: &std::path::Path, connection: &mut Option<Connection>, ask: Ask) -> Event {
    let open = match connection.take() {
        Some(open) => Ok(open),
        None => Connection::open(path).map_err(|error| error.to_string()),
    };
    let answer = open.and_then(|mut open| {
        let answer = open.ask(ask).map_err(|error| error.to_string())?;
        *connection = Some(open);
        Ok(answer)
    });
    answer.map_or_else(|why| Event::Failed(format!("no answer: {why}; trying again")), Event::Answer)
}

/// Two looks, [`EVERY`] apart, so that there are rates.
///
/// # Errors
///
/// Why there is no answer, in one line.
pub fn once(connection: &mut Connection, order: SurveyOrder) -> Result<State, String> {
    let mut state = State::new(order);
    for look in 0..2 {
        if look > 0 {
            clock::pause(EVERY);
        }
        match connection.ask(Ask::Snapshot { order, most: PEERS }).map_err(|error| error.to_string())? {
            Answer::Error { text } => return Err(crate::text::printable(&text)),
            answer => state = state.update(Event::Answer(answer)).0,
        }
    }
    Ok(state)
}
