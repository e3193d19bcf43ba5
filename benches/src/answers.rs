//! The answers of echo servers that are not drumfire's, and their counts.

use crate::process::{Counts, named_counts};

/// The counts of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The number of messages that came.
    pub received: u64,
    echoed: u64,
    /// The number of answers without room.
    refused: u64,
}

impl Served {
    /// Counts a message and whether its answer was taken.
    pub fn on_answer(&mut self, is_taken: bool) {
        self.received += 1;
        *(if is_taken { &mut self.echoed } else { &mut self.refused }) += 1;
    }

    /// The counts by name.
    pub fn counts(self) -> Counts {
        let Self { received, echoed, refused } = self;
        named_counts([("received", received), ("echoed", echoed), ("refused", refused)])
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
