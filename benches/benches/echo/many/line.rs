//! One connection as the load sees it: its messages that are not back yet, and its turns.

use drumfire_benches::Outstanding;
use drumfire_benches::numbered::first_number;

/// Bytes of a message.
pub(crate) const PAYLOAD_BYTES: usize = 1_024;

/// A connection with so many messages out leaves its turns out.
pub(crate) const OUT_MAX: usize = 4;

/// A connection.
pub(crate) struct Line {
    pub(crate) out: Outstanding,
    /// The next turn of its schedule.
    pub(crate) turn: u64,
    /// Of the first connection of a socket: with whom the next look begins.
    pub(crate) turn_of_socket: usize,
    /// Whether it waits for its socket.
    pub(crate) is_ready: bool,
}

impl Line {
    pub(crate) fn of(place: usize) -> Self {
        let out = Outstanding::beginning_at(first_number(place));
        Self { out, turn: 0, turn_of_socket: 0, is_ready: false }
    }

    /// Begins anew, with numbers that were never used.
    pub(crate) fn forget(&mut self) {
        self.out.forget();
        self.turn = 0;
        self.is_ready = false;
    }
}
