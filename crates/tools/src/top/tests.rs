//! The effect of keys, and screens drawn into memory and compared with recorded files.

use std::path::Path;

use drumfire::control::SurveyOrder;
use drumfire_control::{Command, PeerRow, Response, Snapshot, WorkerRow};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Color, Modifier};

use super::screen::draw;
use super::state::{Effect, State, ViewMode};
use super::*;

/// A server with these numbers of workers and connections, after this number of seconds.
fn snapshot(workers: u64, peers: u64, seconds: u64) -> Snapshot {
    let worker = |at: u64| WorkerRow {
        received: 12_345 * seconds * (at + 1),
        sent: 6_000 * seconds,
        busy_percent: Some(37 + at % 50),
        connections: peers / workers,
        waiting: at,
        kernel_dropped: Some(if at == 1 { 40 * seconds } else { 0 }),
        dropped: [("no_cookie".to_owned(), 3 * seconds), ("replayed".to_owned(), 7)].into(),
    };
    let peer = |at: u64| PeerRow {
        peer: format!("{}.0.{:x}", at % workers, (seconds << 4) / seconds + at),
        address: if at == 3 {
            "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:54321".into()
        } else {
            format!("192.0.2.{at}:7777")
        },
        player: at.is_multiple_of(2).then(|| format!("{}", 1_000 + at)),
        round_trip_micros: 250_000 - 1_000 * at,
        loss_per_million: 1_500 * at,
        queued_bytes: 100 * at,
        sent_per_second: (seconds > 1).then_some(20_000 + at),
        received_per_second: (seconds > 1).then_some(3_000),
    };
    Snapshot {
        program: "server".to_owned(),
        taken_at_nanos: seconds * 1_000_000_000,
        workers: (0..workers).map(worker).collect(),
        peers: (0..peers).map(peer).collect(),
        peers_examined: peers,
        has_peers: true,
    }
}

fn after(mut state: State, answer: Response) -> State {
    state.on_answer(answer);
    state
}

fn shown(workers: u64, peers: u64) -> State {
    let looks = [1, 2].map(|seconds| Response::Snapshot(snapshot(workers, peers, seconds)));
    looks.into_iter().fold(State::new(SurveyOrder::RoundTrip), after)
}

fn press(mut state: State, keys: &[KeyCode]) -> (State, Vec<Effect>) {
    let effects = keys.iter().filter_map(|key| state.press(*key)).collect();
    (state, effects)
}

fn terminal(state: &State, (width, height): (u16, u16), theme: Theme) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, theme)).unwrap();
    terminal
}

fn screen(state: &State, size: (u16, u16)) -> String {
    let terminal = terminal(state, size, Theme::Plain);
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(size.0));
    rows.map(|row| {
        row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned() + "\n"
    })
    .collect()
}

/// Compares a text with the recorded file of this name. After an intended change, replace the file with the printed
/// text.
fn assert_is(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/screens").join(name);
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{} should be\n{expected}\nand is\n{text}", path.display());
}

#[test]
fn a_server_fits_a_small_terminal_and_fills_a_large_one() {
    let state = shown(2, 40);
    assert_is("80x24.txt", &screen(&state, (80, 24)));
    assert_is("120x40.txt", &screen(&state, (120, 40)));
    assert_is("many_workers_80x24.txt", &screen(&shown(64, 128), (80, 24)));
}

#[test]
fn every_terminal_size_is_filled_exactly() {
    let state = press(shown(3, 30), &[KeyCode::Char('b')]).0;
    for size in [(1, 1), (20, 5), (40, 10), (80, 24), (109, 24), (110, 50), (250, 80)] {
        let text = screen(&state, size);
        assert_eq!(text.lines().count(), usize::from(size.1), "{size:?}");
        assert!(text.lines().all(|line| line.len() <= usize::from(size.0)), "{size:?}\n{text}");
    }
    assert!(screen(&state, (20, 5)).contains("q quit"), "the way out is always there");
}

#[test]
fn without_colors_the_selected_row_is_reversed() {
    let state = press(shown(2, 5), &[KeyCode::Down]).0;
    for (theme, has_color) in [(Theme::Plain, false), (Theme::Colored, true)] {
        let terminal = terminal(&state, (80, 24), theme);
        let buffer = terminal.backend().buffer();
        let is_plain = |cell: &ratatui::buffer::Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
        assert_eq!(!buffer.content().iter().all(is_plain), has_color);
        let row: Vec<_> = buffer
            .content()
            .chunks(80)
            .filter(|row| {
                row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().starts_with("1.0.11 ")
            })
            .collect();
        assert!(row.len() == 1 && row[0].iter().all(|cell| cell.modifier.contains(Modifier::REVERSED)));
    }
}

