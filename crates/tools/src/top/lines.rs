//! The view as lines of text, each with a role, for a terminal of any size or for a file. All text is printable ASCII.

use std::collections::BTreeMap;

use drumfire::control::SurveyOrder;
use drumfire_control::{PeerRow, Snapshot, WorkerRow};

use super::state::{State, ViewMode};
use crate::table::{abbreviated, plain_ascii, thousands};

/// The role of a line, which decides its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Title,
    Head,
    Row,
    Selected,
    /// Something is lost or wrong.
    Bad,
    Keys,
}

pub(super) type Line = (Role, String);

/// The width from which there is room for players and whole addresses.
const WIDE: usize = 110;

/// The width of text for files.
const PLAIN_WIDTH: usize = 160;

const LIST_KEYS: &str = "q quit  ? help  1-4 order  arrows select  k close  b ban  t trace  space pause";
const TRACE_KEYS: &str = "q quit  Esc back  arrows scroll  End newest  space pause";

const HELP: [&str; 15] = [
    "",
    "  q, Ctrl-C    quit",
    "  1            longest round trip first",
    "  2            most packets lost first",
    "  3            most bytes waiting first",
    "  4            most bytes per second first",
    "  arrows, PgUp, PgDn, Home, End    select a connection",
    "  k            close (kick) the selected connection; asks first",
    "  b            ban its player or address for a time; asks for how long",
    "  t, Enter     trace it: what its flight recorder holds, renewed each second",
    "  space        hold the view still; again to go on",
    "",
    "  BUSY is a share of one core, NS/DGRAM that time per datagram in or out. WAIT:",
    "  events that the game did not take, or bytes in a receiver's socket. LOSS: the",
    "  way that loses more. QUEUE, IN and OUT of a connection are bytes.",
];

/// All lines for a screen of this size.
pub(super) fn lines(state: &State, width: usize, height: usize) -> Vec<Line> {
    let mut lines = vec![(Role::Title, title(state))];
    let body = height.saturating_sub(3);
    match (&state.mode, &state.now) {
        (ViewMode::Help, _) => lines.extend(HELP.iter().map(|line| (Role::Row, (*line).to_owned()))),
        (ViewMode::Trace { lines: trace, from, .. }, _) => lines.extend(trace_lines(trace, *from, body)),
        (_, None) => lines.push((Role::Row, "waiting for the first answer".to_owned())),
        (_, Some(now)) => lines.extend(overview(state, now, width, body)),
    }
    lines.truncate(height.saturating_sub(2));
    lines.resize(height.saturating_sub(2), (Role::Row, String::new()));
    lines.push(match state.question() {
        Some(question) => (Role::Bad, question),
        None => (Role::Bad, state.notice.clone()),
    });
    let keys = if matches!(state.mode, ViewMode::Trace { .. }) { TRACE_KEYS } else { LIST_KEYS };
    lines.push((Role::Keys, keys.to_owned()));
    lines.into_iter().map(|(role, text)| (role, cut(&text, width))).collect()
}

/// The view as text for a file or another program: all workers and all connections, and no keys.
pub(crate) fn plain(state: &State) -> String {
    let Some(now) = &state.now else { return String::new() };
    let height = now.workers.len().saturating_add(now.peers.len()).saturating_mul(3).saturating_add(50);
    let lines = std::iter::once(title(state))
        .chain(overview(state, now, PLAIN_WIDTH, height).into_iter().map(|(_, text)| text))
        .map(|line| plain_ascii(line.trim_end()));
    lines.fold(String::new(), |text, line| text + &line + "\n")
}

fn title(state: &State) -> String {
    let Some(now) = &state.now else { return "drumfire top".to_owned() };
    let held = if state.is_paused { "  HELD" } else { "" };
    if let ViewMode::Trace { peer, .. } = &state.mode {
        return format!("drumfire top  trace of {peer}{held}");
    }
    let figures = figures(state.before.as_ref(), now);
    let sum = |of: fn(&Figures) -> Option<u64>| {
        let sum = figures.iter().map(of).try_fold(0_u64, |sum, rate| Some(sum.saturating_add(rate?)));
        rate(sum)
    };
    let peers = now.workers.iter().fold(0_u64, |sum, row| sum.saturating_add(row.connections));
    let peers = if now.has_peers { format!("  connections {}", thousands(peers)) } else { String::new() };
    format!(
        "drumfire top  {}  workers {}{peers}  in {}/s  out {}/s{held}",
        now.program,
        now.workers.len(),
        sum(|figures| figures.received),
        sum(|figures| figures.sent),
    )
}

