//! The effect of keys, and screens drawn into memory and compared with recorded files.

use std::path::Path;

use drumfire::control::SurveyOrder;
use drumfire_control::{Command, PeerRow, Response, Snapshot, WorkerRow};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::draw;
use super::lines::plain;
use super::state::{PEERS, State, ViewMode};

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
        address: match at {
            3 => "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:54321".to_owned(),
            _ => format!("192.0.2.{at}:7777"),
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

fn press(mut state: State, keys: &[KeyCode]) -> (State, Vec<Command>) {
    let commands = keys.iter().filter_map(|key| state.on_key((*key).into())).collect();
    (state, commands)
}

/// The rows of a screen of this size.
fn cells(state: &State, (width, height): (u16, u16), is_colored: bool) -> Vec<Vec<Cell>> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, is_colored)).unwrap();
    let rows = terminal.backend().buffer().content().chunks(width.into());
    rows.map(<[Cell]>::to_vec).collect()
}

fn text_of(row: &[Cell]) -> String {
    row.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned() + "\n"
}

fn screen(state: &State, size: (u16, u16)) -> String {
    cells(state, size, false).iter().map(|row| text_of(row)).collect()
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
    for is_colored in [false, true] {
        let rows = cells(&state, (80, 24), is_colored);
        let is_plain = |cell: &Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
        assert_eq!(!rows.iter().flatten().all(is_plain), is_colored);
        let row = rows.iter().find(|row| text_of(row).starts_with("1.0.11 ")).unwrap();
        assert!(row.iter().all(|cell| cell.modifier.contains(Modifier::REVERSED)));
    }
}

#[test]
fn the_selection_stays_in_sight_and_with_its_peer() {
    let selected = |state: &State| state.selected().map(|row| row.peer.clone());
    let peer = Some("1.0.1b".to_owned());
    let state = press(shown(2, 40), &[KeyCode::Down, KeyCode::Down, KeyCode::PageDown, KeyCode::Up]).0;
    assert_eq!(selected(&state), peer);
    let mut next = snapshot(2, 40, 3);
    next.peers.swap(11, 38);
    let state = after(state, Response::Snapshot(next));
    assert_eq!((selected(&state), state.row), (peer, 38));
    assert!(screen(&state, (80, 24)).contains("1.0.1b"));
    let mut fewer = snapshot(2, 3, 4);
    let state = after(state, Response::Snapshot(fewer.clone()));
    assert_eq!(state.row, 2, "it is gone");
    assert_eq!(press(state.clone(), &[KeyCode::Home, KeyCode::Up]).0.row, 0);
    assert_eq!(press(state.clone(), &[KeyCode::End, KeyCode::Down]).0.row, 2);
    fewer.peers.clear();
    let state = after(state, Response::Snapshot(fewer));
    let (state, commands) = press(state, &['k', 'y', 't', 'b'].map(KeyCode::Char));
    assert_eq!((state.mode, commands), (ViewMode::List, vec![]), "no connection is selected");
}

#[test]
fn a_new_order_is_requested_and_begins_at_the_top() {
    let state = press(shown(2, 40), &[KeyCode::PageDown]).0;
    let (loss, queue) = (SurveyOrder::Loss, SurveyOrder::Queue);
    for (digit, order) in [('2', loss), ('3', queue), ('4', SurveyOrder::Rate), ('1', SurveyOrder::RoundTrip)]
    {
        let (next, commands) = press(state.clone(), &[KeyCode::Char(digit)]);
        assert_eq!(commands, [Command::Snapshot { order, limit: PEERS }]);
        let mut answer = snapshot(2, 40, 3);
        answer.peers.reverse();
        let next = after(next, Response::Snapshot(answer));
        assert_eq!((next.row, next.order), (0, order));
    }
}

