//! The state of the view. It reads no clock and uses no socket.

use drumfire::control::SurveyOrder;
use drumfire_control::{Command, Response, Snapshot};
use ratatui::crossterm::event::KeyCode;

use super::PEERS;
use crate::error::printable;

/// Lines of a trace that are kept.
const TRACE_LINES_MAX: usize = 2_000;

/// The rows of a page, on a screen of any size.
const PAGE: usize = 10;

/// The durations of bans, by key, in seconds and as text.
const BANS: [(char, u64, &str); 4] =
    [('1', 600, "10 min"), ('2', 3_600, "1 h"), ('3', 86_400, "1 day"), ('4', 2_592_000, "30 days")];

/// The reason of a close, for the log of the peer.
const CLOSE_TEXT: &str = "closed by the operator";

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    pub(super) order: SurveyOrder,
    pub(super) before: Option<Snapshot>,
    pub(super) now: Option<Snapshot>,
    /// The selected row. It follows its peer, except into another order.
    pub(super) row: usize,
    is_reordered: bool,
    pub(super) mode: ViewMode,
    /// The result of the last request, or the reason why there is no answer.
    pub(super) notice: String,
    pub(super) is_paused: bool,
}

/// The current meaning of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ViewMode {
    /// The list of connections.
    #[default]
    List,
    /// The question whether to close this peer.
    Close(String),
    /// The question how long to ban this peer.
    Ban(String),
    /// The flight recorder of one connection. `from` is the first line shown; `None` follows the newest line.
    Trace { peer: String, lines: Vec<String>, from: Option<usize> },
    /// The list of keys.
    Help,
}

/// A request of the view to its loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The view ends.
    Quit,
    /// The server receives this request.
    Request(Command),
}

impl State {
    /// Returns a view that begins with this order.
    pub(crate) fn new(order: SurveyOrder) -> Self {
        Self { order, ..Self::default() }
    }

    /// Returns the request that is due now.
    pub(crate) fn due(&self) -> Option<Effect> {
        match &self.mode {
            _ if self.is_paused => None,
            ViewMode::Trace { peer, .. } => Some(Effect::Request(Command::Trace { peer: peer.clone() })),
            _ => Some(self.request_snapshot()),
        }
    }

    const fn request_snapshot(&self) -> Effect {
        Effect::Request(Command::Snapshot { order: self.order, limit: PEERS })
    }

    /// Handles an answer of the server.
    pub(crate) fn on_answer(&mut self, answer: Response) {
        match answer {
            Response::Snapshot(snapshot) => self.on_snapshot(snapshot),
            Response::Record { text } => {
                if let ViewMode::Trace { lines, .. } = &mut self.mode {
                    *lines = text.lines().take(TRACE_LINES_MAX).map(printable).collect();
                    self.notice.clear();
                }
            }
            Response::Done { text } | Response::Error { text } => self.notice = printable(&text),
            // A newer server may send other answers.
            _ => {}
        }
    }

    fn on_snapshot(&mut self, snapshot: Snapshot) {
        let is_followed = !std::mem::take(&mut self.is_reordered);
        let selected = self.selected().filter(|_| is_followed).map(ToOwned::to_owned);
        let row = snapshot.peers.iter().position(|row| Some(&row.peer) == selected.as_ref());
        self.row = row.unwrap_or(self.row).min(snapshot.peers.len().saturating_sub(1));
        self.before = self.now.replace(snapshot);
    }

    /// Handles a key. Returns the action that it requires.
    pub(crate) fn press(&mut self, key: KeyCode) -> Option<Effect> {
        match std::mem::take(&mut self.mode) {
            ViewMode::List => self.press_in_list(key),
            ViewMode::Close(peer) => {
                let is_confirmed = matches!(key, KeyCode::Char('y' | 'Y'));
                is_confirmed.then(|| Effect::Request(Command::Close { peer, text: CLOSE_TEXT.to_owned() }))
            }
            ViewMode::Ban(peer) => {
                let (_, seconds, _) = BANS.iter().find(|(digit, ..)| key == KeyCode::Char(*digit))?;
                Some(Effect::Request(Command::Ban { peer, seconds: *seconds }))
            }
            ViewMode::Trace { peer, lines, from } => self.press_in_trace(key, peer, lines, from),
            ViewMode::Help => (key == KeyCode::Char('q')).then_some(Effect::Quit),
        }
    }

