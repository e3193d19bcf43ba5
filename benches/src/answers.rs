//! The answers of echo servers, and their counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::{Counts, named_counts};

/// The counts of a server, which its threads and tasks share. A reader may find a message that is received, and neither echoed nor refused
/// yet.
#[derive(Debug, Default)]
pub struct Served {
    received: AtomicU64,
    echoed: AtomicU64,
    refused: AtomicU64,
}

impl Served {
    /// Counts a received message.
    pub fn on_received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the answer to a message, or that there was no room for it.
    pub fn on_answer(&self, is_taken: bool) {
        (if is_taken { &self.echoed } else { &self.refused }).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a received message and its answer.
    pub fn on_echo(&self, is_taken: bool) {
        self.on_received();
        self.on_answer(is_taken);
    }

    /// The number of received messages.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The counts by name: `received`, `echoed`, and `refused` (answers without room).
    pub fn counts(&self) -> Counts {
        let [echoed, refused] = [&self.echoed, &self.refused].map(|count| count.load(Ordering::Relaxed));
        named_counts([("received", self.received()), ("echoed", echoed), ("refused", refused)])
    }
}

/// Makes answers: the message itself, or the message repeated up to the length of an answer.
#[derive(Debug, Default)]
pub struct Answers(Vec<u8>);

impl Answers {
    /// Returns the answer of this length to a message, or the message if it is 0.
    pub fn to<'a>(&'a mut self, message: &'a [u8], bytes: usize) -> &'a [u8] {
        if bytes == 0 || message.is_empty() {
            return message;
        }
        self.0.clear();
        while self.0.len() < bytes {
            let rest = message.len().min(bytes - self.0.len());
            self.0.extend_from_slice(&message[..rest]);
        }
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_repeats_the_message() {
        let mut answers = Answers::default();
        assert_eq!((answers.to(b"abc", 0).to_vec(), answers.to(b"", 7)), (b"abc".to_vec(), &b""[..]));
        assert_eq!(answers.to(b"abc", 7), b"abcabca");
        assert_eq!(answers.to(b"abc", 2), b"ab");
    }
}
