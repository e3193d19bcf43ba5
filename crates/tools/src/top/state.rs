//! The state of the view. It reads no clock and uses no socket.

use drumfire::control::SurveyOrder;
use drumfire_control::{Command, PeerRow, Response, Snapshot};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::error::printable;

/// The number of connections that are requested: more than fit on a screen.
pub(super) const PEERS: usize = 200;

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
pub(super) struct State {
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
    /// Whether a key has ended the view.
    pub(super) is_over: bool,
}

/// The current meaning of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ViewMode {
    /// The list of connections.
    #[default]
    List,
    /// A question, and the command of each key. Every other key means no.
    Question { text: String, answers: Vec<(char, Command)> },
    /// The flight recorder of one connection. `from` is the first line shown; `None` follows the newest line.
    Trace { peer: String, lines: Vec<String>, from: Option<usize> },
    /// The list of keys.
    Help,
}

impl State {
    /// Returns a view that begins with this order.
    pub(super) fn new(order: SurveyOrder) -> Self {
        Self { order, ..Self::default() }
    }

    /// Returns the request that is due now.
    pub(super) fn due_request(&self) -> Option<Command> {
        match &self.mode {
            _ if self.is_paused => None,
            ViewMode::Trace { peer, .. } => Some(Command::Trace { peer: peer.clone() }),
            _ => Some(self.snapshot_request()),
        }
    }

    pub(super) const fn snapshot_request(&self) -> Command {
        Command::Snapshot { order: self.order, limit: PEERS }
    }

    /// Handles an answer of the server.
    pub(super) fn on_answer(&mut self, answer: Response) {
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
        let selected = self.selected().filter(|_| is_followed).map(|row| &row.peer);
        let row = snapshot.peers.iter().position(|row| Some(&row.peer) == selected);
        self.row = row.unwrap_or(self.row).min(snapshot.peers.len().saturating_sub(1));
        self.before = self.now.replace(snapshot);
    }

    pub(super) fn selected(&self) -> Option<&PeerRow> {
        self.now.as_ref()?.peers.get(self.row)
    }

    /// The growth of a counter per second between the two snapshots. `None` before there are two, and if the counter began again.
    pub(super) fn per_second(&self, now: u64, before: u64) -> Option<u64> {
        let elapsed = self.now.as_ref()?.taken_at_nanos.checked_sub(self.before.as_ref()?.taken_at_nanos)?;
        let news = u128::from(now.checked_sub(before)?);
        u64::try_from(news.saturating_mul(1_000_000_000).checked_div(elapsed.into())?).ok()
    }

    /// Handles a key. Returns the request that it makes. Ctrl-C ends the view from every screen.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Option<Command> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            self.is_over = matches!(key.code, KeyCode::Char('c' | 'd'));
            return None;
        }
        let key = key.code;
        match std::mem::take(&mut self.mode) {
            ViewMode::List => return self.press_in_list(key),
            ViewMode::Question { answers, .. } => {
                let is_pressed =
                    |letter: char| [letter, letter.to_ascii_uppercase()].map(KeyCode::Char).contains(&key);
                return answers
                    .into_iter()
                    .find_map(|(letter, command)| is_pressed(letter).then_some(command));
            }
            ViewMode::Trace { peer, lines, from } => return self.press_in_trace(key, peer, lines, from),
            ViewMode::Help => self.is_over = key == KeyCode::Char('q'),
        }
        None
    }

    fn press_in_list(&mut self, key: KeyCode) -> Option<Command> {
        self.notice.clear();
        match key {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?' | 'h') => self.mode = ViewMode::Help,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char(digit @ '1'..='4') => {
                (self.order, _) = SurveyOrder::ALL.into_iter().zip('1'..).find(|(_, key)| *key == digit)?;
                (self.row, self.is_reordered) = (0, true);
                return Some(self.snapshot_request());
            }
            KeyCode::Char('k') => {
                let PeerRow { peer, address, .. } = self.selected()?.clone();
                let text = format!("Close? y = yes, else no: {peer} {address}");
                let answers = vec![('y', Command::Close { peer, text: CLOSE_TEXT.to_owned() })];
                self.mode = ViewMode::Question { text, answers };
            }
            KeyCode::Char('b') => {
                let PeerRow { peer, address, .. } = self.selected()?.clone();
                let times = BANS.map(|(digit, _, time)| format!("{digit} = {time}")).join(", ");
                let text = format!("Ban? {times}, else no: {peer} {address}");
                let ban = |(digit, seconds, _)| (digit, Command::Ban { peer: peer.clone(), seconds });
                self.mode = ViewMode::Question { text, answers: BANS.map(ban).into() };
            }
            KeyCode::Char('t') | KeyCode::Enter => {
                let peer = self.selected()?.peer.clone();
                self.mode = ViewMode::Trace { peer: peer.clone(), lines: Vec::new(), from: None };
                return Some(Command::Trace { peer });
            }
            other => self.row = moved(self.row, self.now.as_ref().map_or(0, |now| now.peers.len()), other),
        }
        None
    }

    fn press_in_trace(
        &mut self,
        key: KeyCode,
        peer: String,
        lines: Vec<String>,
        mut from: Option<usize>,
    ) -> Option<Command> {
        match key {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Esc | KeyCode::Char('t') => {
                self.notice.clear();
                return Some(self.snapshot_request());
            }
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::End => from = None,
            KeyCode::Up | KeyCode::Down | KeyCode::PageUp | KeyCode::PageDown | KeyCode::Home => {
                from = Some(moved(from.unwrap_or(lines.len()), lines.len(), key));
            }
            _ => {}
        }
        self.mode = ViewMode::Trace { peer, lines, from };
        None
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
