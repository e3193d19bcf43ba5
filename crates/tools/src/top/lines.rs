//! The view as lines of text, each with a style, for a terminal of any size or for a file. All text is printable ASCII.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use drumfire::control::SurveyOrder;
use drumfire_control::{PeerRow, Snapshot, WorkerRow};
use ratatui::style::{Color, Modifier, Style};

use super::state::{State, ViewMode};
use crate::table::{abbreviated, plain_ascii, thousands};

pub(super) type StyledLine = (Style, String);

// Without colors, only bold and reversed text remain.
const TITLE: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);
const ROW: Style = Style::new();
/// Something is lost or wrong.
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const KEYS: Style = Style::new().fg(Color::Green);

/// The width from which there is room for players and whole addresses.
const WIDE: usize = 110;

/// The width of text for files.
const PLAIN_WIDTH: usize = 160;

/// Below this percentage of a core, a time per datagram would be mostly rounding.
const BUSY_MIN_PERCENT: u64 = 5;

const LIST_KEYS: &str = "q quit  ? help  1-4 order  arrows select  k close  b ban  t trace  space pause";
const TRACE_KEYS: &str = "q quit  Esc back  arrows scroll  End newest  space pause";

const HELP: &str = "
  q, Ctrl-C    quit
  1            longest round trip first
  2            most packets lost first
  3            most bytes waiting first
  4            most bytes per second first
  arrows, PgUp, PgDn, Home, End    select a connection
  k            close (kick) the selected connection; asks first
  b            ban its player or address for a time; asks for how long
  t, Enter     trace it: what its flight recorder holds, renewed each second
  space        hold the view still; again to go on

  BUSY is a share of one core, NS/DGRAM that time per datagram in or out. WAIT:
  events that the game did not take, or bytes in a receiver's socket. LOSS: the
  way that loses more. QUEUE, IN and OUT of a connection are bytes.";

/// All lines for a screen of this size.
pub(super) fn lines(state: &State, width: usize, height: usize) -> Vec<StyledLine> {
    let body = height.saturating_sub(3);
    let (mut keys, mut last) = (LIST_KEYS, &state.notice);
    let mut lines = vec![(TITLE, title(state))];
    match (&state.mode, &state.now) {
        (ViewMode::Help, _) => lines.extend(HELP.lines().map(|line| (ROW, line.to_owned()))),
        (ViewMode::Trace { lines: trace, from, .. }, _) => {
            keys = TRACE_KEYS;
            lines.extend(trace_lines(trace, *from, body));
        }
        (_, None) => lines.push((ROW, "waiting for the first answer".to_owned())),
        (_, Some(now)) => lines.extend(overview(state, now, width, body)),
    }
    if let ViewMode::Question { text, .. } = &state.mode {
        last = text;
    }
    lines.resize(height.saturating_sub(2), (ROW, String::new()));
    lines.extend([(BAD, last.clone()), (KEYS, keys.to_owned())]);
    lines.into_iter().map(|(style, text)| (style, cut(&text, width))).collect()
}

/// The view as text for a file or another program: all workers and all connections, and no keys.
pub(super) fn plain(state: &State) -> String {
    let Some(now) = &state.now else { return String::new() };
    let height = now.workers.len().saturating_add(now.peers.len()).saturating_mul(3).saturating_add(50);
    let lines = std::iter::once((TITLE, title(state))).chain(overview(state, now, PLAIN_WIDTH, height));
    lines.fold(String::new(), |text, (_, line)| text + &plain_ascii(line.trim_end()) + "\n")
}

fn title(state: &State) -> String {
    let Some(now) = &state.now else { return "drumfire top".to_owned() };
    let held = if state.is_paused { "  HELD" } else { "" };
    if let ViewMode::Trace { peer, .. } = &state.mode {
        return format!("drumfire top  trace of {peer}{held}");
    }
    let figures = figures(state, now);
    let sum = |of: fn(&Figures) -> Option<u64>| {
        rate(figures.iter().map(of).try_fold(0_u64, |sum, rate| Some(sum.saturating_add(rate?))))
    };
    let peers = now.workers.iter().fold(0_u64, |sum, row| sum.saturating_add(row.connections));
    let peers = if now.has_peers { format!("  connections {}", thousands(peers)) } else { String::new() };
    let (kind, workers) = (&now.program, now.workers.len());
    let (received, sent) = (sum(|figures| figures.received), sum(|figures| figures.sent));
    format!("drumfire top  {kind}  workers {workers}{peers}  in {received}/s  out {sent}/s{held}")
}

