//! The books of a run: every datagram that was sent was received, was dropped for a named reason, or is in the remainder. Messages
//! have books of their own: a datagram may carry several messages or only an ack, and a message may be sent several times.
//!
//! Between two hosts the remainder may be positive. On one host it must be zero. The books contain only datagrams of
//! the sender under test. Foreign datagrams and second copies are counted elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::choices::Mode;
use crate::error::Error;
use crate::table::{signed_thousands, thousands};

/// The drop that the kernel counts when a socket's receive queue is full.
pub const KERNEL_RECEIVE_QUEUE: &str = "kernel_receive_queue";

/// The name of the remainder on one host, where it has to be zero.
pub const UNEXPLAINED: &str = "unexplained";

/// The name of the remainder between two hosts: datagrams lost in a NIC, a switch, or a cable.
pub const WIRE_OR_NIC: &str = "wire_or_nic";

/// The extent of the books.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Loopback or veth: one kernel sees every datagram, so the remainder must be zero.
    #[default]
    OneHost,
    /// One host whose kernel does not count its drops: they are the remainder.
    OneHostUncounted,
    /// Two machines: a remainder is possible, and is never called explained.
    TwoHosts,
}

impl Scope {
    /// The name of the remainder in a table: [`UNEXPLAINED`] or [`WIRE_OR_NIC`].
    pub fn remainder_name(self) -> &'static str {
        match self {
            Self::OneHost | Self::OneHostUncounted => UNEXPLAINED,
            Self::TwoHosts => WIRE_OR_NIC,
        }
    }

    fn is_strict(&self) -> bool {
        *self == Self::OneHost
    }
}

/// Datagrams sent, received, and dropped.
///
/// The JSON also has the remainder, under the key `unexplained`. A record whose remainder does not match its numbers is refused.
/// `scope` is written unless it is [`Scope::OneHost`].
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(into = "BooksRecord", try_from = "BooksRecord")]
pub struct Accounting {
    /// Datagrams that the senders' kernel accepted.
    pub sent: u64,
    /// Sent datagrams that a receiver received, each counted once.
    pub received: u64,
    /// Sent datagrams that were dropped, by the name of the drop.
    pub drops: BTreeMap<String, u64>,
    /// Whether one kernel saw all datagrams.
    pub scope: Scope,
}

impl Accounting {
    /// Returns books of one host without drops.
    pub fn new(sent: u64, received: u64) -> Self {
        Self { sent, received, ..Self::default() }
    }

    /// Adds `count` datagrams to the drop called `name`; a count of zero still gives the name its line.
    #[must_use]
    pub fn dropped(mut self, name: &str, count: u64) -> Self {
        let total = self.drops.entry(name.to_owned()).or_default();
        *total = total.saturating_add(count);
        self
    }

