//! What the sender's book says of messages, where its flows are endpoints that deliver them.
//!
//! The receiver's side of it travels as [`crate::report::Messages`].

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use serde::{Deserialize, Serialize};

use super::message::{as_many_as_flows, total};

/// The sender's book of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentMessages {
    /// Messages that each flow's endpoint took, flow 0 first.
    pub sent_per_flow: Vec<u64>,
    /// Messages that they took in all: the sum of the above.
    pub sent: u64,
    /// Messages that were due by the rate, taken or not.
    pub offered: u64,
    /// Of those taken, the ones that never went into a packet.
    pub unsent: u64,
    /// Of the unsent, those that were dropped for want of memory or time.
    pub given_up: u64,
    /// Messages put into a packet again.
    pub resent: u64,
    /// Packets found lost.
    pub packets_lost: u64,
    /// Times that an endpoint took no message because those before were not acknowledged.
    pub blocked: u64,
    /// Flows with something that was not acknowledged when the sender gave up waiting.
    pub unsettled: u64,
}

impl SentMessages {
    pub(super) fn check(&self, flows: u32) -> Result<(), String> {
        as_many_as_flows("messages.sent_per_flow", self.sent_per_flow.len(), flows)?;
        if total(self.sent_per_flow.iter()) != Some(self.sent) {
            return Err("messages.sent is not the sum of messages.sent_per_flow".to_owned());
        }
        if self.unsent > self.sent || self.given_up > self.unsent {
            return Err("messages.unsent is more than was sent, or less than was given up".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::Mode;
    use crate::control::Books;
    use crate::report::{self, Messages};

    #[test]
    fn a_book_of_messages_must_add_up() {
        let good = SentMessages {
            sent_per_flow: vec![3, 4],
            sent: 7,
            unsent: 2,
            given_up: 1,
            ..SentMessages::default()
        };
        for (book, is_good) in [
            (good.clone(), true),
            (SentMessages { sent: 8, ..good.clone() }, false),
            (SentMessages { sent_per_flow: vec![7], ..good.clone() }, false),
            (SentMessages { unsent: 7, ..good.clone() }, true),
            (SentMessages { unsent: 8, ..good.clone() }, false),
            (SentMessages { given_up: 2, ..good.clone() }, true),
            (SentMessages { given_up: 3, ..good.clone() }, false),
        ] {
            assert_eq!(book.check(2).is_ok(), is_good, "{book:?}");
        }
    }

    #[test]
    fn books_of_other_messages_than_were_sent_are_refused() {
        let sent = SentMessages { sent: 7, ..SentMessages::default() };
        let of = |count| {
            let books = report::Books::new(count, count);
            Books {
                messages: Some(Messages { books, ..Messages::none(Mode::Unreliable) }),
                ..Books::default()
            }
        };
        for (books, sent, is_good) in [
            (of(7), Some(&sent), true),
            (of(6), Some(&sent), false),
            (of(7), None, false),
            (Books::default(), None, true),
            (Books::default(), Some(&sent), false),
        ] {
            assert_eq!(books.check_messages(sent).is_ok(), is_good, "{books:?}");
        }
    }
}