#[test]
fn the_selection_stays_in_sight_and_with_its_peer() {
    let state = press(shown(2, 40), &[KeyCode::Down, KeyCode::Down, KeyCode::PageDown, KeyCode::Up]).0;
    assert_eq!(state.selected(), Some("1.0.1b"));
    let mut next = snapshot(2, 40, 3);
    next.peers.swap(11, 38);
    let state = after(state, Response::Snapshot(next));
    assert_eq!((state.selected(), state.row), (Some("1.0.1b"), 38));
    assert!(screen(&state, (80, 24)).contains("1.0.1b"));
    let mut fewer = snapshot(2, 3, 4);
    let state = after(state, Response::Snapshot(fewer.clone()));
    assert_eq!(state.row, 2, "it is gone");
    assert_eq!(press(state.clone(), &[KeyCode::Home, KeyCode::Up]).0.row, 0);
    assert_eq!(press(state.clone(), &[KeyCode::End, KeyCode::Down]).0.row, 2);
    fewer.peers.clear();
    let state = after(state, Response::Snapshot(fewer));
    let (state, effects) = press(
        state,
        &[KeyCode::Down, KeyCode::Char('k'), KeyCode::Char('y'), KeyCode::Char('t'), KeyCode::Char('b')],
    );
    assert_eq!((state.mode, effects), (ViewMode::List, vec![]), "no connection is selected");
}

#[test]
fn a_new_order_is_requested_and_begins_at_the_top() {
    let state = press(shown(2, 40), &[KeyCode::PageDown]).0;
    for (digit, order) in [
        ('2', SurveyOrder::Loss),
        ('3', SurveyOrder::Queue),
        ('4', SurveyOrder::Rate),
        ('1', SurveyOrder::RoundTrip),
    ] {
        let (next, effects) = press(state.clone(), &[KeyCode::Char(digit)]);
        assert_eq!(effects, [Effect::Request(Command::Snapshot { order, limit: PEERS })]);
        let mut answer = snapshot(2, 40, 3);
        answer.peers.reverse();
        let next = after(next, Response::Snapshot(answer));
        assert_eq!((next.row, next.order), (0, order));
    }
}

#[test]
fn closing_and_banning_are_confirmed_first() {
    let peer = || "0.0.10".to_owned();
    let (asked, effects) = press(shown(2, 4), &[KeyCode::Char('k')]);
    assert_eq!((&asked.mode, effects), (&ViewMode::Close(peer()), vec![]));
    assert_is("close_80x24.txt", &screen(&asked, (80, 24)));
    let text = "closed by the operator".to_owned();
    let close = Effect::Request(Command::Close { peer: peer(), text });
    for (key, expected) in [
        (KeyCode::Char('y'), vec![close]),
        (KeyCode::Char('n'), vec![]),
        (KeyCode::Esc, vec![]),
        (KeyCode::Char('q'), vec![]),
        (KeyCode::Enter, vec![]),
    ] {
        let (state, effects) = press(asked.clone(), &[key]);
        assert_eq!((state.mode, effects), (ViewMode::List, expected), "{key:?}");
    }
    for (key, seconds) in [('1', 600), ('2', 3_600), ('3', 86_400), ('4', 2_592_000)] {
        let (state, effects) = press(shown(2, 4), &[KeyCode::Char('b'), KeyCode::Char(key)]);
        assert_eq!(effects, [Effect::Request(Command::Ban { peer: peer(), seconds })]);
        let state = after(state, Response::Done { text: "banned".into() });
        assert_eq!(state.notice, "banned");
    }
    assert_eq!(press(shown(2, 4), &[KeyCode::Char('b'), KeyCode::Char('5')]).1, []);
    assert_is("ban_80x24.txt", &screen(&press(shown(2, 4), &[KeyCode::Char('b')]).0, (80, 24)));
}

