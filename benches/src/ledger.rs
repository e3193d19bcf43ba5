//! The books of one connection that sends more than the other end takes: every message it offered is in one place, and the
//! channel's policy for a full queue has counted what it did.
//!
//! Nothing is sent here.

use drumfire::WhenFull;

/// What became of messages, all of them reliable and with a receipt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// That were to be sent.
    pub offered: u64,
    /// Not taken for want of room, and the sender was told so.
    pub full: u64,
    /// Not taken because the connection was over.
    pub closed: u64,
    /// Taken, and one receipt says that they arrived.
    pub acknowledged: u64,
    /// Taken, and one receipt says that the policy dropped them.
    pub dropped: u64,
    /// Taken, and one receipt says that the connection ended first.
    pub lost: u64,
    /// Taken, and without a receipt so far.
    pub unanswered: u64,
    /// What the sender's own counter says of dropped ones.
    pub counted_dropped: u64,
    /// What the sender's own counter says of connections that ended.
    pub counted_closed: u64,
    /// What the application at the other end found, in all.
    pub heard: u64,
}

impl Ledger {
    /// Messages that the connection took.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.acknowledged + self.dropped + self.lost + self.unanswered
    }

    /// How often the policy did what it is for.
    #[must_use]
    pub const fn acted(&self, policy: WhenFull) -> u64 {
        match policy {
            WhenFull::Block => self.full,
            WhenFull::DropOldest | WhenFull::DropNewest => self.dropped,
            WhenFull::Disconnect => self.counted_closed,
        }
    }

    /// Holds all of it against each other: answers a line for people.
    ///
    /// # Errors
    ///
    /// One line that says what is off.
    pub fn close(&self, policy: WhenFull) -> Result<String, String> {
        let Self { offered, full, closed, acknowledged, dropped, lost, unanswered, heard, .. } = *self;
        let taken = self.taken();
        let line = format!(
            "offered {offered} = full {full} + connection over {closed} + taken {taken}; taken = acknowledged {acknowledged} + \
             dropped {dropped} + lost {lost}; heard {heard}"
        );
        match self.fault(policy) {
            None if unanswered == 0 => Ok(line),
            None => Err(format!("BOOKS DO NOT CLOSE: {line}; {unanswered} have no receipt")),
            Some(fault) => Err(format!("BOOKS DO NOT CLOSE: {line}; {fault}")),
        }
    }

    fn fault(&self, policy: WhenFull) -> Option<String> {
        let Self { offered, full, closed, acknowledged, dropped, lost, .. } = *self;
        let Self { counted_dropped, counted_closed, heard, .. } = *self;
        let (may_drop, may_end) = match policy {
            WhenFull::Block => (false, false),
            WhenFull::DropOldest | WhenFull::DropNewest => (true, false),
            WhenFull::Disconnect => (false, true),
        };
        let fault = if offered != full + closed + self.taken() {
            "some were neither taken nor refused".to_owned()
        } else if counted_dropped != dropped {
            format!("the counter says that {counted_dropped} were dropped")
        } else if heard < acknowledged || heard > acknowledged + lost {
            "what was heard is not what was acknowledged".to_owned()
        } else if full > 0 && policy != WhenFull::Block {
            "a policy that does not block refused some".to_owned()
        } else if dropped > 0 && !may_drop {
            "a policy that does not drop dropped some".to_owned()
        } else if counted_closed != u64::from(may_end) || (lost + closed > 0 && !may_end) {
            format!("{counted_closed} connections ended")
        } else if self.acted(policy) == 0 {
            "nothing was ever full".to_owned()
        } else {
            return None;
        };
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Ledger = Ledger {
        offered: 100,
        full: 60,
        closed: 0,
        acknowledged: 40,
        dropped: 0,
        lost: 0,
        unanswered: 0,
        counted_dropped: 0,
        counted_closed: 0,
        heard: 40,
    };

    const DROP: Ledger = Ledger { full: 0, dropped: 60, counted_dropped: 60, ..BLOCK };

    const DISCONNECT: Ledger =
        Ledger { full: 0, closed: 50, lost: 10, counted_closed: 1, heard: 45, ..BLOCK };

    #[test]
    fn books_close_when_every_message_has_a_place_and_the_policy_counted_what_it_did() {
        for (ledger, policy, acted) in [
            (BLOCK, WhenFull::Block, 60),
            (DROP, WhenFull::DropOldest, 60),
            (DROP, WhenFull::DropNewest, 60),
            (DISCONNECT, WhenFull::Disconnect, 1),
        ] {
            let line = ledger.close(policy).expect("closed books");
            assert!(line.starts_with("offered 100 = "), "{line}");
            assert_eq!(ledger.acted(policy), acted);
        }
    }

    #[test]
    fn every_count_that_is_one_off_opens_the_books() {
        let wrong = [
            (Ledger { offered: 101, ..BLOCK }, WhenFull::Block, "neither"),
            (Ledger { full: 59, ..BLOCK }, WhenFull::Block, "neither"),
            (Ledger { heard: 39, ..BLOCK }, WhenFull::Block, "heard is not"),
            (Ledger { heard: 41, ..BLOCK }, WhenFull::Block, "heard is not"),
            (Ledger { counted_dropped: 1, ..BLOCK }, WhenFull::Block, "the counter"),
            (Ledger { counted_closed: 1, ..BLOCK }, WhenFull::Block, "1 connections ended"),
            (Ledger { unanswered: 1, offered: 101, ..BLOCK }, WhenFull::Block, "1 have no receipt"),
            (Ledger { lost: 1, offered: 101, ..BLOCK }, WhenFull::Block, "0 connections ended"),
            (Ledger { counted_dropped: 59, ..DROP }, WhenFull::DropOldest, "the counter"),
            (Ledger { full: 1, offered: 101, ..DROP }, WhenFull::DropNewest, "does not block"),
            (DROP, WhenFull::Block, "does not drop"),
            (Ledger { counted_closed: 0, ..DISCONNECT }, WhenFull::Disconnect, "0 connections ended"),
            (Ledger { counted_closed: 2, ..DISCONNECT }, WhenFull::Disconnect, "2 connections ended"),
            (Ledger { heard: 51, ..DISCONNECT }, WhenFull::Disconnect, "heard is not"),
            (Ledger { offered: 40, full: 0, ..BLOCK }, WhenFull::Block, "nothing was ever full"),
        ];
        for (ledger, policy, what) in wrong {
            let line = ledger.close(policy).expect_err("open books");
            assert!(line.starts_with("BOOKS DO NOT CLOSE") && line.contains(what), "{line}");
        }
    }
}