fn overview(state: &State, now: &Snapshot, width: usize, height: usize) -> Vec<Line> {
    let figures = figures(state.before.as_ref(), now);
    let mut lines = vec![(Role::Head, WORKER_HEAD.to_owned())];
    lines.extend(workers(now, &figures, height.saturating_sub(5) / 3));
    lines.push(drops(state, now));
    let left = height.saturating_sub(lines.len());
    lines.extend(peers(state, now, width, left));
    lines
}

const WORKER_HEAD: &str = "  W      IN/s     OUT/s   BUSY  NS/DGRAM    CONNS     WAIT  KERNEL/s  DROPPED/s";

/// The workers. If there is no room for all, these are the busiest.
fn workers(now: &Snapshot, figures: &[Figures], room: usize) -> Vec<Line> {
    let mut shown: Vec<usize> = (0..now.workers.len()).collect();
    let hidden = if shown.len() > room.max(1) {
        shown.sort_by_key(|at| std::cmp::Reverse(figures.get(*at).and_then(|figures| figures.received)));
        shown.split_off(room.max(2) - 1).len()
    } else {
        0
    };
    shown.sort_unstable();
    let mut lines: Vec<Line> = shown
        .into_iter()
        .filter_map(|at| {
            let (row, figures) = (now.workers.get(at)?, figures.get(at)?);
            let busy = row.busy_percent.map_or_else(|| "-".to_owned(), |busy| format!("{busy}%"));
            let is_bad = [figures.dropped, figures.kernel_dropped].iter().flatten().any(|rate| *rate > 0);
            let role = if is_bad { Role::Bad } else { Role::Row };
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
            Some((role, text))
        })
        .collect();
    if hidden > 0 {
        lines.push((Role::Row, format!("    and {hidden} more, less busy than these")));
    }
    lines
}

