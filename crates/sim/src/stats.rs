//! The figures of a scenario: its totals for the ledger, and how often each kind of event happened. A run does not judge them. A test
//! checks that each kind of event happens in some scenario, because one that never happens proves nothing.

use std::ops::AddAssign;
use std::time::Duration;

use drumfire::testing::{Fault, World};

use crate::checks::EarlierClients;
use crate::workers::{HAS_PANIC_POINT, RECEIVE_FAULTS, SEND_FAULTS};

/// The totals of one scenario, or of many, for the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// The time that clients were connected, summed over them.
    pub connected: Duration,
    /// Datagrams that ends sent.
    pub packets: u64,
    /// Attempts to connect.
    pub handshakes: u64,
    /// Datagrams of attackers, which hold no keys.
    pub hostile: u64,
    /// Sealed packets whose key and number were compared with all others of their world. 0 without the audit.
    pub audited: u64,
    /// Faults of links.
    pub links: LinkFaults,
    /// Faults of ends, applications, and addresses: rebinds, outages, wrong clocks, stalls, clients that vanish, and hostile ends.
    pub others: u64,
}

/// The faults of links by kind. Delays and reordering are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkFaults {
    /// Lost datagrams.
    pub lost: u64,
    /// Duplicated datagrams.
    pub duplicated: u64,
    /// Corrupted datagrams.
    pub corrupted: u64,
    /// Datagrams that a full queue dropped.
    pub queue_full: u64,
    /// Datagrams that were too long for their path.
    pub too_large: u64,
}

impl Totals {
    /// Adds what was sent, and what links did to it.
    pub(crate) fn count(&mut self, world: &World, earlier: &[EarlierClients]) {
        self.packets = world.server.stats().workers.iter().map(|worker| worker.sent.datagrams).sum();
        self.packets += earlier.iter().map(|earlier| earlier.sent).sum::<u64>();
        for (at, client) in world.clients.iter().enumerate() {
            self.packets += client.stats().sent.datagrams;
            for (link, _) in world.link_counts(at) {
                self.links.lost += link.lost;
                self.links.duplicated += link.duplicated;
                self.links.corrupted += link.corrupted;
                self.links.queue_full += link.queue_full;
                self.links.too_large += link.too_large;
            }
        }
    }

    /// Returns the number of all injected faults.
    #[must_use]
    pub const fn faults(&self) -> u64 {
        let LinkFaults { lost, duplicated, corrupted, queue_full, too_large } = self.links;
        lost + duplicated + corrupted + queue_full + too_large + self.others
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.connected += other.connected;
        self.packets += other.packets;
        self.handshakes += other.handshakes;
        self.hostile += other.hostile;
        self.audited += other.audited;
        self.links.lost += other.links.lost;
        self.links.duplicated += other.links.duplicated;
        self.links.corrupted += other.links.corrupted;
        self.links.queue_full += other.links.queue_full;
        self.links.too_large += other.links.too_large;
        self.others += other.others;
    }
}

/// How often each kind of event happened in scenarios with several workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coverage {
    /// Moments at which a worker did not know of datagrams in its socket: 0, or the run failed.
    pub stranded: u64,
    /// Panics in the code of connections.
    pub connection_panics: u64,
    /// Wake-ups of workers.
    pub wakes: u64,
    /// Datagrams that one worker forwarded to another.
    pub forwards: u64,
    /// Datagrams that a full receive queue dropped.
    pub overflowed: u64,
    /// Datagrams that are empty or too long.
    pub odd: u64,
    /// Trains that were received as one,
    pub trains: u64,
    /// and those with packets of several connections.
    pub mixed_trains: u64,
    /// Send calls that took a part of a batch.
    pub partial_sends: u64,
    /// Waits that failed.
    pub wait_faults: u64,
    /// Panics in the passes of workers.
    pub panics: u64,
    /// Restarts of workers.
    pub restarts: u64,
    /// Stalled threads.
    pub stalls: u64,
    /// Shutdowns of servers.
    pub drains: u64,
    /// Ticks in which an application took no events.
    pub unpolled: u64,
    /// Messages that a full queue refused.
    pub refused: u64,
    /// Messages that clients dropped from a full queue, the oldest,
    pub dropped_oldest: u64,
    /// or the newest.
    pub dropped_newest: u64,
    /// Connections that a full queue closed.
    pub overflows: u64,
    /// Messages to groups.
    pub broadcasts: u64,
    /// Messages to groups that a member missed because of a full queue.
    pub missed: u64,
    /// Clocks that jumped by more than connections survive.
    pub jumps: u64,
    /// Failed receive calls, in the order of [`Fault::ALL`].
    pub receive_faults: [u64; Fault::ALL.len()],
    /// Failed send calls, in the order of [`Fault::ALL`].
    pub send_faults: [u64; Fault::ALL.len()],
}