fn overview(state: &State, now: &Snapshot, width: usize, height: usize) -> Vec<StyledLine> {
    let mut lines = vec![(REVERSED, WORKER_HEAD.to_owned())];
    lines.extend(workers(now, &figures(state, now), height.saturating_sub(5) / 3));
    lines.push((ROW, format!("dropped: {}", drops(state, now))));
    let left = height.saturating_sub(lines.len());
    lines.extend(peers(state, now, width, left));
    lines
}

const WORKER_HEAD: &str = "  W      IN/s     OUT/s   BUSY  NS/DGRAM    CONNS     WAIT  KERNEL/s  DROPPED/s";

/// The workers. If there is no room for all, these are the busiest.
fn workers(now: &Snapshot, figures: &[Figures], room: usize) -> Vec<StyledLine> {
    let mut shown: Vec<_> = now.workers.iter().zip(figures).enumerate().collect();
    let mut hidden = None;
    if shown.len() > room.max(1) {
        shown.sort_by_key(|(_, (_, figures))| Reverse(figures.received));
        let less_busy = shown.split_off(room.max(2) - 1).len();
        hidden = Some((ROW, format!("    and {less_busy} more, less busy than these")));
        shown.sort_by_key(|(at, _)| *at);
    }
    let line = |(at, (row, figures)): (usize, (&WorkerRow, &Figures))| {
        let busy = row.busy_percent.map_or_else(|| "-".to_owned(), |busy| format!("{busy}%"));
        let is_bad = [figures.dropped, figures.kernel_dropped].iter().flatten().any(|rate| *rate > 0);
        let text = format!(
            "{at:>3} {:>9} {:>9} {busy:>6} {:>9} {:>8} {:>8} {:>9} {:>10}",
            rate(figures.received),
            rate(figures.sent),
            rate(figures.nanos_per_datagram),
            abbreviated(row.connections),
            abbreviated(row.waiting),
            rate(figures.kernel_dropped),
            rate(figures.dropped),
        );
        (if is_bad { BAD } else { ROW }, text)
    };
    shown.into_iter().map(line).chain(hidden).collect()
}

