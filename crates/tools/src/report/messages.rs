//! The books of messages: sent, delivered, and dropped as the mode allows.
//!
//! A datagram may carry several messages, a message several times, and an ack none: neither book follows from the
//! other. Nothing here measures.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use std::fmt;

use serde::{Deserialize, Serialize};

use super::books::{Books, BooksDoNotClose};
use crate::choices::Mode;
use crate::table::thousands;

/// Messages that were under way in datagrams that did not arrive, and that are not sent again.
pub const IN_LOST_DATAGRAMS: &str = "in_lost_datagrams";

/// Messages that a newer one took the place of before they were sent, or that were not sent again because of it.
pub const SUPERSEDED: &str = "superseded";

/// Messages that came after a newer one.
pub const OVERTAKEN: &str = "overtaken";

/// Messages for which the receiver's connection had no memory.
pub const RECEIVE_MEMORY: &str = "receive_memory";

/// Messages that the sender gave up before they were sent.
pub const GIVEN_UP: &str = "given_up";

/// The books of messages of a run.
///
/// The keys of `books` are at the top level of the JSON; `received` counts delivered messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// How they were delivered.
    pub mode: Mode,
    /// Messages that the schedule asked for, when there was a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<u64>,
    /// Messages that the senders' endpoints took, those that were delivered, and where the others went.
    #[serde(flatten)]
    pub books: Books,
    /// Deliveries that the mode does not allow, and those it calls for that never came; must be 0.
    pub out_of_promise: u64,
    /// Reliable messages that were put into a packet again.
    pub resent: u64,
    /// Packets that the senders found lost; a late ack makes one too many.
    pub packets_lost: u64,
    /// Times that an endpoint took no message because those before were not acknowledged.
    pub blocked: u64,
    /// Datagrams that the receiver sent back: acks, almost all of them.
    pub answers: u64,
    /// Packets with nothing but an ack among those.
    pub acks_alone: u64,
}

impl Messages {
    /// Messages of this mode, none of which was sent yet.
    #[must_use]
    pub fn none(mode: Mode) -> Self {
        Self {
            mode,
            offered: None,
            books: Books::default(),
            out_of_promise: 0,
            resent: 0,
            packets_lost: 0,
            blocked: 0,
            answers: 0,
            acks_alone: 0,
        }
    }

    /// Whether messages waited for acks, or gave way to newer ones while they did: then the rate is neither what the
    /// sender nor what the receiver can do.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.blocked > 0 || self.books.drops.get(SUPERSEDED).is_some_and(|count| *count > 0)
    }

    /// Whether every message is accounted for and the mode kept its promise. No wire takes the blame here: what is
    /// lost in a datagram has a name.
    ///
    /// # Errors
    /// [`MessagesRefused`], which prints the numbers.
    pub fn check(&self) -> Result<(), MessagesRefused> {
        let Self { mode, out_of_promise, .. } = *self;
        if out_of_promise > 0 {
            return Err(MessagesRefused::Promise { mode, out_of_promise });
        }
        if self.books.close() {
            return Ok(());
        }
        Err(MessagesRefused::Books { mode, error: BooksDoNotClose { books: self.books.clone() } })
    }
}

/// Why the books of the messages may not be shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MessagesRefused {
    /// Messages are left over.
    Books {
        /// How they were delivered.
        mode: Mode,
        /// The books in question.
        error: BooksDoNotClose,
    },
    /// Not everything was delivered as the mode promises.
    Promise {
        /// How they were delivered.
        mode: Mode,
        /// How many were not.
        out_of_promise: u64,
    },
}

impl fmt::Display for MessagesRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Books { mode, error } => write!(f, "messages, {mode}: {error}"),
            Self::Promise { mode, out_of_promise } => {
                let (count, promise) = (thousands(*out_of_promise), mode.promise());
                write!(f, "messages, {mode}: PROMISE BROKEN: {count} were not delivered {promise}")
            }
        }
    }
}

impl std::error::Error for MessagesRefused {}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    fn messages(sent: u64, delivered: u64) -> Messages {
        Messages { books: Books::new(sent, delivered), ..Messages::none(Mode::ReliableOrdered) }
    }

    #[test]
    fn a_message_too_few_or_too_many_is_refused() {
        for (delivered, is_good) in [(99, false), (100, true), (101, false)] {
            assert_eq!(messages(100, delivered).check().is_ok(), is_good, "{delivered}");
        }
        let mut lost = messages(100, 99);
        lost.books = lost.books.dropped(IN_LOST_DATAGRAMS, 1);
        assert_eq!(lost.check(), Ok(()));
    }

    #[test]
    fn a_broken_promise_is_refused_although_the_sums_are_right() {
        let broken = Messages { out_of_promise: 1_000, ..messages(5_000, 5_000) };
        assert_eq!(
            broken.check().unwrap_err().to_string(),
            "messages, reliable-ordered: PROMISE BROKEN: 1,000 were not delivered exactly once, in order"
        );
        let open = messages(7, 5).check().unwrap_err().to_string();
        assert_eq!(
            open,
            "messages, reliable-ordered: BOOKS DO NOT CLOSE: sent 7 is not received 5; 2 are missing without a name"
        );
    }

    #[test]
    fn who_waits_for_acks_is_held_back() {
        assert!(!messages(9, 9).is_held_back());
        assert!(Messages { blocked: 1, ..messages(9, 9) }.is_held_back());
        for (count, is_held) in [(0, false), (1, true)] {
            let books = Books::new(9, 9 - count).dropped(SUPERSEDED, count);
            assert_eq!(Messages { books, ..messages(9, 9) }.is_held_back(), is_held);
        }
    }

    #[test]
    fn messages_come_back_from_json_as_they_were() {
        let messages = Messages { offered: Some(8), resent: 3, ..messages(7, 7) };
        let text = serde_json::to_string(&messages).unwrap();
        assert!(text.contains(r#""mode":"reliable-ordered""#) && text.contains(r#""received":7"#), "{text}");
        assert_eq!(serde_json::from_str::<Messages>(&text).unwrap(), messages);
    }
}
