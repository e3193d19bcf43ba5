//! Messages of one connection that are not back yet.

use std::collections::VecDeque;

/// The messages of one connection that are out, oldest first: their numbers and when they were to leave.
#[derive(Debug, Default)]
pub struct Out {
    next: u64,
    waiting: VecDeque<(u64, u64)>,
}

impl Out {
    /// The number of the next message.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The next message is on its way; it was to leave at `due`.
    pub fn sent(&mut self, due: u64) {
        self.waiting.push_back((self.next, due));
        self.next += 1;
    }

    /// Takes a message that came back off the list and answers when it was to leave; `None` when it is not out.
    pub fn take(&mut self, number: u64) -> Option<u64> {
        let place = self.waiting.iter().position(|(waiting, _)| *waiting == number)?;
        self.waiting.remove(place).map(|(_, due)| due)
    }

    /// When those that are out were to leave.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.waiting.iter().map(|(_, due)| *due)
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
        assert_eq!(out.waiting().collect::<Vec<_>>(), [10, 30]);
        out.forget();
        assert_eq!((out.take(0), out.next()), (None, 3));
    }
}