/// Dropped datagrams by name, the most frequent first.
fn drops(state: &State, now: &Snapshot) -> String {
    let sum = |snapshot: &Snapshot, name: &str| {
        let counts = snapshot.workers.iter().filter_map(|row| row.dropped.get(name));
        counts.fold(0_u64, |sum, count| sum.saturating_add(*count))
    };
    let names: BTreeSet<&String> = now.workers.iter().flat_map(|row| row.dropped.keys()).collect();
    let mut drops: Vec<(&String, u64)> = names.into_iter().map(|name| (name, sum(now, name))).collect();
    drops.retain(|(_, count)| *count > 0);
    drops.sort_by_key(|(_, count)| Reverse(*count));
    if drops.is_empty() {
        return "nothing".to_owned();
    }
    let texts = drops.into_iter().map(|(name, count)| {
        let before = state.before.as_ref().map_or(0, |before| sum(before, name));
        let news = state.per_second(count, before).filter(|rate| *rate > 0);
        let news = news.map_or_else(String::new, |rate| format!(" (+{}/s)", abbreviated(rate)));
        format!("{name} {}{news}", thousands(count))
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// The connections around the selected one.
fn peers(state: &State, now: &Snapshot, width: usize, room: usize) -> Vec<StyledLine> {
    if !now.has_peers {
        return vec![(ROW, String::new()), (ROW, "connections are not followed here".to_owned())];
    }
    let names = ["RTT ms", "LOSS %", "QUEUE", "IN/s"].into_iter().zip(SurveyOrder::ALL);
    let names = names.map(|(name, order)| format!("{}{name}", if state.order == order { "*" } else { "" }));
    let names: Vec<String> = names.chain(["OUT/s".to_owned()]).collect();
    let mut lines = vec![(REVERSED, columns("CONNECTION", "PLAYER", "ADDRESS", &names, width))];
    let room = room.saturating_sub(1);
    let first = state.row.saturating_add(1).saturating_sub(room);
    for (at, row) in now.peers.iter().enumerate().skip(first).take(room) {
        lines.push((if at == state.row { REVERSED } else { ROW }, peer(row, width)));
    }
    lines
}

fn peer(row: &PeerRow, width: usize) -> String {
    let numbers = [
        tenths(row.round_trip_micros / 100),
        tenths(row.loss_per_million / 1_000),
        abbreviated(row.queued_bytes),
        rate(row.received_per_second),
        rate(row.sent_per_second),
    ];
    columns(&row.peer, row.player.as_deref().unwrap_or("-"), &row.address, &numbers, width)
}

/// One row of the table of connections. The address gets the rest of the width.
fn columns(peer: &str, player: &str, address: &str, numbers: &[String], width: usize) -> String {
    let player = if width >= WIDE { format!("{} ", fit(player, 20)) } else { String::new() };
    let head = format!("{} {player}", fit(peer, 14));
    let numbers = numbers.iter().map(|number| format!(" {number:>7}")).collect::<String>();
    let room = width.saturating_sub(head.len() + numbers.len());
    format!("{head}{}{numbers}", fit(address, room.clamp(10, 48)))
}

/// The last lines of a trace, or the lines from the scroll position.
fn trace_lines(trace: &[String], from: Option<usize>, room: usize) -> Vec<StyledLine> {
    if trace.is_empty() {
        return vec![(ROW, "waiting for the flight recorder".to_owned())];
    }
    let newest = trace.len().saturating_sub(room);
    let from = from.map_or(newest, |from| from.min(newest));
    trace.iter().skip(from).take(room).map(|line| (ROW, line.clone())).collect()
}

fn rate(rate: Option<u64>) -> String {
    rate.map_or_else(|| "-".to_owned(), abbreviated)
}

fn tenths(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Pads or cuts a text to exactly `width` characters.
fn fit(text: &str, width: usize) -> String {
    format!("{:<width$}", cut(text, width))
}

/// Cuts a text to at most `width` printable characters.
fn cut(text: &str, width: usize) -> String {
    let text = plain_ascii(text);
    if text.len() <= width {
        return text;
    }
    let mut shown: String = text.chars().take(width.saturating_sub(1)).collect();
    shown.push('~');
    shown
}

/// The rates of one worker. `None` before there are two snapshots, and after a restart of the server.
#[derive(Clone, Copy, Debug)]
struct Figures {
    received: Option<u64>,
    sent: Option<u64>,
    dropped: Option<u64>,
    kernel_dropped: Option<u64>,
    /// CPU time per datagram received or sent.
    nanos_per_datagram: Option<u64>,
}

/// The rates of each worker.
fn figures(state: &State, now: &Snapshot) -> Vec<Figures> {
    let of = |(index, row): (usize, &WorkerRow)| {
        let before = state.before.as_ref().and_then(|before| before.workers.get(index));
        let rate = |count: fn(&WorkerRow) -> Option<u64>| state.per_second(count(row)?, count(before?)?);
        let (received, sent) = (rate(|row| Some(row.received)), rate(|row| Some(row.sent)));
        let nanos_per_datagram = received.zip(sent).and_then(|(received, sent)| {
            let busy = row.busy_percent.filter(|busy| *busy >= BUSY_MIN_PERCENT)?;
            // A hundredth of a second is ten million nanoseconds.
            busy.saturating_mul(10_000_000).checked_div(received.saturating_add(sent))
        });
        // The datagrams that a worker dropped itself.
        let dropped = rate(|row| Some(row.dropped.values().fold(0, |sum, count| sum.saturating_add(*count))));
        Figures {
            received,
            sent,
            dropped,
            kernel_dropped: rate(|row| row.kernel_dropped),
            nanos_per_datagram,
        }
    };
    now.workers.iter().enumerate().map(of).collect()
}