/// Dropped datagrams by name, the most frequent first.
fn drops(state: &State, now: &Snapshot) -> Line {
    let by_name = |snapshot: &Snapshot| {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (name, count) in snapshot.workers.iter().flat_map(|row| &row.dropped) {
            let sum = sums.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        sums
    };
    let sums = by_name(now);
    if now.workers.iter().all(|row| dropped(row) == 0) {
        return (Role::Row, "dropped: nothing".to_owned());
    }
    let earlier = state.before.as_ref().map(|before| (by_name(before), before.taken_at_nanos));
    let mut names: Vec<(&String, u64)> = sums.iter().map(|(name, count)| (name, *count)).collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let texts = names.into_iter().map(|(name, count)| {
        let news = earlier.as_ref().and_then(|(before, at)| {
            let elapsed = now.taken_at_nanos.saturating_sub(*at);
            per_second(count, before.get(name).copied().unwrap_or(0), elapsed).filter(|rate| *rate > 0)
        });
        let news = news.map_or_else(String::new, |rate| format!(" (+{}/s)", abbreviated(rate)));
        format!("{name} {}{news}", thousands(count))
    });
    (Role::Row, format!("dropped: {}", texts.collect::<Vec<_>>().join(", ")))
}

/// The connections around the selected one.
fn peers(state: &State, now: &Snapshot, width: usize, room: usize) -> Vec<Line> {
    if !now.has_peers {
        return vec![(Role::Row, String::new()), (Role::Row, "connections are not followed here".to_owned())];
    }
    let head = |name: &str, order| if state.order == order { format!("*{name}") } else { name.to_owned() };
    let names = [
        head("RTT ms", SurveyOrder::RoundTrip),
        head("LOSS %", SurveyOrder::Loss),
        head("QUEUE", SurveyOrder::Queue),
        head("IN/s", SurveyOrder::Rate),
        "OUT/s".to_owned(),
    ];
    let player = (width >= WIDE).then_some("PLAYER");
    let mut lines = vec![(Role::Head, columns("CONNECTION", "ADDRESS", player, &names, width))];
    let room = room.saturating_sub(1);
    let first = state.row.saturating_add(1).saturating_sub(room);
    for (at, row) in now.peers.iter().enumerate().skip(first).take(room) {
        let role = if at == state.row { Role::Selected } else { Role::Row };
        lines.push((role, peer(row, width)));
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
    let player = (width >= WIDE).then(|| row.player.as_deref().unwrap_or("-"));
    columns(&row.peer, &row.address, player, &numbers, width)
}

/// One row of the table of connections. The address gets the rest of the width.
fn columns(peer: &str, address: &str, player: Option<&str>, numbers: &[String; 5], width: usize) -> String {
    let (peer, player) =
        (fit(peer, 14), player.map_or_else(String::new, |player| format!("{} ", fit(player, 20))));
    let numbers = numbers.iter().map(|number| format!(" {number:>7}")).collect::<String>();
    let taken = peer.len() + player.len() + numbers.len() + 1;
    let address = fit(address, width.saturating_sub(taken).clamp(10, 48));
    format!("{peer} {player}{address}{numbers}")
}

/// The last lines of a trace, or the lines from the scroll position.
fn trace_lines(trace: &[String], from: Option<usize>, room: usize) -> Vec<Line> {
    if trace.is_empty() {
        return vec![(Role::Row, "waiting for the flight recorder".to_owned())];
    }
    let newest = trace.len().saturating_sub(room);
    let from = from.map_or(newest, |from| from.min(newest));
    trace.iter().skip(from).take(room).map(|line| (Role::Row, line.clone())).collect()
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

/// Below this percentage of a core, a time per datagram would be mostly rounding.
const BUSY_MIN_PERCENT: u64 = 5;

/// The rates of one worker between two snapshots. `None` before there are two, and after a restart of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    received: Option<u64>,
    sent: Option<u64>,
    dropped: Option<u64>,
    kernel_dropped: Option<u64>,
    /// CPU time per datagram received or sent.
    nanos_per_datagram: Option<u64>,
}

/// The rates of each worker between two snapshots.
fn figures(before: Option<&Snapshot>, now: &Snapshot) -> Vec<Figures> {
    let elapsed = before.map_or(0, |before| now.taken_at_nanos.saturating_sub(before.taken_at_nanos));
    let rows = now.workers.iter().enumerate();
    let of = |(index, row): (usize, &WorkerRow)| {
        let before = before.and_then(|before| before.workers.get(index));
        before.map_or_else(Figures::default, |before| between(before, row, elapsed))
    };
    rows.map(of).collect()
}

fn between(before: &WorkerRow, now: &WorkerRow, elapsed: u64) -> Figures {
    let rate = |now: u64, before: u64| per_second(now, before, elapsed);
    let (received, sent) = (rate(now.received, before.received), rate(now.sent, before.sent));
    let kernel = now.kernel_dropped.zip(before.kernel_dropped);
    Figures {
        received,
        sent,
        dropped: rate(dropped(now), dropped(before)),
        kernel_dropped: kernel.and_then(|(now, before)| rate(now, before)),
        nanos_per_datagram: received.zip(sent).and_then(|(received, sent)| {
            let busy = now.busy_percent.filter(|busy| *busy >= BUSY_MIN_PERCENT)?;
            // A hundredth of a second is ten million nanoseconds.
            busy.saturating_mul(10_000_000).checked_div(received.saturating_add(sent))
        }),
    }
}

/// The datagrams that a worker dropped itself.
fn dropped(row: &WorkerRow) -> u64 {
    row.dropped.values().fold(0, |sum, count| sum.saturating_add(*count))
}

fn per_second(now: u64, before: u64, elapsed_nanos: u64) -> Option<u64> {
    let news = u128::from(now.checked_sub(before)?);
    u64::try_from(news.saturating_mul(1_000_000_000).checked_div(u128::from(elapsed_nanos))?).ok()
}
