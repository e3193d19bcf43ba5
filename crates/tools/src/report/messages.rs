//! The books of messages: sent, delivered, and dropped as the mode allows.
//!
//! A datagram may carry several messages or only an ack, and a message may be sent several times, so neither book follows from
//! the other.

use serde::{Deserialize, Serialize};

use super::books::Accounting;
use crate::choices::Mode;
use crate::error::Error;
use crate::table::thousands;

/// Messages of lost datagrams that are not sent again.
pub const IN_LOST_DATAGRAMS: &str = "in_lost_datagrams";

/// Messages that a newer one replaced before they were sent, or before they were sent again.
pub const SUPERSEDED: &str = "superseded";

/// Messages that arrived after a newer one.
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
    /// The mode of delivery.
    pub mode: Mode,
    /// Messages that the schedule asked for, when there was a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<u64>,
    /// Messages that the senders' endpoints accepted, delivered messages, and drops by name.
    #[serde(flatten)]
    pub books: Accounting,
    /// Deliveries that the mode does not allow, and missing deliveries that it promises; must be 0.
    pub out_of_promise: u64,
    /// Reliable messages that were put into a packet again.
    pub resent: u64,
    /// Packets that the senders declared lost. A late ack can make this too high.
    pub packets_lost: u64,
    /// How often an endpoint accepted no message because earlier ones were not acknowledged.
    pub blocked: u64,
    /// Datagrams that the receiver sent back, almost all of them acks.
    pub answers: u64,
    /// The part of `answers` with nothing but an ack.
    pub acks_alone: u64,
}

impl Messages {
    /// Books of this mode without a message.
    #[must_use]
    pub fn none(mode: Mode) -> Self {
        Self {
            mode,
            offered: None,
            books: Accounting::default(),
            out_of_promise: 0,
            resent: 0,
            packets_lost: 0,
            blocked: 0,
            answers: 0,
            acks_alone: 0,
        }
    }

    /// Returns whether messages waited for acks, or were replaced while they did. The rate then shows the limit of neither end.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.blocked > 0 || self.books.drops.get(SUPERSEDED).is_some_and(|count| *count > 0)
    }

    /// Checks that every message is accounted for and that the mode kept its promise. Messages of lost datagrams have a name, so
    /// there is no remainder between two hosts either.
    ///
    /// # Errors
    /// [`Error::Run`] with the numbers.
    pub fn check(&self) -> Result<(), Error> {
        let Self { mode, out_of_promise, .. } = *self;
        let problem = if out_of_promise > 0 {
            let (count, promise) = (thousands(out_of_promise), mode.promise());
            format!("PROMISE BROKEN: {count} were not delivered {promise}")
        } else if !self.books.close() {
            self.books.difference()
        } else {
            return Ok(());
        };
        Err(Error::Run(format!("messages, {mode}: {problem}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(sent: u64, delivered: u64) -> Messages {
        Messages { books: Accounting::new(sent, delivered), ..Messages::none(Mode::ReliableOrdered) }
    }

    #[test]
    fn open_books_and_broken_promises_are_refused() {
        let mut lost = messages(100, 99);
        lost.books = lost.books.dropped(IN_LOST_DATAGRAMS, 1);
        let broken = Messages { out_of_promise: 1_000, ..messages(5_000, 5_000) };
        for (messages, refusal) in [
            (messages(100, 100), None),
            (lost, None),
            (messages(100, 101), Some("BOOKS DO NOT CLOSE: sent 100 is not received 101")),
            (
                messages(7, 5),
                Some("BOOKS DO NOT CLOSE: sent 7 is not received 5; 2 are missing without a name"),
            ),
            (broken, Some("PROMISE BROKEN: 1,000 were not delivered exactly once, in order")),
        ] {
            let error = messages.check().err().map(|error| error.to_string());
            let refusal = refusal.map(|text| format!("messages, reliable-ordered: {text}"));
            assert!(
                error.as_deref().unwrap_or("").starts_with(refusal.as_deref().unwrap_or("")),
                "{error:?}"
            );
            assert_eq!(error.is_some(), refusal.is_some());
        }
    }

    #[test]
    fn a_sender_that_waits_for_acks_is_held_back() {
        assert!(!messages(9, 9).is_held_back());
        assert!(Messages { blocked: 1, ..messages(9, 9) }.is_held_back());
        for (count, is_held) in [(0, false), (1, true)] {
            let books = Accounting::new(9, 9 - count).dropped(SUPERSEDED, count);
            assert_eq!(Messages { books, ..messages(9, 9) }.is_held_back(), is_held);
        }
    }
}
