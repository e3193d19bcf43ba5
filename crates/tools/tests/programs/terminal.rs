//! The live view on a terminal of 80 columns and 24 rows: drawn, controlled by keys, and restored at the end.
//!
//! An emulator draws the output of the program. Only a deadline finds missing output. The unit tests of `drumfire_tools::top` cover the
//! effect of each key. These tests cover the way from a key to the screen.

use std::io::{Read as _, Write as _};
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use drumfire_tools::clock;
use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{LocalModes, tcgetattr};
use tempfile::tempdir;
use vt100::{Parser, Screen};

use crate::process::{DEADLINE, DRUMFIRE, RECEIVER};
use crate::top::Game;

const ROWS: u16 = 24;

const COLUMNS: u16 = 80;

/// The text on the screen before the program begins.
const BEFORE: &str = "$ what was typed before";

/// A program that runs on a terminal of its own.
struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    /// The output of the program. It ends when no process has the terminal open.
    written: Receiver<Vec<u8>>,
    emulator: Parser,
    /// How the terminal took lines before.
    modes_before: LocalModes,
}

impl Terminal {
    fn start(program: &str, args: &[&str]) -> Self {
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(ROWS, COLUMNS)).unwrap();
        let modes_before = tcgetattr(&pty).unwrap().local_modes;
        let command = Command::new(program).args(args).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let child = command.spawn(pts).unwrap_or_else(|error| panic!("{program}: {error}"));
        let pty = Arc::new(pty);
        let (outbox, written) = channel();
        let output = Arc::clone(&pty);
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(count @ 1..) = (&*output).read(&mut buffer) {
                if outbox.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut emulator = Parser::default();
        let (rows, columns) = emulator.screen().size();
        assert_eq!((rows.get(), columns.get()), (ROWS, COLUMNS));
        emulator.process(BEFORE.as_bytes());
        emulator.process(b"\r\n");
        Self { pty, child, written, emulator, modes_before }
    }

    /// Types these characters.
    fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows this.
    #[track_caller]
    fn until(&mut self, what: &str, is_shown: impl Fn(&Screen) -> bool) {
        let deadline = clock::now() + DEADLINE;
        while !is_shown(self.emulator.screen()) {
            let left = deadline.saturating_duration_since(clock::now());
            match self.written.recv_timeout(left) {
                Ok(bytes) => self.emulator.process(&bytes),
                Err(error) => panic!("{what}: {error}\n{}", self.emulator.screen().contents()),
            }
        }
    }

    /// Returns whether each key reaches the program immediately and is not echoed.
    fn is_raw(&self) -> bool {
        !tcgetattr(&*self.pty).unwrap().local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn screen(&self) -> &Screen {
        self.emulator.screen()
    }

    /// Waits for the end of the program; the terminal must be as it was before. Returns the exit code, and the text on the screen
    /// after [`BEFORE`].
    #[track_caller]
    fn end(mut self) -> (Option<i32>, String) {
        loop {
            match self.written.recv_timeout(DEADLINE) {
                Ok(bytes) => self.emulator.process(&bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end\n{}", self.screen().contents()),
            }
        }
        let code = self.child.wait().unwrap().code();
        assert_eq!(tcgetattr(&*self.pty).unwrap().local_modes, self.modes_before);
        let screen = self.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        let contents = screen.contents();
        let text = contents.strip_prefix(BEFORE).unwrap_or_else(|| panic!("overwritten:\n{contents}"));
        (code, text.trim().to_owned())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program leads its process group. This fails if the group has already ended.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The rows of a screen, from the top.
fn rows(screen: &Screen) -> Vec<String> {
    screen.rows(0, COLUMNS).collect()
}

/// The row that is reversed from its first character to its last, of those that hold this text.
fn reversed_row(screen: &Screen, text: &str) -> Option<String> {
    let is_reversed =
        |row: u16| (0..COLUMNS).all(|column| screen.cell(row, column).is_some_and(vt100::Cell::inverse));
    (0..ROWS).zip(rows(screen)).find(|(at, row)| row.contains(text) && is_reversed(*at)).map(|(_, row)| row)
}

#[test]
fn keys_sort_and_end_the_view_of_a_running_server() {
    let folder = tempdir().unwrap();
    let game = Game::start(&folder);
    let path = game.control.path().to_str().unwrap();
    let mut terminal = Terminal::start(DRUMFIRE, &["top", "--control", path, "--order", "rtt"]);
    let connections = |screen: &Screen| rows(screen).iter().filter(|row| row.contains(" 127.0.0.1:")).count();
    terminal.until("the table", |screen| {
        screen.contents().starts_with("drumfire top  server  workers 1  connections 3")
            && connections(screen) == 3
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
    terminal.until("the help", |screen| screen.contents().contains("longest round trip first"));
    terminal.press("q");
    assert_eq!(terminal.end(), (Some(0), String::new()));
}

#[test]
fn control_c_ends_the_view_of_a_receiver() {
    let mut terminal = Terminal::start(RECEIVER, &["--tui", "--threads", "1", "--bind", "127.0.0.1:0"]);
    terminal.until("the table", |screen| {
        screen.contents().starts_with("drumfire top  receiver  workers 1")
            && screen.contents().contains("connections are not followed here")
    });
    assert!(terminal.is_raw());
    terminal.press("\x03");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(1));
    assert!(text.starts_with("receiving on udp and tcp 127.0.0.1:"), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("error: ")), "{text}");
}