    fn press_in_list(&mut self, key: KeyCode) -> Option<Effect> {
        self.notice.clear();
        match key {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Char('?' | 'h') => self.mode = ViewMode::Help,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char(digit @ '1'..='4') => {
                self.order = match digit {
                    '1' => SurveyOrder::RoundTrip,
                    '2' => SurveyOrder::Loss,
                    '3' => SurveyOrder::Queue,
                    _ => SurveyOrder::Rate,
                };
                (self.row, self.is_reordered) = (0, true);
                return Some(self.request_snapshot());
            }
            KeyCode::Char('k') => {
                self.mode = self.selected().map_or(ViewMode::List, |peer| ViewMode::Close(peer.into()));
            }
            KeyCode::Char('b') => {
                self.mode = self.selected().map_or(ViewMode::List, |peer| ViewMode::Ban(peer.into()));
            }
            KeyCode::Char('t') | KeyCode::Enter => {
                let peer = self.selected()?.to_owned();
                self.mode = ViewMode::Trace { peer: peer.clone(), lines: Vec::new(), from: None };
                return Some(Effect::Request(Command::Trace { peer }));
            }
            other => self.row = moved(self.row, self.peer_count(), other),
        }
        None
    }

    fn press_in_trace(
        &mut self,
        key: KeyCode,
        peer: String,
        lines: Vec<String>,
        from: Option<usize>,
    ) -> Option<Effect> {
        match key {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Esc | KeyCode::Char('t') => {
                self.notice.clear();
                return Some(self.request_snapshot());
            }
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            _ => {}
        }
        let from = match key {
            KeyCode::End => None,
            KeyCode::Up | KeyCode::Down | KeyCode::PageUp | KeyCode::PageDown | KeyCode::Home => {
                Some(moved(from.unwrap_or(lines.len()), lines.len(), key))
            }
            _ => from,
        };
        self.mode = ViewMode::Trace { peer, lines, from };
        None
    }

    fn peer_count(&self) -> usize {
        self.now.as_ref().map_or(0, |now| now.peers.len())
    }

    pub(super) fn selected(&self) -> Option<&str> {
        Some(self.now.as_ref()?.peers.get(self.row)?.peer.as_str())
    }

    /// The question that the next key answers; `None` if there is no question.
    pub(super) fn question(&self) -> Option<String> {
        let named = |peer: &str| {
            let mut rows = self.now.iter().flat_map(|now| &now.peers);
            let address = rows.find(|row| row.peer == peer).map_or("", |row| row.address.as_str());
            printable(&format!("{peer} {address}"))
        };
        match &self.mode {
            ViewMode::Close(peer) => Some(format!("Close? y = yes, else no: {}", named(peer))),
            ViewMode::Ban(peer) => {
                let choices: Vec<String> =
                    BANS.iter().map(|(digit, _, time)| format!("{digit} = {time}")).collect();
                Some(format!("Ban? {}, else no: {}", choices.join(", "), named(peer)))
            }
            _ => None,
        }
    }
}

/// The selected row after a key, among `count` rows.
fn moved(row: usize, count: usize, key: KeyCode) -> usize {
    let row = match key {
        KeyCode::Up => row.saturating_sub(1),
        KeyCode::Down => row.saturating_add(1),
        KeyCode::PageUp => row.saturating_sub(PAGE),
        KeyCode::PageDown => row.saturating_add(PAGE),
        KeyCode::Home => 0,
        KeyCode::End => count,
        _ => row,
    };
    row.min(count.saturating_sub(1))
}
