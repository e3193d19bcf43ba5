//! The books of a bench: every datagram and every message is accounted for, or the bench fails and names the counter that is wrong.

use std::ops::RangeInclusive;

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
        ("socket received bytes", sum(|worker| worker.received.bytes)),
        ("socket sent", sum(|worker| worker.sent.datagrams)),
        ("socket sent bytes", sum(|worker| worker.sent.bytes)),
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
        (min, max) if min == max => min.to_string(),
        (min, u64::MAX) => format!("at least {min}"),
        (min, max) => format!("{min} to {max}"),
    };
    Err(format!("BOOKS DO NOT CLOSE: {name} is {found}, and must be {goal}"))
}

/// Compares the datagrams that clients sent with those that the server's sockets received, or that the kernel dropped.
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

/// Compares the datagrams that the server sent with those that its clients received, or that the kernel dropped in front of their sockets.
/// `served` are the counts of a server that has ended.
pub(crate) fn close_return_path(served: &Counts, clients: &Counts) -> Result<(), String> {
    let sent = count(served, "socket sent");
    let min = sent.saturating_sub(count(clients, "kernel dropped").saturating_mul(TRAIN_MAX));
    close([("datagrams of the server at the clients", count(clients, "socket received"), min..=sent)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::named_counts;

    #[test]
    fn the_return_path_is_compared_with_drops() {
        let closed = |received, dropped| {
            let clients = named_counts([("socket received", received), ("kernel dropped", dropped)]);
            close_return_path(&named_counts([("socket sent", 10)]), &clients).is_ok()
        };
        assert!(closed(10, 0) && closed(8, 2) && !closed(8, 0) && !closed(11, 5));
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
}
