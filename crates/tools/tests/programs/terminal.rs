//! A program on a terminal of 80 columns and 24 rows: what its screen shows, and what is typed there.
//!
//! An emulator draws the output of the program. Only a deadline finds missing output.

use std::io::{Read as _, Write as _};
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use drumfire_tools::clock;
use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{LocalModes, tcgetattr};
use vt100::{Parser, Screen};

use crate::process::DEADLINE;

const ROWS: u16 = 24;

const COLUMNS: u16 = 80;

/// The text on the screen before the program begins.
const BEFORE: &str = "$ what was typed before";

/// A program that runs on a terminal of its own.
pub(crate) struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    /// The output of the program. It ends when no process has the terminal open.
    written: Receiver<Vec<u8>>,
    emulator: Parser,
    /// How the terminal took lines before.
    modes_before: LocalModes,
}

/// The state after the program ended.
pub(crate) struct Left {
    pub(crate) code: Option<i32>,
    /// The text on the screen after [`BEFORE`].
    pub(crate) text: String,
}

impl Terminal {
    pub(crate) fn start(program: &str, args: &[&str]) -> Self {
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
    pub(crate) fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows this.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_shown: impl Fn(&Screen) -> bool) {
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
    pub(crate) fn is_raw(&self) -> bool {
        !tcgetattr(&*self.pty).unwrap().local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    pub(crate) fn screen(&self) -> &Screen {
        self.emulator.screen()
    }

    /// Waits for the end of the program; the terminal must be as it was before.
    #[track_caller]
    pub(crate) fn end(mut self) -> Left {
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
        Left { code, text: text.trim().to_owned() }
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
pub(crate) fn rows(screen: &Screen) -> Vec<String> {
    screen.rows(0, COLUMNS).collect()
}

/// The row that is reversed from its first character to its last, of those that hold this text.
pub(crate) fn reversed_row(screen: &Screen, text: &str) -> Option<String> {
    let is_reversed =
        |row: u16| (0..COLUMNS).all(|column| screen.cell(row, column).is_some_and(vt100::Cell::inverse));
    (0..ROWS).zip(rows(screen)).find(|(at, row)| row.contains(text) && is_reversed(*at)).map(|(_, row)| row)
}
