//! One connection as the load sees it: its messages that are not back yet.

use std::collections::VecDeque;

use crate::load::{CONNECTION_SHIFT, GIVEN_UP_NS};

/// Bytes of a message.
pub(crate) const PAYLOAD_BYTES: usize = 1_024;

/// A connection with so many messages out leaves its turns out.
pub(crate) const OUT_MAX: usize = 4;

/// A connection.
pub(crate) struct Line {
    next: u64,
    waiting: VecDeque<Sent>,
    /// The next turn of its schedule.
    pub(crate) turn: u64,
    /// Of the first connection of a socket: with whom the next look begins.
    pub(crate) turn_of_socket: usize,
    /// Whether it waits for its socket.
    pub(crate) is_ready: bool,
}

struct Sent {
    number: u64,
    at: u64,
    due: u64,
}

impl Line {
    pub(crate) fn of(place: usize) -> Self {
        Self {
            next: (place as u64) << CONNECTION_SHIFT,
            waiting: VecDeque::with_capacity(OUT_MAX),
            turn: 0,
            turn_of_socket: 0,
            is_ready: false,
        }
    }

    /// The number of its next message.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Its next message was taken at this time; it was to leave at `due`.
    pub(crate) fn on_sent(&mut self, at: u64, due: u64) {
        self.waiting.push_back(Sent { number: self.next, at, due });
        self.next += 1;
    }

    /// Takes a message that came back off the list and answers when it was to leave.
    pub(crate) fn take(&mut self, number: u64) -> Option<u64> {
        let place = self.waiting.binary_search_by_key(&number, |sent| sent.number).ok()?;
        self.waiting.remove(place).map(|sent| sent.due)
    }

    /// How many messages are out; where they may be lost, those that were sent long ago are not.
    pub(crate) fn out_count(&self, now: u64, may_lose: bool) -> usize {
        let is_out = |sent: &&Sent| !may_lose || sent.at + GIVEN_UP_NS > now;
        self.waiting.iter().rev().take_while(is_out).count()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn waiting_count(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Begins anew, with numbers that were never used.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
        self.turn = 0;
        self.is_ready = false;
    }
}

/// A message with this number; all its bytes follow from it.
pub(crate) fn message(number: u64) -> [u8; PAYLOAD_BYTES] {
    let mut bytes = [0; PAYLOAD_BYTES];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

/// The number of a message; nothing when it is not one that was sent.
pub(crate) fn number_of(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_be_bytes(*bytes.first_chunk()?);
    (bytes == message(number)).then_some(number)
}