#[test]
fn closing_and_banning_are_confirmed_first() {
    let peer = || "0.0.10".to_owned();
    let (asked, commands) = press(shown(2, 4), &[KeyCode::Char('k')]);
    assert_eq!(commands, []);
    assert_is("close_80x24.txt", &screen(&asked, (80, 24)));
    let close = [Command::Close { peer: peer(), text: "closed by the operator".to_owned() }];
    // The question is about the peer that was selected, even if another one takes its row.
    let mut other = snapshot(2, 4, 3);
    other.peers.remove(0);
    let asked = after(asked, Response::Snapshot(other));
    let (yes, no) = (
        ['y', 'Y'].map(KeyCode::Char),
        [KeyCode::Char('n'), KeyCode::Char('q'), KeyCode::Esc, KeyCode::Enter],
    );
    let cases = yes.into_iter().map(|key| (key, &close[..])).chain(no.into_iter().map(|key| (key, &[][..])));
    for (key, expected) in cases {
        let (state, commands) = press(asked.clone(), &[key]);
        assert_eq!((state.mode, &commands[..]), (ViewMode::List, expected), "{key:?}");
    }
    let (asked, commands) = press(shown(2, 4), &[KeyCode::Char('b')]);
    assert_eq!(commands, []);
    assert_is("ban_80x24.txt", &screen(&asked, (80, 24)));
    for (key, seconds) in [('1', 600), ('2', 3_600), ('3', 86_400), ('4', 2_592_000)] {
        let (state, commands) = press(asked.clone(), &[KeyCode::Char(key)]);
        assert_eq!(commands, [Command::Ban { peer: peer(), seconds }]);
        let state = after(state, Response::Done { text: "banned".into() });
        assert_eq!((state.mode, state.notice.as_str()), (ViewMode::List, "banned"));
    }
    assert_eq!(press(asked, &[KeyCode::Char('5')]).1, []);
}

#[test]
fn a_trace_follows_the_newest_until_it_is_scrolled() {
    let (state, commands) = press(shown(2, 4), &[KeyCode::Down, KeyCode::Char('t')]);
    let trace = Command::Trace { peer: "1.0.11".to_owned() };
    assert_eq!(commands, std::slice::from_ref(&trace));
    let text = |count: usize| (0..count).map(|line| format!("{line:>12} ms  received\u{1b}[2J\n")).collect();
    let state = after(state, Response::Record { text: text(50) });
    assert_eq!(state.due_request(), Some(trace), "it is renewed");
    assert_is("trace_80x24.txt", &screen(&state, (80, 24)));
    let up = press(state, &[KeyCode::Home]).0;
    let up = after(up, Response::Record { text: text(60) });
    assert!(screen(&up, (80, 24)).contains(" 0 ms") && !screen(&up, (80, 24)).contains("59 ms"));
    let newest = press(up, &[KeyCode::End]).0;
    assert!(screen(&newest, (80, 24)).contains("59 ms"));
    let (back, commands) = press(newest, &[KeyCode::Esc]);
    assert_eq!(back.mode, ViewMode::List);
    assert!(matches!(commands[..], [Command::Snapshot { .. }]));
}

#[test]
fn a_paused_view_sends_no_requests() {
    let (held, commands) = press(shown(2, 4), &[KeyCode::Char(' ')]);
    assert!(commands.is_empty() && held.due_request().is_none());
    assert!(screen(&held, (80, 24)).contains("HELD"));
    let state = press(held, &[KeyCode::Char(' ')]).0;
    assert!(matches!(state.due_request(), Some(Command::Snapshot { .. })));
}

#[test]
fn q_and_control_c_end_every_screen_without_a_question() {
    for keys in [&[][..], &[KeyCode::Char('?')], &[KeyCode::Char('t')]] {
        let state = press(shown(1, 1), keys).0;
        let is_over = |key: KeyEvent| {
            let mut state = state.clone();
            assert_eq!(state.on_key(key), None);
            state.is_over
        };
        let q = KeyEvent::from(KeyCode::Char('q'));
        let control = |letter| is_over(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        assert!(!state.is_over && is_over(q), "{keys:?}");
        assert_eq!((control('c'), control('d'), control('q')), (true, true, false), "{keys:?}");
        assert!(!is_over(KeyEvent { kind: KeyEventKind::Release, ..q }), "it would count twice");
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