    /// Returns the books with another scope.
    #[must_use]
    pub fn within(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The sum of all named drops, which stops at `u64::MAX`.
    pub fn dropped_count(&self) -> u64 {
        self.drops.values().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// The number of sent datagrams minus received ones and named drops.
    ///
    /// It is negative when more arrived than was sent. A remainder that does not fit stops at `i64::MIN` or `i64::MAX`,
    /// so that no wrapped sum makes the books close.
    pub fn unexplained(&self) -> i64 {
        let found = self
            .drops
            .values()
            .fold(i128::from(self.received), |sum, count| sum.saturating_add(i128::from(*count)));
        let remainder = i128::from(self.sent).saturating_sub(found);
        i64::try_from(remainder).unwrap_or(if remainder < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns whether nothing is left over.
    pub fn close(&self) -> bool {
        self.unexplained() == 0
    }

    /// Checks whether a report can be made of these books.
    ///
    /// On one host they must close. Between two hosts a positive remainder is the loss of the wire. Without the kernel's count it
    /// is the loss of the kernel. A negative remainder is always refused, because neither adds datagrams.
    ///
    /// # Errors
    /// [`Error::Run`] with the numbers.
    pub fn check(&self) -> Result<(), Error> {
        let remainder = self.unexplained();
        let is_accepted = match self.scope {
            Scope::OneHost => remainder == 0,
            Scope::OneHostUncounted | Scope::TwoHosts => remainder >= 0,
        };
        if is_accepted { Ok(()) } else { Err(Error::Run(self.difference())) }
    }

    /// Describes books that do not close.
    pub(super) fn difference(&self) -> String {
        let Self { sent, received, drops, .. } = self;
        let drops: String =
            drops.iter().map(|(name, count)| format!(" + {name} {}", thousands(*count))).collect();
        let remainder = self.unexplained();
        let end = if remainder < 0 {
            let more = thousands(remainder.unsigned_abs());
            format!("{more} more arrived than was sent (foreign traffic at the port?)")
        } else {
            format!("{} are missing without a name", signed_thousands(remainder))
        };
        let (sent, received) = (thousands(*sent), thousands(*received));
        format!("BOOKS DO NOT CLOSE: sent {sent} is not received {received}{drops}; {end}")
    }
}

/// The books as JSON has them.
#[derive(Serialize, Deserialize)]
struct BooksRecord {
    sent: u64,
    received: u64,
    drops: BTreeMap<String, u64>,
    unexplained: i64,
    #[serde(default, skip_serializing_if = "Scope::is_strict")]
    scope: Scope,
}

impl From<Accounting> for BooksRecord {
    fn from(books: Accounting) -> Self {
        let unexplained = books.unexplained();
        let Accounting { sent, received, drops, scope } = books;
        Self { sent, received, drops, unexplained, scope }
    }
}

impl TryFrom<BooksRecord> for Accounting {
    type Error = String;

    fn try_from(record: BooksRecord) -> Result<Self, String> {
        let BooksRecord { sent, received, drops, unexplained, scope } = record;
        let books = Self { sent, received, drops, scope };
        if books.unexplained() == unexplained {
            Ok(books)
        } else {
            let found = books.unexplained();
            Err(format!("the key `unexplained` says {unexplained}, but sent - received - drops is {found}"))
        }
    }
}

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Returns whether messages waited for acks, or were replaced while they did. The rate then shows the limit of neither end.
    pub(crate) fn is_held_back(&self) -> bool {
        self.blocked > 0 || self.books.drops.get(SUPERSEDED).is_some_and(|count| *count > 0)
    }

    /// Checks that every message is accounted for and that the mode kept its promise. Messages of lost datagrams have a name, so
    /// there is no remainder between two hosts either. The error has the numbers.
    pub(super) fn check(&self) -> Result<(), Error> {
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
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    #[test]
    fn books_close_when_every_datagram_has_a_name() {
        let books = Accounting::new(1_000, 900).dropped(KERNEL_RECEIVE_QUEUE, 70).dropped("truncated", 30);
        assert_eq!((books.unexplained(), books.close(), books.check().is_ok()), (0, true, true));
        let books = Accounting::new(5, 0).dropped("a", 2).dropped("a", 3).dropped("b", 0);
        assert_eq!(books.drops, BTreeMap::from([("a".to_owned(), 5), ("b".to_owned(), 0)]));
        assert_eq!(books.dropped_count(), 5);
    }

    #[test]
    fn a_remainder_is_refused_unless_drops_cannot_be_counted() {
        for (received, remainder) in [(99, 1), (100, 0), (101, -1)] {
            let books = Accounting::new(100, received);
            assert_eq!((books.unexplained(), books.close()), (remainder, remainder == 0));
            assert_eq!(books.check().is_ok(), remainder == 0);
            for (scope, name) in [(Scope::TwoHosts, "wire_or_nic"), (Scope::OneHostUncounted, "unexplained")]
            {
                assert_eq!(books.clone().within(scope).check().is_ok(), remainder >= 0);
                assert_eq!(scope.remainder_name(), name);
            }
        }
    }

    #[test]
    fn extreme_numbers_saturate_and_do_not_close() {
        let many = Accounting::new(0, u64::MAX).dropped("a", u64::MAX).dropped("b", u64::MAX).dropped("b", 1);
        assert_eq!((many.unexplained(), many.dropped_count()), (i64::MIN, u64::MAX));
        assert_eq!(Accounting::new(u64::MAX, 0).unexplained(), i64::MAX);
    }

    #[test]
    fn the_refusal_names_every_number() {
        let error = Accounting::new(1_000, 900).dropped(KERNEL_RECEIVE_QUEUE, 50).check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "BOOKS DO NOT CLOSE: sent 1,000 is not received 900 + kernel_receive_queue 50; \
             50 are missing without a name"
        );
        let text = Accounting::new(1_000, 3_000).check().unwrap_err().to_string();
        assert!(text.contains("2,000 more arrived than was sent (foreign traffic at the port?)"), "{text}");
    }

    #[test]
    fn books_are_read_back_from_json_if_their_remainder_is_right() {
        for scope in [Scope::OneHost, Scope::OneHostUncounted, Scope::TwoHosts] {
            let books = Accounting::new(u64::MAX, u64::MAX - 3).dropped("a", 1).within(scope);
            let text = serde_json::to_string(&books).unwrap();
            assert_eq!(text.contains("scope"), scope != Scope::OneHost);
            assert_eq!(serde_json::from_str::<Accounting>(&text).unwrap(), books);
        }
        for (unexplained, is_read) in [(9, false), (10, true), (11, false)] {
            let text = format!(r#"{{"sent":100,"received":90,"drops":{{}},"unexplained":{unexplained}}}"#);
            assert_eq!(serde_json::from_str::<Accounting>(&text).is_ok(), is_read, "{text}");
        }
    }

    fn messages(sent: u64, delivered: u64) -> Messages {
        let books = Accounting::new(sent, delivered);
        Messages { mode: Mode::ReliableOrdered, books, ..Messages::default() }
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