impl Coverage {
    /// Returns the counters of events that must happen, with their names.
    fn counters(&mut self) -> [(&'static str, &mut u64); 20] {
        [
            ("wakes", &mut self.wakes),
            ("forwards", &mut self.forwards),
            ("overflow drops", &mut self.overflowed),
            ("empty or overlong", &mut self.odd),
            ("trains", &mut self.trains),
            ("trains of several ids", &mut self.mixed_trains),
            ("partial sends", &mut self.partial_sends),
            ("failed waits", &mut self.wait_faults),
            ("panics in passes", &mut self.panics),
            ("restarts", &mut self.restarts),
            ("stalls", &mut self.stalls),
            ("drains", &mut self.drains),
            ("ticks without a poll", &mut self.unpolled),
            ("refused for want of room", &mut self.refused),
            ("dropped as the oldest", &mut self.dropped_oldest),
            ("dropped as the newest", &mut self.dropped_newest),
            ("closed for want of room", &mut self.overflows),
            ("said to groups", &mut self.broadcasts),
            ("missed for want of room", &mut self.missed),
            ("jumps by a year", &mut self.jumps),
        ]
    }

    /// Returns every kind of event that must happen, by name, and how often it did.
    #[must_use]
    pub fn kinds(mut self) -> Vec<(String, u64)> {
        let mut kinds: Vec<_> =
            self.counters().map(|(name, count)| (name.to_owned(), *count)).into_iter().collect();
        if HAS_PANIC_POINT {
            kinds.push(("panics of connections".to_owned(), self.connection_panics));
        }
        let mut add = |call: &str, faults: &[Fault], counts: [u64; Fault::ALL.len()]| {
            let counts = Fault::ALL.into_iter().zip(counts).filter(|(fault, _)| faults.contains(fault));
            kinds.extend(counts.map(|(fault, count)| (format!("{call} {fault}"), count)));
        };
        add("recv", &RECEIVE_FAULTS, self.receive_faults);
        add("send", &[SEND_FAULTS.as_slice(), &[Fault::WouldBlock]].concat(), self.send_faults);
        kinds
    }
}

impl AddAssign for Coverage {
    fn add_assign(&mut self, mut other: Self) {
        self.stranded += other.stranded;
        self.connection_panics += other.connection_panics;
        for (faults, more) in
            [(&mut self.receive_faults, other.receive_faults), (&mut self.send_faults, other.send_faults)]
        {
            faults.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        for ((_, sum), (_, more)) in self.counters().into_iter().zip(other.counters()) {
            *sum += *more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up() {
        let links = LinkFaults { lost: 1, duplicated: 2, corrupted: 4, queue_full: 8, too_large: 16 };
        let connected = Duration::from_secs(3);
        let one = Totals { connected, packets: 7, handshakes: 2, hostile: 5, audited: 6, links, others: 32 };
        assert_eq!(one.faults(), 63);
        let mut both = one;
        both += one;
        assert_eq!((both.faults(), both.connected), (126, 2 * connected));
        assert_eq!((both.packets, both.handshakes, both.hostile, both.audited), (14, 4, 10, 12));
    }

    #[test]
    fn coverage_adds_up_by_kind() {
        let mut sum = Coverage { wakes: 1, connection_panics: 1, ..Coverage::default() };
        let mut more = Coverage { wakes: 2, jumps: 3, connection_panics: 5, ..Coverage::default() };
        more.send_faults[0] = 4;
        sum += more;
        assert_eq!((sum.wakes, sum.jumps, sum.connection_panics, sum.send_faults[0]), (3, 3, 6, 4));
        assert_eq!(sum.kinds()[0], ("wakes".to_owned(), 3));
    }
}
