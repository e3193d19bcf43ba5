//! The books of a bench: every datagram and every message is accounted for, or the bench fails and names the counter that is wrong.

use std::ops::RangeInclusive;

use drumfire::WhenFull;
use drumfire::stats::{DropReason, Stats, WorkerStats};

use crate::process::Counts;

/// The datagrams that the kernel may drop together and count as one, where it hands over trains as a whole.
const TRAIN_MAX: u64 = 64;

/// Sums the counters of all workers. Drop reasons without drops are left out.
pub fn counts_of(stats: &Stats) -> Counts {
    let sum = |of: fn(&WorkerStats) -> u64| stats.workers.iter().map(of).sum::<u64>();
    let counts = [
        ("unexplained", stats.unexplained()),
        ("panics", sum(|worker| worker.panics)),
        ("undelivered", sum(|worker| worker.messages_undelivered)),
        ("socket received", sum(|worker| worker.received.datagrams + worker.received.dropped_total())),
        ("socket sent", sum(|worker| worker.sent.datagrams)),
        ("datagrams sent", sum(|worker| worker.protocol.datagrams_sent)),
        ("not sent", sum(|worker| worker.sent.lost.total())),
        ("kernel dropped", sum(|worker| worker.kernel_dropped)),
        ("messages sealed", sum(|worker| worker.protocol.messages_sent - worker.protocol.messages_resent)),
        ("messages given up", sum(|w| w.protocol.messages_dropped + w.protocol.messages_expired)),
        ("messages delivered", sum(|worker| worker.protocol.messages_delivered)),
        ("unreliable overflows", sum(|worker| worker.protocol.unreliable_overflows)),
    ];
    let dropped = DropReason::ALL.into_iter().map(|reason| (reason.name(), stats.dropped(reason)));
    let dropped = dropped.filter(|(_, count)| *count > 0);
    let dropped = dropped.map(|(name, count)| (format!("dropped: {name}"), count));
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).chain(dropped).collect()
}

/// Returns the count of this name, or 0 without one.
pub fn count(counts: &Counts, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}

/// Fails with the first counter that is outside of its bounds: its name, its value, and the bounds.
pub fn close(
    counters: impl IntoIterator<Item = (&'static str, u64, RangeInclusive<u64>)>,
) -> Result<(), String> {
    let Some((name, found, bounds)) = counters.into_iter().find(|(_, found, bounds)| !bounds.contains(found))
    else {
        return Ok(());
    };
    let goal = match bounds.into_inner() {
        (least, most) if least == most => least.to_string(),
        (least, u64::MAX) => format!("at least {least}"),
        (least, most) => format!("{least} to {most}"),
    };
    Err(format!("BOOKS DO NOT CLOSE: {name} is {found}, and must be {goal}"))
}

/// Compares what clients sent with what the server's sockets received and what the kernel dropped.
///
/// `kernel_drops` are the drops at all sockets of the host. With `None` the server's own count is used, which other sockets cannot
/// change. The server reads it once per second and when it ends, so `served` must be its counts after its end.
pub fn close_books(sent: u64, served: &Counts, kernel_drops: impl Into<Option<u64>>) -> Result<(), String> {
    let trains = count(served, "kernel dropped").saturating_mul(TRAIN_MAX);
    let excused = kernel_drops.into().unwrap_or(trains);
    close([
        ("socket received", count(served, "socket received"), sent.saturating_sub(excused)..=sent),
        ("unexplained", count(served, "unexplained"), 0..=0),
        ("panics", count(served, "panics"), 0..=0),
    ])
}

/// Compares what the server's sockets sent with what the clients' sockets received.
///
/// `kernel_drops` are the drops on this direction. The counts are those of a server that has ended.
pub(crate) fn close_way_back(served: &Counts, received: u64, kernel_drops: u64) -> Result<(), String> {
    let sent = count(served, "socket sent");
    let least = sent.saturating_sub(kernel_drops.saturating_mul(TRAIN_MAX));
    close([("datagrams of the server at the clients", received, least..=sent)])
}

/// The books of one connection that sends more reliable messages than the other end takes, all of them with a receipt.
///
/// Each offered message has one place, and the policy for a full queue has counted its actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceiptBooks {
    /// Messages that the schedule offered.
    pub(crate) offered: u64,
    /// Messages that were refused because there was no room.
    pub(crate) full: u64,
    /// Messages that were refused because the connection was closed.
    pub(crate) closed: u64,
    /// Messages whose receipt says that they arrived.
    pub(crate) acknowledged: u64,
    /// Messages whose receipt says that the policy dropped them.
    pub(crate) dropped: u64,
    /// Messages whose receipt says that the connection ended first.
    pub(crate) lost: u64,
    /// Messages that were taken and have no receipt yet.
    pub(crate) unanswered: u64,
    /// The sender's own counter of dropped messages.
    pub(crate) counted_dropped: u64,
    /// The sender's own counter of connections that ended.
    pub(crate) counted_closed: u64,
    /// Messages that the application at the other end received.
    pub(crate) heard: u64,
}