#[test]
fn a_confirmation_is_about_the_peer_that_was_selected() {
    let (state, _) = press(shown(2, 4), &[KeyCode::Char('k')]);
    let mut other = snapshot(2, 4, 3);
    other.peers.remove(0);
    let (_, effects) = press(after(state, Response::Snapshot(other)), &[KeyCode::Char('y')]);
    assert!(
        matches!(&effects[..], [Effect::Request(Command::Close { peer, .. })] if peer == "0.0.10"),
        "{effects:?}"
    );
}

#[test]
fn a_trace_follows_the_newest_until_it_is_scrolled() {
    let (state, effects) = press(shown(2, 4), &[KeyCode::Down, KeyCode::Char('t')]);
    let trace = Effect::Request(Command::Trace { peer: "1.0.11".to_owned() });
    assert_eq!(effects, std::slice::from_ref(&trace));
    let text = |count: usize| (0..count).map(|line| format!("{line:>12} ms  received\u{1b}[2J\n")).collect();
    let state = after(state, Response::Record { text: text(50) });
    assert_eq!(state.due(), Some(trace), "it is renewed");
    assert_is("trace_80x24.txt", &screen(&state, (80, 24)));
    let up = press(state, &[KeyCode::Home]).0;
    let up = after(up, Response::Record { text: text(60) });
    assert!(screen(&up, (80, 24)).contains(" 0 ms") && !screen(&up, (80, 24)).contains("59 ms"));
    let newest = press(up, &[KeyCode::End]).0;
    assert!(screen(&newest, (80, 24)).contains("59 ms"));
    let (back, effects) = press(newest, &[KeyCode::Esc]);
    assert_eq!(back.mode, ViewMode::List);
    assert!(matches!(effects[..], [Effect::Request(Command::Snapshot { .. })]));
}

#[test]
fn a_paused_view_sends_no_requests() {
    let (held, effects) = press(shown(2, 4), &[KeyCode::Char(' ')]);
    assert!(effects.is_empty() && held.due().is_none());
    assert!(screen(&held, (80, 24)).contains("HELD"));
    let state = press(held, &[KeyCode::Char(' ')]).0;
    assert!(matches!(state.due(), Some(Effect::Request(Command::Snapshot { .. }))));
}

#[test]
fn q_ends_every_screen_without_a_question() {
    for keys in [&[][..], &[KeyCode::Char('?')], &[KeyCode::Char('t')]] {
        let state = press(shown(1, 1), keys).0;
        assert_eq!(press(state, &[KeyCode::Char('q')]).1, [Effect::Quit], "{keys:?}");
    }
    let help = press(shown(1, 1), &[KeyCode::Char('?')]).0;
    assert_is("help_80x24.txt", &screen(&help, (80, 24)));
    assert_eq!(press(help, &[KeyCode::Esc]).0.mode, ViewMode::List);
}

#[test]
fn wrong_or_missing_answers_do_not_break_the_screen() {
    let empty = State::new(SurveyOrder::Rate);
    assert!(screen(&empty, (80, 24)).contains("waiting for the first answer"));
    let answer = Response::Error { text: "no answer: gone\u{1b}]0;x\u{7}".into() };
    let failed = after(shown(2, 4), answer);
    let text = screen(&failed, (80, 24));
    assert!(text.contains("no answer: gone") && text.contains("192.0.2.1:7777") && text.is_ascii(), "{text}");
    let mut odd = snapshot(1, 1, 3);
    odd.program = "\u{1b}[31mserver\n\u{202e}".into();
    odd.workers[0].received = 0;
    odd.workers[0].dropped = [("\u{7}".repeat(200), u64::MAX)].into();
    odd.peers[0].address = "x\n".repeat(400);
    let text = screen(&after(shown(2, 4), Response::Snapshot(odd)), (80, 24));
    assert!(text.is_ascii() && text.lines().count() == 24 && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_receiver_has_threads_and_no_connections() {
    let mut receiver = snapshot(4, 4, 2);
    (receiver.program, receiver.has_peers) = ("receiver".into(), false);
    receiver.peers.clear();
    let state = after(State::default(), Response::Snapshot(receiver));
    assert_is("receiver_80x24.txt", &screen(&state, (80, 24)));
}

#[test]
fn plain_text_has_every_worker_and_every_connection_and_no_keys() {
    let text = plain(&shown(30, 60));
    assert_eq!(text.lines().filter(|line| line.contains(":7777")).count(), 59);
    assert!(text.contains("\n 29 ") && text.contains("ffff]:54321") && !text.contains("quit"), "{text}");
    assert_is("plain.txt", &plain(&shown(2, 3)));
}
