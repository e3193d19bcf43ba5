//! The server of a bench, and what it counted, under names, as its process tells it; and whether every datagram has a place.

use std::time::Duration;

use drumfire::{
    Access, AdmissionConfig, DropReason, Server, ServerConfig, ServerKey, Stats, WorkerStats, Workers,
};

use drumfire_tools::clock;

use crate::child::{Counts, say};

/// Room to ask for in a receive buffer: for what all clients send while the server has no core.
pub const RECEIVE_BUFFER_BYTES: usize = 4 * 1_024 * 1_024;

/// What was sent last has so long to be received.
const ON_THEIR_WAY: Duration = Duration::from_millis(300);

/// Binds the server of a bench on the loopback, open to everybody, with numbers of workers and connections as they stand on a
/// command line, and says its address to the process that started this one.
///
/// # Errors
///
/// One line: which number is none, or what the system answered.
pub fn open_server(key: ServerKey, workers: &str, connections: &str) -> Result<Server, String> {
    let workers = workers.parse().map_err(|_| "not a number of workers".to_owned())?;
    let connections = connections.parse().map_err(|_| "not a number of connections".to_owned())?;
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key, Access::Open)
        .workers(Workers::Count(workers))
        .connections(connections)
        // Benches fill their server on purpose: it takes all whom it has room for, however busy it is.
        .admission(AdmissionConfig::default().busy_max_percent(100))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let server = Server::bind(config).map_err(|error| error.to_string())?;
    say(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
    Ok(server)
}

/// The counters of all workers together that a bench looks at. Reasons for which nothing was dropped have no name.
#[must_use]
pub fn counts_of(stats: &Stats) -> Counts {
    let sum = |of: fn(&WorkerStats) -> u64| stats.workers.iter().map(of).sum::<u64>();
    let counts = [
        ("unexplained", stats.unexplained()),
        ("panics", sum(|worker| worker.panics)),
        ("undelivered", sum(|worker| worker.messages_undelivered)),
        ("socket received", sum(|worker| worker.received.datagrams + worker.received.dropped_in_all())),
        ("socket sent", sum(|worker| worker.sent.datagrams)),
        ("datagrams received", sum(|worker| worker.protocol.datagrams_received)),
        ("datagrams sent", sum(|worker| worker.protocol.datagrams_sent)),
        ("kernel dropped", sum(|worker| worker.kernel_dropped)),
        ("acks sent alone", sum(|worker| worker.protocol.acks_sent_alone)),
        ("messages resent", sum(|worker| worker.protocol.messages_resent)),
        ("packets lost", sum(|worker| worker.protocol.packets_lost)),
        ("forwarded", stats.forwarded()),
        ("connections opened", sum(|worker| worker.protocol.connections_opened)),
        ("connections closed", sum(|worker| worker.protocol.connections_closed)),
    ];
    let dropped = DropReason::ALL.into_iter().map(|reason| (reason.name(), stats.dropped(reason)));
    let dropped = dropped.filter(|(_, count)| *count > 0);
    let dropped = dropped.map(|(name, count)| (format!("dropped: {name}"), count));
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).chain(dropped).collect()
}

/// The count of this name; 0 where there is none.
#[must_use]
pub fn count(counts: &Counts, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}

/// All counts in one line, by their names.
#[must_use]
pub fn counts_text(counts: &Counts) -> String {
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    words.join(", ")
}

/// Waits for the datagrams that were sent last: a server that is asked for its counts takes no more.
pub fn settle() {
    clock::pause(ON_THEIR_WAY);
}

/// A train of so many datagrams is one drop of the kernel where it hands trains over whole.
const TRAIN_MAX: u64 = 64;