impl ReceiptBooks {
    /// Compares all counters.
    pub(crate) fn close(&self, policy: WhenFull) -> Result<(), String> {
        let Self { offered, full, closed, acknowledged, dropped, lost, .. } = *self;
        let may = |may: bool| 0..=if may { u64::MAX } else { 0 };
        let may_drop = matches!(policy, WhenFull::DropOldest | WhenFull::DropNewest);
        let ends = u64::from(policy == WhenFull::Disconnect);
        let acted = match policy {
            WhenFull::Block => full,
            WhenFull::DropOldest | WhenFull::DropNewest => dropped,
            WhenFull::Disconnect => self.counted_closed,
        };
        let placed = full + closed + acknowledged + dropped + lost;
        close([
            ("messages that were refused or have a receipt", placed, offered..=offered),
            ("counted as dropped", self.counted_dropped, dropped..=dropped),
            ("heard", self.heard, acknowledged..=acknowledged + lost),
            ("refused by a policy that does not block", full, may(policy == WhenFull::Block)),
            ("dropped by a policy that does not drop", dropped, may(may_drop)),
            ("connections that ended", self.counted_closed, ends..=ends),
            ("lost without an end", lost + closed, may(ends > 0)),
            ("actions of the policy", acted, 1..=u64::MAX),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::named_counts;

    #[test]
    fn the_way_back_is_compared_with_drops() {
        let served = named_counts([("socket sent", 10)]);
        assert!(close_way_back(&served, 10, 0).is_ok() && close_way_back(&served, 8, 2).is_ok());
        assert!(close_way_back(&served, 8, 0).is_err() && close_way_back(&served, 11, 5).is_err());
    }

    #[test]
    fn missing_datagrams_open_the_books() {
        let served = |received, unexplained| {
            named_counts([("socket received", received), ("unexplained", unexplained)])
        };
        let closed = |counts: &Counts, drops: u64| close_books(10, counts, drops);
        assert!(closed(&served(10, 0), 0).is_ok());
        assert!(closed(&served(8, 0), 2).is_ok());
        for (counts, drops) in [(served(8, 0), 1), (served(11, 0), 5), (served(10, 1), 0)] {
            assert!(closed(&counts, drops).is_err(), "{counts:?}");
        }
    }

    #[test]
    fn each_drop_of_the_server_itself_excuses_one_train() {
        let served =
            |received, dropped| named_counts([("socket received", received), ("kernel dropped", dropped)]);
        let own = |received, dropped| close_books(1_000, &served(received, dropped), None);
        for (received, dropped) in [(1_000, 0), (999, 1), (936, 1), (872, 2)] {
            assert!(own(received, dropped).is_ok(), "{received}, {dropped}");
        }
        for (received, dropped) in [(999, 0), (935, 1), (1_001, 1)] {
            assert!(own(received, dropped).is_err(), "{received}, {dropped}");
        }
        let line = own(935, 1).expect_err("one is missing");
        assert!(line.contains("socket received is 935, and must be 936 to 1000"), "{line}");
        let all: u64 = 1;
        assert!(close_books(1_000, &served(998, 2), all).is_err(), "the count of all sockets decides");
    }

    #[test]
    fn drops_of_the_kernel_are_summed_over_all_workers() {
        let worker = |kernel_dropped| {
            let mut worker = WorkerStats::default();
            worker.kernel_dropped = kernel_dropped;
            worker
        };
        let mut stats = Stats::default();
        stats.workers = vec![worker(2), worker(3)];
        assert_eq!(count(&counts_of(&stats), "kernel dropped"), 5);
    }

    const BLOCK: ReceiptBooks = ReceiptBooks {
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

    const DROP: ReceiptBooks = ReceiptBooks { full: 0, dropped: 60, counted_dropped: 60, ..BLOCK };

    const DISCONNECT: ReceiptBooks =
        ReceiptBooks { full: 0, closed: 50, lost: 10, counted_closed: 1, heard: 45, ..BLOCK };

    #[test]
    fn receipt_books_close_when_every_message_has_a_place() {
        for (books, policy) in [
            (BLOCK, WhenFull::Block),
            (DROP, WhenFull::DropOldest),
            (DROP, WhenFull::DropNewest),
            (DISCONNECT, WhenFull::Disconnect),
        ] {
            assert_eq!(books.close(policy), Ok(()));
        }
    }

    #[test]
    fn each_count_that_is_off_by_one_opens_the_receipt_books() {
        let wrong = [
            (ReceiptBooks { offered: 101, ..BLOCK }, WhenFull::Block, "have a receipt"),
            (ReceiptBooks { full: 59, ..BLOCK }, WhenFull::Block, "have a receipt"),
            (ReceiptBooks { heard: 39, ..BLOCK }, WhenFull::Block, "heard is"),
            (ReceiptBooks { heard: 41, ..BLOCK }, WhenFull::Block, "heard is"),
            (ReceiptBooks { counted_dropped: 1, ..BLOCK }, WhenFull::Block, "counted as dropped is"),
            (ReceiptBooks { counted_closed: 1, ..BLOCK }, WhenFull::Block, "that ended is"),
            (ReceiptBooks { unanswered: 1, offered: 101, ..BLOCK }, WhenFull::Block, "have a receipt is"),
            (ReceiptBooks { lost: 1, offered: 101, ..BLOCK }, WhenFull::Block, "without an end is 1"),
            (ReceiptBooks { counted_dropped: 59, ..DROP }, WhenFull::DropOldest, "counted as dropped is"),
            (ReceiptBooks { full: 1, offered: 101, ..DROP }, WhenFull::DropNewest, "does not block is"),
            (DROP, WhenFull::Block, "does not drop is"),
            (ReceiptBooks { counted_closed: 0, ..DISCONNECT }, WhenFull::Disconnect, "that ended is"),
            (ReceiptBooks { counted_closed: 2, ..DISCONNECT }, WhenFull::Disconnect, "that ended is"),
            (ReceiptBooks { heard: 51, ..DISCONNECT }, WhenFull::Disconnect, "heard is"),
            (ReceiptBooks { offered: 40, full: 0, ..BLOCK }, WhenFull::Block, "actions of the policy is 0"),
        ];
        for (books, policy, what) in wrong {
            let line = books.close(policy).expect_err("open books");
            assert!(line.starts_with("BOOKS DO NOT CLOSE") && line.contains(what), "{line}");
        }
    }
}
