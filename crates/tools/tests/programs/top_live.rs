//! The live view on a terminal: drawn, controlled by keys, and restored at the end.
//!
//! The unit tests of `drumfire_tools::top` cover the effect of each key. These tests cover the way from a key to the screen.

use vt100::Screen;

use crate::process::{DRUMFIRE, Folder, RECEIVER};
use crate::terminal::{Terminal, reversed_row, rows};
use crate::top::Game;

fn starts_with(screen: &Screen, text: &str) -> bool {
    rows(screen).first().is_some_and(|row| row.starts_with(text))
}

fn has_row_with(screen: &Screen, text: &str) -> bool {
    rows(screen).iter().any(|row| row.contains(text))
}

#[test]
fn keys_sort_and_end_the_view_of_a_running_server() {
    let folder = Folder::new("top-live");
    let game = Game::start(&folder);
    let path = game.control.path().to_str().unwrap();
    let mut terminal = Terminal::start(DRUMFIRE, &["top", "--control", path, "--order", "rtt"]);
    let connections = |screen: &Screen| rows(screen).iter().filter(|row| row.contains(" 127.0.0.1:")).count();
    terminal.until("the table", |screen| {
        starts_with(screen, "drumfire top  server  workers 1  connections 3") && connections(screen) == 3
    });
    let screen = terminal.screen();
    assert!(screen.alternate_screen() && screen.hide_cursor() && terminal.is_raw());
    let shown = rows(screen);
    assert!(shown[23].starts_with("q quit  ? help  1-4 order"), "{shown:#?}");
    assert!(reversed_row(screen, "*RTT ms").is_some(), "{shown:#?}");

    // The first connection is the selected one, by its name in front.
    let selected = |screen: &Screen| reversed_row(screen, " 127.0.0.1:").map(|row| row[..14].to_owned());
    let first = selected(screen);
    assert!(first.is_some());
    terminal.press("\x1b[B");
    terminal.until("another selected", |screen| selected(screen).is_some_and(|row| Some(row) != first));
    terminal.press("2");
    terminal.until("another order", |screen| reversed_row(screen, "*LOSS %").is_some());
    terminal.press("?");
    terminal.until("the help", |screen| has_row_with(screen, "longest round trip first"));
    terminal.press("q");
    let left = terminal.end();
    assert_eq!((left.code, left.text.as_str()), (Some(0), ""));
}

#[test]
fn control_c_ends_the_view_of_a_receiver() {
    let mut terminal = Terminal::start(RECEIVER, &["--tui", "--threads", "1", "--bind", "127.0.0.1:0"]);
    terminal.until("the table", |screen| {
        starts_with(screen, "drumfire top  receiver  workers 1")
            && has_row_with(screen, "connections are not followed here")
    });
    assert!(terminal.is_raw());
    terminal.press("\x03");
    let left = terminal.end();
    assert_eq!(left.code, Some(1));
    assert!(left.text.starts_with("receiving on udp and tcp 127.0.0.1:"), "{}", left.text);
    let last = left.text.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: "), "{}", left.text);
}