/// Holds what clients sent against what the server's sockets took and what the kernel dropped meanwhile, on one host: answers a
/// line for people.
///
/// `kernel_drops` are those of all sockets of the host. With `None` the server's own count stands in their place, which no other
/// socket can fill; it is read once a second at most and when the server ends, so `served` are to be its counts after its end.
///
/// # Errors
///
/// One line, when datagrams are left over.
pub fn close_books(
    sent: u64,
    served: &Counts,
    kernel_drops: impl Into<Option<u64>>,
) -> Result<String, String> {
    let (received, missing) = (count(served, "socket received"), missing(sent, served));
    let line = format!("sent {sent}, received {received}, kernel_receive_queue {missing}");
    let own = count(served, "kernel dropped");
    let (excused, drops) = match kernel_drops.into() {
        Some(drops) => (drops, format!("{drops} of all sockets")),
        None => (own.saturating_mul(TRAIN_MAX), format!("{own} trains at most in front of the server")),
    };
    let problem = if received > sent || missing > excused {
        format!("the kernel dropped {drops}")
    } else if count(served, "unexplained") > 0 {
        format!("{} are in no counter of the server", count(served, "unexplained"))
    } else if count(served, "panics") > 0 {
        format!("{} panics at the server", count(served, "panics"))
    } else {
        return Ok(line);
    };
    Err(format!("BOOKS DO NOT CLOSE: {line}; {problem}"))
}

/// Datagrams of clients that the server's sockets never took. The kernel's drops are of all sockets of the host: with several
/// servers at once, take these from them before the next one's books are closed.
#[must_use]
pub fn missing(sent: u64, served: &Counts) -> u64 {
    sent.saturating_sub(count(served, "socket received"))
}

/// The same on the way back: what the server's sockets sent until it was counted, against what the clients' took until then and
/// in the moment after; the kernel dropped so many beside those on the way there. Where the server is counted before it ends, what
/// it says when it leaves comes after its counts, `farewells` of them at most.
///
/// # Errors
///
/// One line, when datagrams are left over.
pub fn close_way_back(
    served: &Counts,
    received: u64,
    farewells: u64,
    kernel_drops: u64,
) -> Result<String, String> {
    let sent = count(served, "socket sent");
    let missing = sent.saturating_sub(received);
    let line = format!("back: sent {sent}, received {received}, kernel_receive_queue {missing}");
    if missing > kernel_drops * TRAIN_MAX || received > sent + farewells {
        return Err(format!("BOOKS DO NOT CLOSE: {line}; the kernel dropped {kernel_drops} on the way back"));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_is_held_against_drops_and_farewells() {
        let served = Counts::from([("socket sent".to_owned(), 10)]);
        for (received, farewells, drops) in [(10, 0, 0), (8, 0, 2), (12, 2, 0)] {
            assert!(close_way_back(&served, received, farewells, drops).is_ok(), "{received}");
        }
        for (received, farewells, drops) in [(8, 0, 0), (11, 0, 5), (13, 2, 0)] {
            assert!(close_way_back(&served, received, farewells, drops).is_err(), "{received}");
        }
        let served = Counts::from([("socket received".to_owned(), 7)]);
        assert_eq!((missing(10, &served), missing(6, &served)), (3, 0));
    }

    #[test]
    fn datagrams_that_are_nowhere_open_the_books() {
        let served = |received, unexplained| {
            Counts::from([("socket received".to_owned(), received), ("unexplained".to_owned(), unexplained)])
        };
        let closed = |counts: &Counts, drops: u64| close_books(10, counts, drops);
        assert!(closed(&served(10, 0), 0).is_ok());
        assert!(closed(&served(8, 0), 2).is_ok_and(|line| line.ends_with("kernel_receive_queue 2")));
        for (counts, drops) in [(served(8, 0), 1), (served(11, 0), 5), (served(10, 1), 0)] {
            assert!(closed(&counts, drops).is_err(), "{counts:?}");
        }
    }

    #[test]
    fn the_servers_own_drops_excuse_a_train_each_and_those_of_others_nothing() {
        let served = |received, dropped| {
            Counts::from([("socket received".to_owned(), received), ("kernel dropped".to_owned(), dropped)])
        };
        let own = |received, dropped| close_books(1_000, &served(received, dropped), None);
        for (received, dropped) in [(1_000, 0), (999, 1), (936, 1), (872, 2)] {
            assert!(own(received, dropped).is_ok(), "{received}, {dropped}");
        }
        for (received, dropped) in [(999, 0), (935, 1), (1_001, 1)] {
            assert!(own(received, dropped).is_err(), "{received}, {dropped}");
        }
        let line = own(935, 1).expect_err("one is left over");
        assert!(line.contains("kernel_receive_queue 65; the kernel dropped 1 trains"), "{line}");
        let all: u64 = 1;
        assert!(close_books(1_000, &served(998, 2), all).is_err(), "the count of all sockets holds alone");
    }

    #[test]
    fn what_the_kernel_dropped_is_counted_over_all_workers() {
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
