//! Messages of one connection that are not back yet. It reads no clock.

use std::collections::VecDeque;

/// A closed loop goes on without a message that may be lost and has not come back for this long, in nanoseconds.
pub const GIVEN_UP_NS: u64 = 250_000_000;

/// The messages of one connection that are out, oldest first: their numbers, when they left and when they were to leave.
#[derive(Debug, Default)]
pub struct Out {
    next: u64,
    waiting: VecDeque<Sent>,
}

#[derive(Debug)]
struct Sent {
    number: u64,
    at: u64,
    due: u64,
}

impl Out {
    /// Nothing is out; the first message has this number.
    #[must_use]
    pub fn beginning_at(next: u64) -> Self {
        Self { next, waiting: VecDeque::new() }
    }

    /// The number of the next message.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The next message is on its way, and left when it was to leave.
    pub fn sent(&mut self, due: u64) {
        self.sent_at(due, due);
    }

    /// The next message is on its way; it left at `at` and was to leave at `due`.
    pub fn sent_at(&mut self, at: u64, due: u64) {
        self.waiting.push_back(Sent { number: self.next, at, due });
        self.next += 1;
    }

    /// Takes a message that came back off the list and answers when it was to leave; `None` when it is not out.
    pub fn take(&mut self, number: u64) -> Option<u64> {
        let place = self.waiting.binary_search_by_key(&number, |sent| sent.number).ok()?;
        self.waiting.remove(place).map(|sent| sent.due)
    }

    /// When those that are out were to leave.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.waiting.iter().map(|sent| sent.due)
    }

    /// How many are out.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Whether none is out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many a closed loop waits for: where they may be lost, those that left more than [`GIVEN_UP_NS`] ago are not waited
    /// for, though they may still come.
    #[must_use]
    pub fn awaited(&self, now: u64, may_lose: bool) -> usize {
        let is_awaited = |sent: &&Sent| !may_lose || sent.at.saturating_add(GIVEN_UP_NS) >= now;
        self.waiting.iter().rev().take_while(is_awaited).count()
    }

    /// Gives up what is out.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_back_once_and_in_any_order() {
        let mut out = Out::default();
        for due in [10, 20, 30] {
            out.sent(due);
        }
        assert_eq!((out.next(), out.take(1), out.take(1), out.take(3)), (3, Some(20), None, None));
        assert_eq!((out.waiting().collect::<Vec<_>>(), out.count()), (vec![10, 30], 2));
        out.forget();
        assert_eq!((out.take(0), out.next(), out.is_empty()), (None, 3, true));
    }

    #[test]
    fn a_closed_loop_goes_on_without_lost_messages_only_where_they_may_be_lost() {
        let mut out = Out::beginning_at(70);
        out.sent(0);
        // It was to leave long ago, and left now.
        out.sent_at(GIVEN_UP_NS, 0);
        let now = GIVEN_UP_NS + 1;
        assert_eq!((out.awaited(now, true), out.awaited(now, false), out.count()), (1, 2, 2));
        assert_eq!((out.take(70), out.take(70), out.next()), (Some(0), None, 72), "it may still come");
        assert_eq!((out.awaited(now, true), out.awaited(now + GIVEN_UP_NS, true)), (1, 0));
    }
}
